package app_test

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/app"
	"chancery.dev/internal/machine/podrequest"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
)

// podWorld is a world with a CA for Pods, and a kubelet.
type podWorld struct {
	*rig.World

	kubelet client.Client
	metrics string // where they are served
}

func newPodWorld(t *testing.T) *podWorld {
	t.Helper()
	return newPodWorldRun(t, rig.NewWorld(t), func(w *rig.World, cfg app.Config) { w.Run(t, cfg) })
}

// newPodWorldRun is newPodWorld in a world, with controllers that run starts.
func newPodWorldRun(t *testing.T, w *rig.World, run func(w *rig.World, cfg app.Config)) *podWorld {
	t.Helper()
	kubelet := w.Kubelet(t)
	cfg := w.Config()
	cfg.PodCertificates, cfg.MetricsAddress = true, rig.FreeAddress(t).String()
	run(w, cfg)
	smallCA(t, w)
	certificateReady(t, w, "web") // by the issuer ca, whose CA is in the Secret root
	w.Create(t,
		&certmanagerv1.ClusterIssuer{
			ObjectMeta: metav1.ObjectMeta{Name: w.ClusterName("pods"), Annotations: map[string]string{certmanagerv1.PodCertificatesAnnotation: "prod.example.com"}},
			Spec:       certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "root"}},
		},
		&certmanagerv1.Issuer{
			ObjectMeta: metav1.ObjectMeta{Name: "pods", Annotations: map[string]string{certmanagerv1.PodCertificatesAnnotation: "prod.example.com"}},
			Spec:       certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "root"}},
		},
		&certmanagerv1.Issuer{
			ObjectMeta: metav1.ObjectMeta{Name: "own", Annotations: map[string]string{certmanagerv1.PodCertificatesAnnotation: "prod.example.com", certmanagerv1.PodCertificatesForAnnotation: "all"}},
			Spec:       certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}},
		})
	return &podWorld{w, kubelet, cfg.MetricsAddress}
}

// issued awaits the certificate of a request, and returns its leaf.
func (w *podWorld) issued(t *testing.T, pcr *certificatesv1.PodCertificateRequest, key crypto.Signer) *x509.Certificate {
	t.Helper()
	w.finished(t, pcr, certificatesv1.PodCertificateRequestConditionTypeIssued)
	chain, err := pki.DecodeChain([]byte(pcr.Status.CertificateChain))
	if err != nil {
		t.Fatal(err)
	}
	root := &corev1.Secret{}
	if err := w.Get(t.Context(), "root", root); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(root.Data[corev1.TLSCertKey])
	leaf, s := chain[0], pcr.Status
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	if !pki.PublicKeysEqual(leaf.PublicKey, key.Public()) || leaf.IsCA || len(leaf.RawSubject) != 2 || !s.NotBefore.Time.Equal(leaf.NotBefore) || !s.NotAfter.Time.Equal(leaf.NotAfter) {
		t.Errorf("%+v\n%+v", leaf.Subject, s)
	}
	return leaf
}

func (w *podWorld) finished(t *testing.T, pcr *certificatesv1.PodCertificateRequest, as string) {
	t.Helper()
	rig.Eventually(t, pcr.Name+" is "+as, func(ctx context.Context) string {
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(pcr), pcr); err != nil {
			return err.Error()
		}
		if len(pcr.Status.Conditions) == 1 && pcr.Status.Conditions[0].Type == as {
			return ""
		}
		return fmt.Sprintf("%+v", pcr.Status.Conditions)
	})
}

// told awaits a Warning event about a Pod.
func (w *podWorld) told(t *testing.T, pod, reason string) string {
	t.Helper()
	said := ""
	rig.Eventually(t, "an event "+reason+" about the Pod "+pod, func(ctx context.Context) string {
		events := &corev1.EventList{}
		if err := w.Client.List(ctx, events, client.InNamespace(w.Namespace)); err != nil {
			return err.Error()
		}
		at := slices.IndexFunc(events.Items, func(e corev1.Event) bool {
			return e.InvolvedObject.Kind == "Pod" && e.InvolvedObject.Name == pod && e.InvolvedObject.UID == types.UID(pod) && e.Reason == reason &&
				strings.HasPrefix(e.InvolvedObject.FieldPath, "spec.volumes{") && strings.Contains(e.InvolvedObject.FieldPath, "cert-manager.io/")
		})
		if at < 0 {
			return "there is none"
		}
		said = events.Items[at].Message
		return ""
	})
	return said
}

