package readers_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/kubelet/clustertrustbundle"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/controller/trustbundles"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
	"chancery.dev/standalone/kubelet"
)

const trustDomain = "prod.example.com"

// node is the part of a kubelet that Pods need, on a node of a world, with a clock that the test steps.
type node struct {
	*kubelet.Kubelet

	t       *testing.T
	clock   *testingclock.FakeClock
	events  *record.FakeRecorder
	bundles clustertrustbundle.Manager
}

// files are what the kubelet writes into the volume of a Pod: the key and the chain, if they are not before.
func (k *node) files(pod *corev1.Pod, before tls.Certificate) tls.Certificate {
	k.t.Helper()
	var pair tls.Certificate
	rig.Eventually(k.t, "the volume of the Pod "+pod.Name+" has a certificate", func(ctx context.Context) string {
		var err error
		if pair, err = k.Credentials(ctx, pod, "identity"); err != nil {
			return err.Error()
		}
		if len(before.Certificate) > 0 && bytes.Equal(before.Certificate[0], pair.Certificate[0]) {
			return "it is the one from before"
		}
		return ""
	})
	return pair
}

// newNode starts one on a node of a world, with the rights of a node as far as it needs them.
func newNode(t *testing.T, w *rig.World, pods ...*corev1.Pod) *node {
	t.Helper()
	name := w.ClusterName("node")
	user := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: "system:node:" + name}
	w.Create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	w.Allow(t, "node", user, certificates([]string{"podcertificaterequests"}, "create", "list", "watch"), certificates([]string{"clustertrustbundles"}, "list", "watch"),
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes", "serviceaccounts"}, Verbs: []string{"get", "list", "watch"}})
	clients, err := kubernetes.NewForConfig(rig.As(w.Admin, user.Name, "system:nodes"))
	if err != nil {
		t.Fatal(err)
	}
	k := &node{t: t, clock: testingclock.NewFakeClock(time.Now()), events: record.NewFakeRecorder(1000)}
	watched := informers.NewSharedInformerFactory(clients, 0)
	k.Kubelet = kubelet.New(clients, watched, name, k.events, k.clock)
	if k.bundles, err = clustertrustbundle.NewGAInformerManager(t.Context(), watched, 256, time.Minute); err != nil {
		t.Fatal(err)
	}
	watched.Start(t.Context().Done())
	go k.Run(t.Context())
	for _, pod := range pods {
		k.Add(t.Context(), pod)
	}
	return k
}

// pod is a Pod of a ServiceAccount with a certificate in a volume, as the API server has it.
func pod(t *testing.T, w *rig.World, name, signerName string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name, Labels: map[string]string{"app": name}}, Spec: corev1.PodSpec{
		ServiceAccountName: name, NodeName: w.ClusterName("node"), AutomountServiceAccountToken: new(false),
		Containers: []corev1.Container{{Name: "a", Image: "a", VolumeMounts: []corev1.VolumeMount{{Name: "identity", MountPath: "/run/identity"}}}},
		Volumes: []corev1.Volume{{Name: "identity", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{PodCertificate: &corev1.PodCertificateProjection{
				SignerName: signerName, KeyType: "ECDSAP256", CredentialBundlePath: "credentials.pem",
				UserAnnotations: map[string]string{certmanagerv1.PodServicesAnnotation: name},
			}}},
		}}}},
	}}
	w.Create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, p, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Port: 443}},
	}})
	return p
}

// certificates is a right to resources of certificates.k8s.io.
func certificates(resources []string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{"certificates.k8s.io"}, Resources: resources, Verbs: verbs}
}

// volume is what a Pod has read from its volume: its key with the chain, and the roots.
type volume struct {
	tls.Certificate

	roots []*x509.Certificate
}

