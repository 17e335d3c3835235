package certificates_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/slow"
	"chancery.dev/internal/signer"
)

// annotate sets an annotation of a ClusterIssuer, or takes it away.
func annotate(t *testing.T, w *rig.World, issuer, annotation string, on bool) {
	t.Helper()
	o := &certmanagerv1.ClusterIssuer{}
	if err := w.Client.Get(t.Context(), client.ObjectKey{Name: w.ClusterName(issuer)}, o); err != nil {
		t.Fatal(err)
	}
	amend(t, w, o, func(i *certmanagerv1.ClusterIssuer) {
		if i.Annotations == nil {
			i.Annotations = map[string]string{}
		}
		if delete(i.Annotations, annotation); on {
			i.Annotations[annotation] = "true"
		}
	})
}

// renew asks for a new certificate, and waits for it.
func renew(t *testing.T, w *rig.World, name string) {
	t.Helper()
	awaitRevision(t, w, name, askToRenew(t, w, name)+1)
}

// askToRenew asks for a new certificate as cmctl renew does, and returns the revision of the present one.
func askToRenew(t *testing.T, w *rig.World, name string) int {
	t.Helper()
	crt := &certmanagerv1.Certificate{}
	if err := w.Get(t.Context(), name, crt); err != nil {
		t.Fatal(err)
	}
	changed := crt.DeepCopy()
	certmanagerv1.SetCertificateCondition(changed, certmanagerv1.CertificateCondition{
		Type: certmanagerv1.CertificateConditionIssuing, Status: cmmeta.ConditionTrue, Reason: certmanagerv1.CertificateReasonManuallyTriggered,
	}, time.Now())
	if err := w.Client.Status().Patch(t.Context(), changed, client.MergeFrom(crt)); err != nil {
		t.Fatal(err)
	}
	return *crt.Status.Revision
}

func awaitRevision(t *testing.T, w *rig.World, name string, revision int) {
	t.Helper()
	crt := &certmanagerv1.Certificate{}
	rig.Eventually(t, fmt.Sprintf("Certificate %s has revision %d", name, revision), func(ctx context.Context) string {
		if err := w.Get(ctx, name, crt); err != nil {
			return err.Error()
		}
		return wants(*crt.Status.Revision >= revision, crt.Status)
	})
	awaitReady(t, w, name)
}

// certificates is how many certificates are in PEM.
func certificates(text []byte) int { return bytes.Count(text, []byte("BEGIN CERTIFICATE")) }

// awaitSigner waits until an issuer signs with what a Secret holds.
func awaitSigner(t *testing.T, w *rig.World, issuer, secret string) {
	t.Helper()
	ca, err := pki.DecodeCertificate(secretOf(t, w, secret).Data["tls.crt"])
	if err != nil {
		t.Fatal(err)
	}
	o := &certmanagerv1.ClusterIssuer{}
	rig.Eventually(t, "issuer "+issuer+" signs with the new key", func(ctx context.Context) string {
		if err := w.Client.Get(ctx, client.ObjectKey{Name: w.ClusterName(issuer)}, o); err != nil {
			return err.Error()
		}
		return wants(o.Status.CA != nil && o.Status.CA.Authority == signer.AuthorityID(ca), o.Status.CA)
	})
}

// awaitOlderRoots waits until the status of an issuer has as many older roots, and says of all of them whether links
// lead there.
func awaitOlderRoots(t *testing.T, w *rig.World, issuer string, want int, linked bool) {
	t.Helper()
	o := &certmanagerv1.ClusterIssuer{}
	rig.Eventually(t, fmt.Sprintf("the status of issuer %s has %d older roots", issuer, want), func(ctx context.Context) string {
		if err := w.Client.Get(ctx, client.ObjectKey{Name: w.ClusterName(issuer)}, o); err != nil || o.Status.CA == nil {
			return fmt.Sprint(err)
		}
		other := func(root certmanagerv1.OlderRoot) bool { return (root.Unlinked == "") != linked }
		return wants(len(o.Status.CA.OlderRoots) == want && !slices.ContainsFunc(o.Status.CA.OlderRoots, other), o.Status.CA)
	})
}

