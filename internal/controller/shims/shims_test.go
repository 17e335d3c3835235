package shims_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig"
)

// world is a world with an Issuer "self".
func world(t *testing.T, w *rig.World) *rig.World {
	t.Helper()
	w.Create(t, &certmanagerv1.Issuer{
		ObjectMeta: metav1.ObjectMeta{Name: "self"}, Spec: certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}},
	})
	return w
}

// asking are annotations that ask for certificates with small keys.
func asking(more ...string) map[string]string {
	out := map[string]string{"cert-manager.io/issuer": "self", "cert-manager.io/private-key-algorithm": "ECDSA"}
	for _, m := range more {
		key, value, _ := strings.Cut(m, "=")
		out[key] = value
	}
	return out
}

// newIngress returns an Ingress with an entry of spec.tls for each "secret host host".
func newIngress(name string, annotations map[string]string, entries ...string) *networkingv1.Ingress {
	in := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations, Labels: map[string]string{"app": name}}}
	in.Spec.DefaultBackend = &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
		Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80},
	}}
	setTLS(in, entries...)
	return in
}

func setTLS(in *networkingv1.Ingress, entries ...string) {
	in.Spec.TLS = nil
	for _, e := range entries {
		words := strings.Fields(e)
		in.Spec.TLS = append(in.Spec.TLS, networkingv1.IngressTLS{SecretName: words[0], Hosts: words[1:]})
	}
}

// change changes an object of the world.
func change[T client.Object](t *testing.T, w *rig.World, o T, do func(T)) {
	t.Helper()
	if err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatal(err)
	}
	before := o.DeepCopyObject().(client.Object)
	do(o)
	if err := w.Client.Patch(t.Context(), o, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// awaitCertificate waits until there is a Certificate that is as wanted, and ready.
func awaitCertificate(t *testing.T, w *rig.World, name, what string, wanted func(*certmanagerv1.Certificate) bool) *certmanagerv1.Certificate {
	t.Helper()
	crt := &certmanagerv1.Certificate{}
	rig.Eventually(t, "Certificate "+name+" "+what, func(ctx context.Context) string {
		if err := w.Get(ctx, name, crt); err != nil {
			return err.Error()
		}
		ready := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionReady)
		if !wanted(crt) || ready == nil || ready.Status != cmmeta.ConditionTrue || ready.ObservedGeneration != crt.Generation {
			return fmt.Sprintf("%+v", crt)
		}
		return ""
	})
	return crt
}

// isFor says which hosts a Certificate is to be for.
func isFor(hosts ...string) func(*certmanagerv1.Certificate) bool {
	return func(c *certmanagerv1.Certificate) bool { return slices.Equal(c.Spec.DNSNames, hosts) }
}

// awaitEvent waits for an event about an object that has the words.
func awaitEvent(t *testing.T, w *rig.World, about, reason, words string) {
	t.Helper()
	rig.Eventually(t, about+" has an event "+reason+" "+words, func(ctx context.Context) string {
		list, said := &corev1.EventList{}, ""
		if err := w.Client.List(ctx, list, client.InNamespace(w.Namespace)); err != nil {
			return err.Error()
		}
		for _, e := range list.Items {
			if e.InvolvedObject.Name == about && e.Reason == reason && strings.Contains(e.Message, words) {
				return ""
			}
			said += e.InvolvedObject.Name + ": " + e.Reason + ": " + e.Message + "\n"
		}
		return said
	})
}