// TestPods: a Pod has a certificate with its SPIFFE ID as soon as its ServiceAccount may have one. Until then its
// request waits without a verdict, and the Pod says why.
func TestPods(t *testing.T) {
	t.Parallel()
	w := newPodWorld(t)
	cluster := "cert-manager.io/" + w.ClusterName("pods")
	first, key := w.PodRequest(t, "web-0", "web", cluster, x509.CertificateRequest{})
	if err := w.kubelet.Create(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if said := w.told(t, "web-0", podrequest.ReasonForbidden); !strings.Contains(said, "verb request") || !strings.Contains(said, cluster) {
		t.Error(said)
	}
	if err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(first), first); err != nil || len(first.Status.Conditions) > 0 {
		t.Errorf("%v %+v", err, first.Status)
	}
	w.Allow(t, "web", rbacv1.Subject{Kind: "ServiceAccount", Namespace: w.Namespace, Name: "web"}, rbacv1.PolicyRule{
		APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"signers"}, ResourceNames: []string{"cert-manager.io/*"}, Verbs: []string{"request"},
	})
	leaf := w.issued(t, first, key)
	if want := "spiffe://prod.example.com/ns/" + w.Namespace + "/sa/web"; len(leaf.URIs) != 1 || leaf.URIs[0].String() != want || len(leaf.DNSNames) > 0 {
		t.Errorf("names %v %v, want %s", leaf.URIs, leaf.DNSNames, want)
	}
	if life, refresh := leaf.NotAfter.Sub(leaf.NotBefore), first.Status.BeginRefreshAt.Sub(leaf.NotBefore); life != 24*time.Hour || refresh < 14*time.Hour || refresh > 20*time.Hour {
		t.Errorf("valid for %s, refreshed after %s", life, refresh)
	}
	for form, signerName := range map[string]string{"cluster": "clusterissuers.cert-manager.io/" + w.ClusterName("pods"), "namespace": "issuers.cert-manager.io/" + w.Namespace + ".pods"} {
		pcr, key := w.PodRequest(t, "of-the-"+form, "other", signerName, x509.CertificateRequest{})
		pcr.Spec.MaxExpirationSeconds = new(int32(3600))
		if err := w.kubelet.Create(t.Context(), pcr); err != nil {
			t.Fatal(err)
		}
		w.told(t, pcr.Name, podrequest.ReasonForbidden)
		rule := rbacv1.PolicyRule{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"signers"}, ResourceNames: []string{signerName}, Verbs: []string{"request"}}
		to := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:serviceaccounts:" + w.Namespace}
		if form == "cluster" {
			w.Allow(t, form, to, rule)
		} else {
			w.Create(t, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: form}, Rules: []rbacv1.PolicyRule{rule}}, &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: form}, Subjects: []rbacv1.Subject{to}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: form},
			})
		}
		if leaf := w.issued(t, pcr, key); leaf.NotAfter.Sub(leaf.NotBefore) != time.Hour {
			t.Errorf("%s: valid for %s", form, leaf.NotAfter.Sub(leaf.NotBefore))
		}
	}
}

// TestPodServices: a Pod that asks for it has the names of the Services of its namespace that select it. Until they do,
// its request waits, and the Pod says why.
func TestPodServices(t *testing.T) {
	t.Parallel()
	w := newPodWorld(t)
	signerName := "issuers.cert-manager.io/" + w.Namespace + ".pods"
	w.annotate(t, "pods", certmanagerv1.PodCertificatesForAnnotation, "all")
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 443}},
	}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0", Labels: map[string]string{"app": "api"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}}}
	w.Create(t, pod)
	pcr, key := w.PodRequest(t, "web-0", "web", signerName, x509.CertificateRequest{})
	pcr.Spec.PodUID, pcr.Spec.UnverifiedUserAnnotations = pod.UID, map[string]string{certmanagerv1.PodServicesAnnotation: "web"}
	if err := w.kubelet.Create(t.Context(), pcr); err != nil {
		t.Fatal(err)
	}
	says := func(words string) {
		rig.Eventually(t, "an event about the Pod says "+words, func(ctx context.Context) string {
			events := &corev1.EventList{}
			if err := w.Client.List(ctx, events, client.InNamespace(w.Namespace)); err != nil {
				return err.Error()
			}
			var all []string
			for _, e := range events.Items {
				if all = append(all, e.Message); e.InvolvedObject.UID == pod.UID && e.Reason == podrequest.ReasonServices && strings.Contains(e.Message, words) {
					return ""
				}
			}
			return strings.Join(all, "; ")
		})
	}
	says("has no Service web")
	w.Create(t, service)
	says("give the Pod the labels app=web")
	changed := pod.DeepCopy()
	changed.Labels["app"] = "web"
	if err := w.Client.Patch(t.Context(), changed, client.MergeFrom(pod)); err != nil {
		t.Fatal(err)
	}
	leaf := w.issued(t, pcr, key)
	if want := []string{"web." + w.Namespace + ".svc", "web." + w.Namespace + ".svc.cluster.local"}; !slices.Equal(leaf.DNSNames, want) || len(leaf.URIs) != 1 {
		t.Errorf("names %v %v, want %v", leaf.DNSNames, leaf.URIs, want)
	}
}

