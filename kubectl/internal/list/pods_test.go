package list

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/clientside/explain"
	"chancery.dev/internal/machine/podrequest"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/growth"
)

// podFor is a Pod with a volume for which a signer signs.
func podFor(namespace, name, signerName string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}}, Spec: corev1.PodSpec{
		NodeName: "node", ServiceAccountName: "pods", AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "a", Image: "a"}},
		Volumes: []corev1.Volume{{Name: "identity", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{PodCertificate: &corev1.PodCertificateProjection{SignerName: signerName, KeyType: "ECDSAP256", CredentialBundlePath: "c.pem"}}},
		}}}},
	}}
}

// TestListPods: the Pods of our signers are listed, those in trouble first, by their requests where there are some, and
// else by their events; a Pod that runs is in order.
func TestListPods(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	signerName := "issuers.cert-manager.io/" + w.Namespace + ".pods"
	issuer := &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "pods"}, Spec: certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "root"}}}
	running, forbidden, denied := podFor(w.Namespace, "running", signerName), podFor(w.Namespace, "without-a-right", signerName), podFor(w.Namespace, "denied", signerName)
	w.Create(t, issuer, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "pods"}})
	w.Create(t, running, forbidden, denied, podFor(w.Namespace, "of-others", "example.com/pods"), podFor(w.Namespace, "new", signerName))
	issuer.Status.Conditions = []certmanagerv1.IssuerCondition{{Type: certmanagerv1.IssuerConditionReady, Status: cmmeta.ConditionTrue}}
	running.Status.Phase = corev1.PodRunning
	pcr := &certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "r"}, Spec: certificatesv1.PodCertificateRequestSpec{
		SignerName: signerName, PodName: "denied", PodUID: denied.UID, ServiceAccountName: "pods", ServiceAccountUID: "u", NodeName: "n", NodeUID: "n", StubPKCS10Request: stub(t),
	}}
	w.Create(t, pcr, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "e"}, Type: corev1.EventTypeWarning, Reason: podrequest.ReasonForbidden, Message: "no right",
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: w.Namespace, Name: forbidden.Name, UID: forbidden.UID, FieldPath: podrequest.FieldPath(signerName)},
		LastTimestamp:  metav1.Now(),
	})
	pcr.Status.Conditions = []metav1.Condition{{
		Type: certificatesv1.PodCertificateRequestConditionTypeDenied, Status: metav1.ConditionTrue, Reason: podrequest.ReasonStubNames, Message: "names", LastTransitionTime: metav1.Now(),
	}}
	for _, o := range []client.Object{issuer, running, pcr} {
		if err := w.Client.Status().Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	viewer := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: "viewer-of-" + w.Namespace}
	w.Create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "viewer"}, Subjects: []rbacv1.Subject{viewer}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
	})
	run := command(rig.Kubeconfig(t, w.Admin, w.Namespace))
	for args, want := range map[string]struct {
		code int
		says []string
		not  string
	}{
		"": {0, []string{
			"NAME             STATE    ISSUER       CAUSE\n", "denied           denied   Issuer/pods  " + podrequest.ReasonStubNames + ": names\n",
			"without-a-right  waiting  Issuer/pods  no right\n", "new              waiting  Issuer/pods\n", "running          started  Issuer/pods\n",
		}, "of-others"},
		"--not-ready":                  {found, []string{"denied ", "without-a-right ", "new "}, "running "},
		"--not-ready -l app=running":   {0, []string{"no Pods with certificates of their own that fit the flags are found"}, "denied"},
		"--issuer issuer/pods -o name": {0, []string{"pod/denied\npod/without-a-right\npod/new\npod/running\n"}, ""},
		"--issuer issuer/other":        {0, []string{"no Pods with certificates of their own"}, "denied"},
		"-o wide":                      {0, []string{"identity  denied"}, "SECRET"},
		"-o csv":                       {0, []string{"nextTry,volume\n", ",never,identity\n"}, ""},
		"-o yaml":                      {0, []string{"volume: identity", "class: " + podrequest.ReasonForbidden}, ""},
		"--as " + viewer.Name:          {0, []string{"you may not list podcertificaterequests", "no right\n", "denied           waiting  Issuer/pods\n"}, "names"},
	} {
		said, code, err := run(t.Context(), append([]string{"--pods"}, strings.Fields(args)...)...)
		if err != nil || code != want.code || want.not != "" && strings.Contains(said, want.not) {
			t.Errorf("%s: %d %v\n%s", args, code, err, said)
		}
		last := -1
		for _, words := range want.says {
			at := strings.Index(said, words)
			if at <= last {
				t.Errorf("%s: %q is not there, or too early:\n%s", args, words, said)
			}
			last = at
		}
	}
	if said, code, err := run(t.Context(), "--pods", "--expiring", "14d"); err == nil {
		t.Errorf("--expiring: %d\n%s", code, said)
	}
}

// stub is the request of a kubelet, with a new key.
func stub(t *testing.T) []byte {
	t.Helper()
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// TestPodsWidth: on 80 columns, the cause is seen of each Pod, however long the names of the Pod and of the issuer are.
func TestPodsWidth(t *testing.T) {
	t.Parallel()
	for length := 1; length <= 70; length++ {
		long := strings.Repeat("n", length)
		rows := []explain.Row{{Namespace: "shop", Name: long, Volume: "identity", State: "waiting", Issuer: "ClusterIssuer/" + long}}
		rows[0].Cause = "no right: " + strings.Repeat("x", 300)
		var out bytes.Buffer
		if err := (table{pods: true}).narrow(&out, rows, true, time.Now(), screen); err != nil {
			t.Fatal(err)
		}
		if said := out.String(); !strings.Contains(said, "no right: xxxxxxxxx") || !strings.Contains(said, "shop/"+long) || !strings.Contains(said, "ClusterIssuer/n") {
			t.Fatalf("names of %d:\n%s", length, said)
		}
		for line := range strings.Lines(out.String()) {
			if width := len([]rune(strings.TrimSuffix(line, "\n"))); width > screen {
				t.Fatalf("names of %d: %d columns:\n%s", length, width, out.String())
			}
		}
	}
}

// TestTenThousandPods: a list of 10,000 Pods is explained, sorted and written in a second of the processor's time.
func TestTenThousandPods(t *testing.T) {
	now := time.Now()
	var volumes []explain.PodVolume
	for i := range 10_000 {
		pod := podFor("shop", fmt.Sprintf("web-%d", i), "cert-manager.io/pods")
		pod.UID = types.UID(pod.Name)
		volumes = append(volumes, explain.PodVolumes(pod, nil, []*corev1.Event{{
			ObjectMeta: pod.ObjectMeta, InvolvedObject: corev1.ObjectReference{UID: pod.UID, FieldPath: podrequest.FieldPath("cert-manager.io/pods")}, Reason: podrequest.ReasonForbidden, Message: fmt.Sprintf("no right %d", i*7919%90),
		}})...)
	}
	cost := growth.Measure(func() {
		w, all := explain.NewCluster(nil, map[string]bool{"ClusterIssuer": true}, now), []explain.Report(nil)
		for _, v := range volumes {
			all = append(all, w.Pod(v))
		}
		if err := (table{pods: true}).wide(io.Discard, explain.PodRows(all, explain.Filter{}, now), true, now); err != nil || all[0].Cause == "" {
			t.Error(err)
		}
	})
	t.Logf("10,000 Pods: %s", cost)
	if cost.CPU > time.Second {
		t.Errorf("10,000 Pods took %s of the processor's time", cost.CPU)
	}
}