// withLeaves adds a leaf by the issuer "ca", an intermediate, its issuer "sub", and a leaf by that.
func withLeaves(t *testing.T, w *rig.World) {
	t.Helper()
	sub := newCertificate(w, "sub", "ca")
	sub.Spec.IsCA, sub.Spec.CommonName = true, "test intermediate"
	w.Create(t, newCertificate(w, "web", "ca"), sub, &certmanagerv1.ClusterIssuer{
		ObjectMeta: metav1.ObjectMeta{Name: w.ClusterName("sub")}, Spec: certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "sub"}},
	}, newCertificate(w, "app", "sub"))
	for _, issuer := range []string{"ca", "sub"} {
		annotate(t, w, issuer, certmanagerv1.DeliverRootsAnnotation, true)
	}
	for _, name := range []string{"root", "web", "sub", "app"} {
		awaitReady(t, w, name)
	}
}

// files are what a process has read of a Secret, once.
type files struct {
	what string
	data map[string][]byte
}

// talk lets two processes do mutual TLS. Without links, each shows its leaf and its intermediates alone.
func talk(server, client files, links bool) error {
	config := func(f files) (*tls.Config, error) {
		chain, err := pki.DecodeChain(f.data["tls.crt"])
		if err != nil {
			return nil, err
		}
		if !links {
			chain = slices.DeleteFunc(chain, func(c *x509.Certificate) bool { return c.Subject.CommonName == "test root" })
		}
		pair, err := tls.X509KeyPair(pki.EncodeCertificates(chain...), f.data["tls.key"])
		if err != nil {
			return nil, err
		}
		roots := pki.TrustPool(f.data["ca.crt"])
		return &tls.Config{
			Certificates: []tls.Certificate{pair}, RootCAs: roots, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert,
			ServerName: chain[0].DNSNames[0], MinVersion: tls.VersionTLS12,
		}, nil
	}
	of, err := config(server)
	if err != nil {
		return err
	}
	to, err := config(client)
	if err != nil {
		return err
	}
	to.ServerName = of.ServerName
	a, b := net.Pipe()
	accepted := make(chan error, 1)
	go func() {
		conn := tls.Server(a, of)
		err := conn.Handshake()
		if err == nil {
			_, err = conn.Write([]byte{1})
		}
		accepted <- err
		_ = a.Close()
	}()
	conn := tls.Client(b, to)
	if err = conn.Handshake(); err == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	_ = b.Close()
	if refused := <-accepted; refused != nil {
		return refused
	}
	return err
}