// handshake connects two Pods by mutual TLS. Each verifies the other by its own roots, as a SPIFFE ID of a
// ServiceAccount, and by the name of its Service.
func handshake(t *testing.T, w *rig.World, server, client volume, serverName, clientName string) {
	t.Helper()
	domain := spiffeid.RequireTrustDomainFromString(trustDomain)
	config := func(own volume, peer string) *tls.Config {
		return &tls.Config{
			Certificates: []tls.Certificate{own.Certificate}, ClientAuth: tls.RequireAnyClientCert, InsecureSkipVerify: true,
			VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
				var chain []*x509.Certificate
				for _, der := range raw {
					certificate, err := x509.ParseCertificate(der)
					if err != nil {
						return err
					}
					chain = append(chain, certificate)
				}
				id, _, err := x509svid.Verify(chain, x509bundle.FromX509Authorities(domain, own.roots))
				if want := "spiffe://" + trustDomain + "/ns/" + w.Namespace + "/sa/" + peer; err == nil && id.String() != want {
					err = fmt.Errorf("the other side is %s, not %s", id, want)
				}
				if err != nil {
					return err
				}
				return chain[0].VerifyHostname(peer + "." + w.Namespace + ".svc")
			},
		}
	}
	here, there := net.Pipe()
	defer func() { _, _ = here.Close(), there.Close() }()
	late := time.Now().Add(time.Minute) // who refuses the other one writes while that one writes, too
	if err := errors.Join(here.SetDeadline(late), there.SetDeadline(late)); err != nil {
		t.Fatal(err)
	}
	answer := make(chan error, 1)
	go func() { answer <- tls.Server(there, config(server, clientName)).HandshakeContext(t.Context()) }()
	if err := tls.Client(here, config(client, serverName)).HandshakeContext(t.Context()); err != nil {
		t.Errorf("%s asks %s: %v", clientName, serverName, err)
	}
	if err := <-answer; err != nil {
		t.Errorf("%s answers %s: %v", serverName, clientName, err)
	}
}

// podsWorld is a world with a CA for Pods, whose roots are in a ClusterTrustBundle, and the name of its signer.
func podsWorld(t *testing.T, on *rest.Config) (w *rig.World, signerName string) {
	t.Helper()
	w = rig.NewWorldOn(t, on)
	attest := certificates([]string{"signers"}, "attest")
	attest.ResourceNames = []string{"cert-manager.io/*", "clusterissuers.cert-manager.io/*"}
	w.Allow(t, "pods-controller", rig.ToController(), attest, certificates([]string{"podcertificaterequests"}, "get", "list", "watch"),
		certificates([]string{"podcertificaterequests/status"}, "patch"), certificates([]string{"clustertrustbundles"}, "list", "watch", "create", "patch", "delete"))
	cfg := w.Config()
	cfg.PodCertificates, cfg.TrustBundles = true, trustbundles.ClusterIssuers
	w.Run(t, cfg)
	w.Create(t,
		&certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "self"}, Spec: certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}},
		&certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: "root"}, Spec: certmanagerv1.CertificateSpec{
			SecretName: "root", CommonName: "root", IsCA: true, PrivateKey: &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm},
			IssuerRef: cmmeta.IssuerReference{Name: "self"},
		}},
		&certmanagerv1.ClusterIssuer{
			ObjectMeta: metav1.ObjectMeta{Name: w.ClusterName("pods"), Annotations: map[string]string{
				certmanagerv1.PodCertificatesAnnotation: trustDomain, certmanagerv1.PodCertificatesForAnnotation: "all", certmanagerv1.TrustBundleAnnotation: "true",
			}},
			Spec: certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "root"}},
		})
	return w, "clusterissuers.cert-manager.io/" + w.ClusterName("pods")
}

// TestKubelet: the kubelet's own code gets certificates for two Pods, and refreshes one. The Pods connect before and
// after, each with the identity of its ServiceAccount.
func TestKubelet(t *testing.T) {
	t.Parallel()
	w, signerName := podsWorld(t, rig.Cluster(t))
	web, api := pod(t, w, "web", signerName), pod(t, w, "api", signerName)
	k := newNode(t, w, web, api)
	roots := k.roots(signerName, 1)
	ofWeb, ofAPI := volume{k.files(web, tls.Certificate{}), roots}, volume{k.files(api, tls.Certificate{}), roots}
	handshake(t, w, ofAPI, ofWeb, "api", "web")
	newer := volume{k.refreshed(web, ofWeb.Certificate, roots[0]), roots}
	k.Clear() // its clock is ahead: each new certificate is due again at once
	handshake(t, w, ofAPI, newer, "api", "web")
	handshake(t, w, newer, ofAPI, "web", "api")
	k.noTrouble(w)
}