// TestPodsForLong: a certificate is valid for more than a day if the issuer allows that, and the Pod asks for it. A
// kubelet that asks for more than its Pod gets a day.
func TestPodsForLong(t *testing.T) {
	t.Parallel()
	w := newPodWorld(t)
	w.annotate(t, "pods", certmanagerv1.PodCertificatesDurationAnnotation, "1000h")
	w.annotate(t, "pods", certmanagerv1.PodCertificatesForAnnotation, "all") // last: until it is seen, requests wait
	const asked, day = 720 * time.Hour, 24 * time.Hour
	for name, want := range map[string]time.Duration{"long": asked, "short": day} {
		signerName, seconds := "issuers.cert-manager.io/"+w.Namespace+".pods", new(int32(want.Seconds()))
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "a", Image: "a"}},
			Volumes: []corev1.Volume{{Name: "identity", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
				PodCertificate: &corev1.PodCertificateProjection{SignerName: signerName, KeyType: "ECDSAP256", CredentialBundlePath: "a.pem", MaxExpirationSeconds: seconds},
			}}}}}},
		}}
		w.Create(t, pod)
		pcr, key := w.PodRequest(t, name, "web", signerName, x509.CertificateRequest{})
		pcr.Spec.PodUID, pcr.Spec.MaxExpirationSeconds = pod.UID, new(int32(asked.Seconds()))
		if err := w.kubelet.Create(t.Context(), pcr); err != nil {
			t.Fatal(err)
		}
		if leaf := w.issued(t, pcr, key); leaf.NotAfter.Sub(leaf.NotBefore) != want {
			t.Errorf("%s: valid for %s", name, leaf.NotAfter.Sub(leaf.NotBefore))
		}
	}
}

// TestPodsMisuse: each misuse is refused in words of its own.
func TestPodsMisuse(t *testing.T) {
	t.Parallel()
	w := newPodWorld(t)
	named := x509.CertificateRequest{Subject: pkix.Name{CommonName: "admin"}}
	for pod, c := range map[string]struct {
		signerName  string
		stub        x509.CertificateRequest
		annotations map[string]string
		reason      string
	}{
		"another-namespace": {"issuers.cert-manager.io/kube-system.pods", x509.CertificateRequest{}, nil, podrequest.ReasonOtherNamespace},
		"a-stub-with-names": {"issuers.cert-manager.io/" + w.Namespace + ".pods", named, nil, podrequest.ReasonStubNames},
		"an-annotation":     {"issuers.cert-manager.io/" + w.Namespace + ".pods", x509.CertificateRequest{}, map[string]string{"example.com/x": "y"}, certificatesv1.PodCertificateRequestConditionInvalidUserConfig},
	} {
		pcr, _ := w.PodRequest(t, pod, "web", c.signerName, c.stub)
		pcr.Spec.UnverifiedUserAnnotations = c.annotations
		if err := w.kubelet.Create(t.Context(), pcr); err != nil {
			t.Fatal(err)
		}
		w.finished(t, pcr, certificatesv1.PodCertificateRequestConditionTypeDenied)
		if got := pcr.Status.Conditions[0]; got.Reason != c.reason {
			t.Errorf("%s: %+v", pod, got)
		}
	}
	person, err := client.New(rig.As(w.Admin, "alice", "people-"+w.Namespace), client.Options{Scheme: w.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	pcr, _ := w.PodRequest(t, "by-a-person", "web", "issuers.cert-manager.io/"+w.Namespace+".pods", x509.CertificateRequest{})
	if err := person.Create(t.Context(), pcr); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "kubelets make them") {
		t.Errorf("a request by a person: %v", err)
	}
	theirs := certmanagerv1.CertificateSpec{URIs: []string{"spiffe://prod.example.com/ns/bank/sa/vault"}}
	for name, change := range map[string]func(*certmanagerv1.CertificateSpec){
		"of-the-issuer":         func(s *certmanagerv1.CertificateSpec) { s.IssuerRef = cmmeta.IssuerReference{Name: "pods"} },
		"of-the-cluster-issuer": func(s *certmanagerv1.CertificateSpec) {},
		"a-ca":                  func(s *certmanagerv1.CertificateSpec) { s.IsCA, s.CommonName = true, "sub" },
	} {
		crt := &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: theirs}
		crt.Spec.SecretName, crt.Spec.IssuerRef = name, cmmeta.IssuerReference{Kind: cmmeta.ClusterIssuerKind, Name: w.ClusterName("pods")}
		change(&crt.Spec)
		w.Create(t, crt)
		rig.Eventually(t, "the Certificate "+name+" says why it does not come", func(ctx context.Context) string {
			if err := w.Get(ctx, name, crt); err != nil {
				return err.Error()
			}
			if c := crt.Status.Cause; c == nil || !strings.Contains(c.Message, "signs for Pods only") {
				return fmt.Sprintf("%+v", crt.Status)
			}
			return ""
		})
	}
	csr := newCSR(t, w.World, "pods")
	w.Create(t, csr)
	rig.Eventually(t, "the CertificateSigningRequest fails", func(ctx context.Context) string {
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(csr), csr); err != nil {
			return err.Error()
		}
		if !slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
			return c.Type == certificatesv1.CertificateFailed && strings.Contains(c.Message, "signs for Pods only")
		}) || len(csr.Status.Certificate) > 0 {
			return fmt.Sprintf("%+v", csr.Status)
		}
		return ""
	})
	w.annotate(t, "pods", certmanagerv1.PodCertificatesSharedAnnotation, "true")
	certificateReady(t, w.World, "of-the-issuer")
}