// TestNoHandshakeFailsWhileACAIsReplaced: the root gets a new key twice, and once more because a backup has brought an
// old Secret back. Whatever two processes have read, and whenever, they accept each other. Without links they do not.
func TestNoHandshakeFailsWhileACAIsReplaced(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	w.Run(t, w.Config())
	withCA(t, w)
	withLeaves(t, w)
	var all []files
	n := 0
	// read reads what two processes read now that keep their Secrets, and that of a leaf which was issued just now.
	read := func(when, issuer string) {
		n++
		fresh := fmt.Sprint("leaf-", n)
		w.Create(t, newCertificate(w, fresh, issuer))
		awaitReady(t, w, fresh)
		for _, name := range []string{"web", "app", fresh} {
			all = append(all, files{name + " " + when, secretOf(t, w, name).Data})
		}
	}
	read("at the start", "ca")
	backup := secretOf(t, w, "root").Data
	replace := func(when string, turn func()) {
		before := secretOf(t, w, "root").Data["tls.key"]
		turn()
		if bytes.Equal(before, secretOf(t, w, "root").Data["tls.key"]) {
			t.Fatal("the root has the key that it had")
		}
		awaitSigner(t, w, "ca", "root")
		read(when+", by the new root", "ca")
		renew(t, w, "web")
		read(when+", by the old intermediate", "sub")
		renew(t, w, "sub")
		awaitSigner(t, w, "sub", "sub")
		renew(t, w, "app")
		read(when+", by the new intermediate", "sub")
	}
	replace("after a rotation", func() { renew(t, w, "root") })
	replace("after two", func() { renew(t, w, "root") })
	replace("after an old Secret came back", func() {
		secret := secretOf(t, w, "root")
		secret.Data = backup
		if err := w.Client.Update(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		awaitRevision(t, w, "root", 4)
	})
	refused := 0
	for _, server := range all {
		for _, client := range all {
			if err := talk(server, client, true); err != nil {
				t.Errorf("%s and %s: %v", server.what, client.what, err)
			}
			if talk(server, client, false) != nil {
				refused++
			}
		}
	}
	t.Logf("%d handshakes; without links, %d of them fail", len(all)*len(all), refused)
	if refused == 0 {
		t.Error("no handshake fails without links: the test shows nothing")
	}
}

// TestARotationCostsNoMore: a CA that hands on roots is replaced by as many requests as one that does not.
func TestARotationCostsNoMore(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	stop := w.Run(t, w.Config())
	withCA(t, w)
	awaitReady(t, w, "root")
	awaitSigner(t, w, "ca", "root")
	stop()
	var mu sync.Mutex
	var asked []string
	rc := rig.As(w.Admin, rig.Controller, "system:serviceaccounts", "system:serviceaccounts:cert-manager")
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			// Leases and watches are renewed at their times, and an event is sent a moment after what it tells of.
			elsewhere := !strings.Contains(r.URL.Path, "/namespaces/"+w.Namespace+"/") || r.URL.Query().Get("watch") != ""
			if !elsewhere && !strings.Contains(r.URL.Path, "/leases") && !strings.Contains(r.URL.Path, "/events") {
				mu.Lock()
				asked = append(asked, r.Method+" "+r.URL.Path)
				mu.Unlock()
			}
			return next.RoundTrip(r)
		})
	})
	w.RunAs(t, w.Config(), rc)
	rotate := func() []string {
		mu.Lock()
		asked = nil
		mu.Unlock()
		renew(t, w, "root")
		noKeysLeft(t, w)
		awaitSigner(t, w, "ca", "root")
		rig.Eventually(t, "the request before is deleted, which comes last", func(ctx context.Context) string {
			requests := &certmanagerv1.CertificateRequestList{}
			err := w.Client.List(ctx, requests, client.InNamespace(w.Namespace))
			return wants(err == nil && len(requests.Items) == 1, len(requests.Items))
		})
		mu.Lock()
		defer mu.Unlock()
		// The new Secret is read if the watch tells of it before the write is answered, older roots or not.
		stored := slices.Index(asked, "PATCH /api/v1/namespaces/"+w.Namespace+"/secrets/root")
		return slices.Concat(asked[:stored+1], slices.DeleteFunc(slices.Clone(asked[stored+1:]), func(s string) bool { return strings.HasPrefix(s, "GET ") }))
	}
	rotate() // what is read once has been read then
	plain := rotate()
	annotate(t, w, "ca", certmanagerv1.DeliverRootsAnnotation, true)
	if linked := rotate(); len(linked) != len(plain) {
		t.Errorf("with roots handed on\n%s\nwithout\n%s", strings.Join(linked, "\n"), strings.Join(plain, "\n"))
	}
	if certs, err := pki.DecodeBundle(secretOf(t, w, "root").Data["ca.crt"]); err != nil || len(certs) != 3 {
		t.Errorf("ca.crt has %d certificates, want the new root, the old one and a link: %v", len(certs), err)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestStolenKeyIsForgotten: by reissue-now, the older roots and the links go out of the Secret of the CA and out of
// what was issued, and do not come back when the annotation has gone.
func TestStolenKeyIsForgotten(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	w.Run(t, w.Config())
	withCA(t, w)
	withLeaves(t, w)
	renew(t, w, "root")
	awaitSigner(t, w, "ca", "root")
	for _, name := range []string{"web", "sub"} {
		renew(t, w, name)
	}
	awaitSigner(t, w, "sub", "sub")
	renew(t, w, "app")
	roots := func(secret *corev1.Secret) int { return certificates(secret.Data["ca.crt"]) }
	for name, want := range map[string]int{"root": 3, "web": 2, "sub": 3, "app": 2} {
		if n := roots(secretOf(t, w, name)); n != want {
			t.Fatalf("ca.crt of %s has %d certificates, want %d", name, n, want)
		}
	}
	awaitOlderRoots(t, w, "ca", 1, true)
	awaitOlderRoots(t, w, "sub", 1, true)
	annotate(t, w, "ca", certmanagerv1.ReissueNowAnnotation, true)
	annotate(t, w, "sub", certmanagerv1.ReissueNowAnnotation, true)
	for _, name := range []string{"root", "web", "sub", "app"} {
		eventuallySecret(t, w, name, "it has no older roots", func(s *corev1.Secret) string { return wants(roots(s) == 1, roots(s)) })
	}
	for _, issuer := range []string{"ca", "sub"} {
		awaitOlderRoots(t, w, issuer, 0, true)
		annotate(t, w, issuer, certmanagerv1.ReissueNowAnnotation, false)
	}
	for _, name := range []string{"web", "app"} {
		renew(t, w, name)
		secret := secretOf(t, w, name)
		if chain, err := pki.DecodeChain(secret.Data["tls.crt"]); err != nil || roots(secret) != 1 || slices.ContainsFunc(chain, func(c *x509.Certificate) bool { return c.Subject.CommonName == "test root" }) {
			t.Errorf("%s has %d roots and %d certificates: %v", name, roots(secret), len(chain), err)
		}
	}
	if n := *awaitReady(t, w, "root").Status.Revision; n != 2 {
		t.Errorf("the root has revision %d: it was issued again", n)
	}
}

// TestASecretOfNobodyStays: a CA that no Certificate owns is handed on, and never written.
func TestASecretOfNobodyStays(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	w.Run(t, w.Config())
	withCA(t, w)
	withLeaves(t, w)
	renew(t, w, "root")
	owned := secretOf(t, w, "root")
	byHand := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}, Data: map[string][]byte{
		"tls.crt": owned.Data["tls.crt"], "tls.key": owned.Data["tls.key"], "ca.crt": owned.Data["ca.crt"],
	}}
	w.Create(t, byHand, &certmanagerv1.ClusterIssuer{
		ObjectMeta: metav1.ObjectMeta{Name: w.ClusterName("hand"), Annotations: map[string]string{certmanagerv1.DeliverRootsAnnotation: "true"}},
		Spec:       certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "by-hand"}},
	}, newCertificate(w, "leaf", "hand"))
	awaitReady(t, w, "leaf")
	leaf := secretOf(t, w, "leaf").Data
	if chain, roots := certificates(leaf["tls.crt"]), certificates(leaf["ca.crt"]); chain != 2 || roots != 2 {
		t.Errorf("%d certificates and %d roots, want a leaf with its link, and two roots", chain, roots)
	}
	version := secretOf(t, w, "by-hand").ResourceVersion
	annotate(t, w, "hand", certmanagerv1.ReissueNowAnnotation, true)
	leaf = eventuallySecret(t, w, "leaf", "it has one root", func(s *corev1.Secret) string {
		return wants(certificates(s.Data["ca.crt"]) == 1, certificates(s.Data["ca.crt"]))
	}).Data
	if chain := certificates(leaf["tls.crt"]); chain != 1 || secretOf(t, w, "by-hand").ResourceVersion != version {
		t.Errorf("%d certificates, and the Secret of the CA was written", chain)
	}
}