// TestRotation: the CA for Pods is replaced twice, and in between its Pods refresh their certificates and read their
// roots at different times. Whoever has the newest of both connects with whoever has the oldest, each way.
func TestRotation(t *testing.T) {
	t.Parallel()
	w, signerName := podsWorld(t, rig.Cluster(t))
	web, api := pod(t, w, "web", signerName), pod(t, w, "api", signerName)
	k := newNode(t, w, web, api)
	roots := [][]*x509.Certificate{k.roots(signerName, 1)}
	ofWeb, ofAPI := []tls.Certificate{k.files(web, tls.Certificate{})}, []tls.Certificate{k.files(api, tls.Certificate{})}
	newest := roots[0][0]
	for n := range 2 {
		renew(t, w, "root")
		roots = append(roots, k.roots(signerName, n+2))
		isOld := func(c *x509.Certificate) bool { return slices.ContainsFunc(roots[n], c.Equal) }
		newest = slices.DeleteFunc(slices.Clone(roots[n+1]), isOld)[0]
		ofWeb = append(ofWeb, k.refreshed(web, ofWeb[n], newest))
	}
	ofAPI = append(ofAPI, k.refreshed(api, ofAPI[0], newest))
	k.Clear()
	shaken := 0
	for _, a := range ofWeb {
		for _, b := range ofAPI {
			for _, webTrusts := range roots {
				for _, apiTrusts := range roots {
					handshake(t, w, volume{a, webTrusts}, volume{b, apiTrusts}, "web", "api")
					handshake(t, w, volume{b, apiTrusts}, volume{a, webTrusts}, "api", "web")
					shaken += 2
				}
			}
		}
	}
	if shaken != 108 {
		t.Errorf("%d handshakes", shaken)
	}
	k.noTrouble(w)
}

// renew asks for a new certificate, as cmctl does, and waits until it is stored.
func renew(t *testing.T, w *rig.World, name string) {
	t.Helper()
	crt := &certmanagerv1.Certificate{}
	if err := w.Get(t.Context(), name, crt); err != nil {
		t.Fatal(err)
	}
	was := crt.DeepCopy()
	certmanagerv1.SetCertificateCondition(crt, certmanagerv1.CertificateCondition{
		Type: certmanagerv1.CertificateConditionIssuing, Status: cmmeta.ConditionTrue, Reason: "ManuallyTriggered",
	}, time.Now())
	if err := w.Client.Status().Patch(t.Context(), crt, client.MergeFrom(was)); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, name+" is renewed", func(ctx context.Context) string {
		is := &certmanagerv1.Certificate{}
		if err := w.Get(ctx, name, is); err != nil {
			return err.Error()
		}
		if is.Status.Revision == nil || *is.Status.Revision == *was.Status.Revision {
			return "not yet"
		}
		return ""
	})
}

// roots are the number of roots that the kubelet finds for a volume with a signer's ClusterTrustBundles.
func (k *node) roots(signerName string, number int) (roots []*x509.Certificate) {
	k.t.Helper()
	rig.Eventually(k.t, fmt.Sprintf("there are %d roots for a volume", number), func(ctx context.Context) string {
		text, err := k.bundles.GetTrustAnchorsBySigner(ctx, signerName, &metav1.LabelSelector{}, false)
		if err != nil {
			return err.Error()
		}
		if roots, err = pki.DecodeBundle(text); err != nil || len(roots) != number {
			return fmt.Sprint(len(roots), err)
		}
		return ""
	})
	return roots
}

// refreshed is what the kubelet writes after the time of the refresh: a certificate that one root has signed.
func (k *node) refreshed(pod *corev1.Pod, before tls.Certificate, root *x509.Certificate) tls.Certificate {
	k.t.Helper()
	k.clock.Step(21 * time.Hour) // a certificate is refreshed after 19.2 hours at the latest, and up to 5 minutes later
	for {
		// The clock is ahead: each certificate is due as soon as it is there, and one may still be of the root before.
		k.TrackPod(k.t.Context(), pod)
		if before = k.files(pod, before); bytes.Equal(before.Leaf.AuthorityKeyId, root.SubjectKeyId) {
			return before
		}
	}
}

// noTrouble fails the test if the kubelet, or an event about a Pod, tells of trouble.
func (k *node) noTrouble(w *rig.World) {
	k.t.Helper()
	for len(k.events.Events) > 0 {
		if said := <-k.events.Events; strings.Contains(said, "Denied") || strings.Contains(said, "Failed") {
			k.t.Errorf("the kubelet says: %s", said)
		}
	}
	events := &corev1.EventList{}
	if err := w.Client.List(k.t.Context(), events, client.InNamespace(w.Namespace)); err != nil {
		k.t.Fatal(err)
	}
	for _, e := range events.Items {
		if e.InvolvedObject.Kind == "Pod" && e.Type == corev1.EventTypeWarning && e.Reason != "IssuerMissing" && e.Reason != "IssuerNotReady" {
			k.t.Errorf("a Pod has trouble: %s %s", e.Reason, e.Message)
		}
	}
}