// annotate sets an annotation of an Issuer.
func (w *podWorld) annotate(t *testing.T, name, key, value string) {
	t.Helper()
	issuer := &certmanagerv1.Issuer{}
	if err := w.Get(t.Context(), name, issuer); err != nil {
		t.Fatal(err)
	}
	changed := issuer.DeepCopy()
	if changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	changed.Annotations[key] = value
	if err := w.Client.Patch(t.Context(), changed, client.MergeFrom(issuer)); err != nil {
		t.Fatal(err)
	}
}

// TestPodsWait: what somebody can correct makes a request wait, and the correction is seen; each kind of key that a
// kubelet makes is signed.
func TestPodsWait(t *testing.T) {
	t.Parallel()
	w := newPodWorld(t)
	signerName := "issuers.cert-manager.io/" + w.Namespace + "."
	ask := func(pod, issuer string) (*certificatesv1.PodCertificateRequest, crypto.Signer) {
		pcr, key := w.PodRequest(t, pod, "web", signerName+issuer, x509.CertificateRequest{})
		if err := w.kubelet.Create(t.Context(), pcr); err != nil {
			t.Fatal(err)
		}
		return pcr, key
	}
	forAll := map[string]string{certmanagerv1.PodCertificatesForAnnotation: "all"}
	missing, keyOfMissing := ask("missing", "later")
	w.told(t, "missing", podrequest.ReasonIssuerMissing)
	other, keyOfOther := ask("other", "own")
	w.told(t, "other", podrequest.ReasonIssuerType)
	w.Create(t, &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "later", Annotations: forAll}, Spec: certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "later"}}})
	w.told(t, "missing", podrequest.ReasonIssuerNotReady)
	root := &corev1.Secret{}
	if err := w.Get(t.Context(), "root", root); err != nil {
		t.Fatal(err)
	}
	w.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "later"}, Type: corev1.SecretTypeTLS, Data: root.Data})
	w.told(t, "missing", podrequest.ReasonNotForPods)
	w.annotate(t, "later", certmanagerv1.PodCertificatesAnnotation, "prod.example.com")
	w.issued(t, missing, keyOfMissing)
	own := &certmanagerv1.Issuer{}
	if err := w.Get(t.Context(), "own", own); err != nil {
		t.Fatal(err)
	}
	changed := own.DeepCopy()
	changed.Spec = certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "root"}}
	if err := w.Client.Patch(t.Context(), changed, client.MergeFrom(own)); err != nil {
		t.Fatal(err)
	}
	w.issued(t, other, keyOfOther)
	for kind, spec := range map[string]pki.KeySpec{
		"rsa-3072": {Algorithm: pki.RSA, Size: 3072}, "p-384": {Algorithm: pki.ECDSA, Size: 384},
		"p-521": {Algorithm: pki.ECDSA, Size: 521}, "ed25519": {Algorithm: pki.Ed25519},
	} {
		key, err := pki.GenerateKey(spec)
		if err != nil {
			t.Fatal(err)
		}
		pcr, _ := w.PodRequest(t, kind, "web", signerName+"later", x509.CertificateRequest{})
		if pcr.Spec.StubPKCS10Request, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key); err != nil {
			t.Fatal(err)
		}
		if err := w.kubelet.Create(t.Context(), pcr); err != nil {
			t.Fatal(err)
		}
		w.issued(t, pcr, key)
	}
}