// TestCrashAtEveryWriteOfARotation cuts the connection at each write of a rotation, right before the write or right
// after it: whoever starts after that finds a whole CA, and old and new leaves accept each other.
func TestCrashAtEveryWriteOfARotation(t *testing.T) {
	t.Parallel()
	const most = 7 // key, status, request, its status, Secret, status, and the deletion of the key
	for at := 1; at <= most; at++ {
		for _, before := range []bool{true, false} {
			if !slow.Runs(slow.Crash) && (at != 5 && before != (at%2 == 0)) {
				continue // in turn, but the write of the Secret both ways
			}
			t.Run(fmt.Sprintf("write %d, before %t", at, before), func(t *testing.T) {
				t.Parallel()
				w := rig.NewWorld(t)
				stop := w.Run(t, w.Config())
				withCA(t, w)
				w.Create(t, newCertificate(w, "old", "ca"))
				awaitReady(t, w, "old")
				annotate(t, w, "ca", certmanagerv1.DeliverRootsAnnotation, true)
				noKeysLeft(t, w)
				stop()
				askToRenew(t, w, "root")
				l := &ledger{cutAt: at, before: before}
				stop = l.run(t, w)
				rig.Eventually(t, "the connection is cut", func(context.Context) string { return wants(l.isCut(), l.count("")) })
				stop()
				w.Run(t, w.Config())
				awaitRevision(t, w, "root", 2)
				awaitSigner(t, w, "ca", "root")
				w.Create(t, newCertificate(w, "new", "ca"))
				awaitReady(t, w, "new")
				old, fresh := files{"old", secretOf(t, w, "old").Data}, files{"new", secretOf(t, w, "new").Data}
				for _, pair := range [][2]files{{old, fresh}, {fresh, old}} {
					if err := talk(pair[0], pair[1], true); err != nil {
						t.Errorf("%s and %s: %v", pair[0].what, pair[1].what, err)
					}
				}
				if talk(old, fresh, false) == nil {
					t.Error("they accept each other without links, too: the root was not replaced")
				}
			})
		}
	}
}