func awaitGone(t *testing.T, w *rig.World, name string) {
	t.Helper()
	rig.Eventually(t, "Certificate "+name+" is gone", func(ctx context.Context) string {
		err := w.Get(ctx, name, &certmanagerv1.Certificate{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprint("it is there, ", err)
	})
}

// TestIngress goes through the life of an Ingress: its Certificates follow it, and what is not its own stays.
func TestIngress(t *testing.T) {
	t.Parallel()
	w := world(t, rig.NewWorld(t))
	cfg := w.Config()
	cfg.Shims.Settings.ExtraAnnotations = []string{"example.com/team"}
	w.Run(t, cfg)
	in := newIngress("web", asking("example.com/team=red", "cert-manager.io/uri-sans=urn:a:b"), "web a.example.com b.example.com 192.0.2.1", "more c.example.com")
	w.Create(t, in, &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: "mine", Labels: map[string]string{"app": "web"}}, Spec: certmanagerv1.CertificateSpec{
		SecretName: "mine", DNSNames: []string{"mine.example.com"}, IssuerRef: cmmeta.IssuerReference{Name: "self"},
	}})
	crt := awaitCertificate(t, w, "web", "is made", isFor("a.example.com", "b.example.com"))
	ref := cmmeta.IssuerReference{Name: "self", Kind: "Issuer", Group: "cert-manager.io"}
	if !metav1.IsControlledBy(crt, in) || crt.Labels["app"] != "web" || crt.Annotations["example.com/team"] != "red" || crt.Spec.IssuerRef != ref ||
		!slices.Equal(crt.Spec.IPAddresses, []string{"192.0.2.1"}) || !slices.Equal(crt.Spec.URIs, []string{"urn:a:b"}) || len(crt.Spec.Usages) != 2 {
		t.Errorf("%+v", crt)
	}
	more := awaitCertificate(t, w, "more", "is made", isFor("c.example.com"))
	awaitEvent(t, w, "web", "CreateCertificate", `Successfully created Certificate "web"`)

	change(t, w, in, func(in *networkingv1.Ingress) { setTLS(in, "web a.example.com new.example.com") })
	awaitCertificate(t, w, "web", "follows", isFor("a.example.com", "new.example.com"))
	awaitGone(t, w, "more")
	awaitEvent(t, w, "web", "UpdateCertificate", `Successfully updated Certificate "web"`)
	awaitEvent(t, w, "web", "DeleteCertificate", `Successfully deleted unrequired Certificate "more"`)
	w.Create(t, restored(more))
	awaitGone(t, w, "more")

	change(t, w, crt, func(c *certmanagerv1.Certificate) { c.Spec.DNSNames = []string{"somebody.example.com"} })
	awaitCertificate(t, w, "web", "is put right", isFor("a.example.com", "new.example.com"))
	if err := w.Client.Delete(t.Context(), crt); err != nil {
		t.Fatal(err)
	}
	again := awaitCertificate(t, w, "web", "is made again", func(c *certmanagerv1.Certificate) bool { return c.UID != crt.UID })

	change(t, w, in, func(in *networkingv1.Ingress) {
		in.Annotations = nil
		setTLS(in, "web only.example.com", "mine mine.example.com")
	})
	change(t, w, in, func(in *networkingv1.Ingress) { setTLS(in, "mine mine.example.com") })
	awaitGone(t, w, "web")
	if err := w.Get(t.Context(), "mine", again); err != nil || len(again.OwnerReferences) > 0 {
		t.Errorf("a person's Certificate: %v, %+v", err, again.OwnerReferences)
	}
}

// restored is what a backup brings back of a Certificate: with its owner, and new for the API server.
func restored(c *certmanagerv1.Certificate) *certmanagerv1.Certificate {
	return &certmanagerv1.Certificate{
		ObjectMeta: metav1.ObjectMeta{Name: c.Name, OwnerReferences: c.OwnerReferences}, Spec: c.Spec,
	}
}

// TestTwoForOneSecret: the Ingress that does not have the Certificate is told, and gets it once it is free.
func TestTwoForOneSecret(t *testing.T) {
	t.Parallel()
	w := world(t, rig.NewWorld(t))
	w.Run(t, w.Config())
	first, second := newIngress("first", asking(), "shared a.example.com"), newIngress("second", asking(), "shared b.example.com")
	w.Create(t, first)
	awaitCertificate(t, w, "shared", "is made", isFor("a.example.com"))
	w.Create(t, second)
	awaitEvent(t, w, "second", "BadConfig", `Certificate "shared" belongs to Ingress "first", and is not for b.example.com`)
	change(t, w, first, func(in *networkingv1.Ingress) { setTLS(in, "own a.example.com") })
	crt := awaitCertificate(t, w, "shared", "is the other's", isFor("b.example.com"))
	if !metav1.IsControlledBy(crt, second) {
		t.Errorf("%+v", crt.OwnerReferences)
	}
}

// TestBadInput: what is wrong is said in events, and changes nothing that is there; once it is mended, work goes on.
func TestBadInput(t *testing.T) {
	t.Parallel()
	w := world(t, rig.NewWorld(t))
	w.Run(t, w.Config())
	in := newIngress("web", asking(), "web a.example.com", "more b.example.com")
	w.Create(t, in)
	awaitCertificate(t, w, "web", "is made", isFor("a.example.com"))
	awaitCertificate(t, w, "more", "is made", isFor("b.example.com"))
	change(t, w, in, func(in *networkingv1.Ingress) {
		in.Annotations["cert-manager.io/cluster-issuer"] = "both"
		in.Annotations["cert-manager.io/duration"] = "90d"
		setTLS(in, "web c.example.com")
	})
	awaitEvent(t, w, "web", "BadConfig", "Could not determine issuer for ingress due to bad annotations: both")
	awaitEvent(t, w, "web", "BadConfig", `invalid ingress annotation cert-manager.io/duration: "90d"`)
	for name, host := range map[string]string{"web": "a.example.com", "more": "b.example.com"} {
		crt := &certmanagerv1.Certificate{}
		if err := w.Get(t.Context(), name, crt); err != nil || !isFor(host)(crt) {
			t.Errorf("%s: %v, %+v", name, err, crt.Spec)
		}
	}
	change(t, w, in, func(in *networkingv1.Ingress) {
		in.Annotations = asking("cert-manager.io/duration=1h", "cert-manager.io/renew-before-percentage=5") // less than 5 minutes
	})
	awaitEvent(t, w, "web", "BadConfig", "renewBeforePercentage: comes to less than 5m of the duration")
	change(t, w, in, func(in *networkingv1.Ingress) { in.Annotations = asking() })
	awaitCertificate(t, w, "web", "follows", isFor("c.example.com"))
	awaitGone(t, w, "more")
}