// TestARootThatIsNotVouchedFor: the old key is gone. The root is replaced all the same, the old root stays in ca.crt,
// and an event says what clients need.
func TestARootThatIsNotVouchedFor(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	w.Run(t, w.Config())
	withCA(t, w)
	awaitReady(t, w, "root")
	annotate(t, w, "ca", certmanagerv1.DeliverRootsAnnotation, true)
	amend(t, w, secretOf(t, w, "root"), func(s *corev1.Secret) { s.Data["tls.key"] = []byte("lost") })
	awaitRevision(t, w, "root", 2)
	if n := certificates(secretOf(t, w, "root").Data["ca.crt"]); n != 2 {
		t.Errorf("ca.crt has %d certificates, want the new root and the old one", n)
	}
	event := func(says string) {
		t.Helper()
		rig.Eventually(t, "an event says that "+says, func(ctx context.Context) string {
			events := &corev1.EventList{}
			if err := w.Client.List(ctx, events, client.InNamespace(w.Namespace)); err != nil {
				return err.Error()
			}
			for _, e := range events.Items {
				if e.Reason == certmanagerv1.CertificateEventRootNotVouchedFor && e.Type == corev1.EventTypeWarning && strings.Contains(e.Message, says) {
					return ""
				}
			}
			return "there is none"
		})
	}
	event("old private key cannot be read")
	awaitOlderRoots(t, w, "ca", 1, false)
	if err := w.Client.Delete(t.Context(), secretOf(t, w, "root")); err != nil {
		t.Fatal(err)
	}
	awaitRevision(t, w, "root", 3)
	event("was deleted")
}