// TestDefaultIssuer: an Ingress with an annotation that is true gets a certificate by the default issuer, if there is
// one.
func TestDefaultIssuer(t *testing.T) {
	t.Parallel()
	w := world(t, rig.NewWorld(t))
	stop := w.Run(t, w.Config())
	w.Create(t, newIngress("web", map[string]string{"kubernetes.io/tls-acme": "true", "cert-manager.io/private-key-algorithm": "ECDSA"}, "web a.example.com"))
	awaitEvent(t, w, "web", "BadConfig", "--default-issuer-name")
	stop()
	cfg := w.Config()
	cfg.Shims.Settings.DefaultIssuer.Name = "self"
	w.Run(t, cfg)
	awaitCertificate(t, w, "web", "is made", isFor("a.example.com"))
}

// TestHugeIngresses: Ingresses with as many entries as the API server takes get one event each, and no certificate;
// what one of them had stays. Others of the namespace have theirs.
func TestHugeIngresses(t *testing.T) {
	t.Parallel()
	w := world(t, rig.NewWorld(t))
	grown := newIngress("grown", asking(), "kept a.example.com")
	w.Create(t, grown)
	stop := w.Run(t, w.Config())
	kept := awaitCertificate(t, w, "kept", "is made", isFor("a.example.com"))
	stop()
	const huge = 50_000
	entries := make([]networkingv1.IngressTLS, huge)
	for i := range entries {
		entries[i] = networkingv1.IngressTLS{SecretName: fmt.Sprintf("s%d", i), Hosts: []string{"a.b"}}
	}
	change(t, w, grown, func(in *networkingv1.Ingress) { in.Spec.TLS = entries })
	silent := newIngress("silent", nil)
	silent.Spec.TLS = entries
	asks := newIngress("asks", asking())
	asks.Spec.TLS = entries
	w.Create(t, silent, asks)

	w.Run(t, w.Config())
	w.Create(t, newIngress("small", asking(), "small b.example.com"))
	awaitCertificate(t, w, "small", "is made", isFor("b.example.com"))
	for _, name := range []string{"grown", "asks"} {
		awaitEvent(t, w, name, "TooLarge", "spec.tls has more than 1000 entries")
		change(t, w, map[string]*networkingv1.Ingress{"grown": grown, "asks": asks}[name], func(in *networkingv1.Ingress) { in.Labels["again"] = "yes" })
	}
	w.Create(t, newIngress("later", asking(), "later c.example.com"))
	awaitCertificate(t, w, "later", "is made", isFor("c.example.com"))
	list := &certmanagerv1.CertificateList{}
	if err := w.Client.List(t.Context(), list, client.InNamespace(w.Namespace)); err != nil || len(list.Items) != 3 {
		t.Errorf("%d Certificates: %v", len(list.Items), err)
	}
	if i := slices.IndexFunc(list.Items, func(c certmanagerv1.Certificate) bool { return c.UID == kept.UID }); i < 0 || list.Items[i].DeletionTimestamp != nil {
		t.Error("the certificate that the Ingress had is gone")
	}
	events := &corev1.EventList{}
	if err := w.Client.List(t.Context(), events, client.InNamespace(w.Namespace)); err != nil {
		t.Fatal(err)
	}
	said := map[string]int32{}
	for _, e := range events.Items {
		if e.Reason == "TooLarge" {
			said[e.InvolvedObject.Name] += max(e.Count, 1)
		}
	}
	if len(said) != 2 || said["grown"] != 1 || said["asks"] != 1 {
		t.Errorf("how often it was said: %v", said)
	}
}

// TestIngressesHoldUpNobody: certificates are issued while the Ingresses of the cluster, which are as many and as large
// as their owners like, are still being read; theirs are, once they have been.
func TestIngressesHoldUpNobody(t *testing.T) {
	t.Parallel()
	w := world(t, rig.NewWorld(t))
	w.Create(t, newIngress("web", asking(), "web a.example.com"), &certmanagerv1.Certificate{
		ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: certmanagerv1.CertificateSpec{
			SecretName: "mine", DNSNames: []string{"mine.example.com"}, IssuerRef: cmmeta.IssuerReference{Name: "self"},
		},
	})
	read := make(chan struct{})
	rc := rig.As(w.Admin, rig.Controller, "system:serviceaccounts", "system:serviceaccounts:cert-manager")
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper { return slowIngresses{next, read} })
	w.RunAs(t, w.Config(), rc)
	awaitCertificate(t, w, "mine", "is made", isFor("mine.example.com"))
	if err := w.Get(t.Context(), "web", &certmanagerv1.Certificate{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Certificate of an Ingress that has not been read: %v", err)
	}
	close(read)
	awaitCertificate(t, w, "web", "is made", isFor("a.example.com"))
}

// slowIngresses answers no request for Ingresses before they have been read.
type slowIngresses struct {
	next http.RoundTripper
	read <-chan struct{}
}

// RoundTrip implements http.RoundTripper.
func (s slowIngresses) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/ingresses") {
		select {
		case <-s.read:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	return s.next.RoundTrip(r)
}
