package move

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"chancery.dev/api"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	machine "chancery.dev/internal/machine/certificate"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/machine/renewal"
	"chancery.dev/internal/pki"
)

// TestLocate: the names of contexts may have slashes, as those of kubeconfigs have.
func TestLocate(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ value, file, context string }{
		{file, file, ""},
		{file + "/prod", file, "prod"},
		{file + "/arn:aws:eks:eu-central-1:1:cluster/prod", file, "arn:aws:eks:eu-central-1:1:cluster/prod"},
		{"prod", "", "prod"},
		{"arn:aws:eks:eu-central-1:1:cluster/prod", "", "arn:aws:eks:eu-central-1:1:cluster/prod"},
	} {
		flags := locate(c.value)
		if *flags.KubeConfig != c.file || *flags.Context != c.context {
			t.Errorf("%s: kubeconfig %q, context %q, want %q, %q", c.value, *flags.KubeConfig, *flags.Context, c.file, c.context)
		}
	}
}

// TestStatusFor: what a condition says of the generation of the original, it says of that of the copy.
func TestStatusFor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ seen, original, copied, want int64 }{{3, 3, 1, 1}, {2, 3, 1, 0}, {2, 3, 5, 4}, {4, 4, 5, 5}} {
		o := &object{Object: map[string]any{"status": map[string]any{"conditions": []any{map[string]any{"observedGeneration": c.seen}, map[string]any{}}}}}
		o.SetGeneration(c.original)
		got := fmt.Sprint(statusFor(o, c.copied)["conditions"])
		want := fmt.Sprintf("[map[observedGeneration:%d] map[]]", c.want)
		if c.want == 0 {
			want = "[map[] map[]]"
		}
		if got != want {
			t.Errorf("%+v: %s, want %s", c, got, want)
		}
	}
}

// pair are two sides without an API server, of which the one has a Certificate that is in order, and the other its
// copy.
type pair struct {
	m      *mover
	crt    *certmanagerv1.Certificate
	source *snapshot
}

// newPair makes the copy with another UID and, if change is not nil, with another status. The certificate has used up
// so much of its lifetime of 30 days.
func newPair(t *testing.T, used time.Duration, uid types.UID, change func(*certmanagerv1.Certificate)) *pair {
	t.Helper()
	scheme, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().Truncate(time.Second)
	from, until := now.Add(-used), now.Add(30*24*time.Hour-used)
	crt := crtOf("web", "Issuer", "self", "web.example.com")
	crt.TypeMeta = metav1.TypeMeta{APIVersion: "cert-manager.io/v1", Kind: "Certificate"}
	crt.UID, crt.Generation = "copy13", 1 // which renews it late
	crt.Status.NotBefore, crt.Status.NotAfter = &metav1.Time{Time: from}, &metav1.Time{Time: until}
	crt.Status.RenewalTime = &metav1.Time{Time: renewal.Of(crt, from, until, time.Time{}).At}
	revision := 1
	crt.Status.Revision = &revision
	certmanagerv1.SetCertificateCondition(crt, certmanagerv1.CertificateCondition{Type: "Ready", Status: "True", Reason: "Ready"}, now)
	copied := crt.DeepCopy()
	copied.UID = uid
	if change != nil {
		change(copied)
	}
	secret := secretOf(t, crt, from)
	side := func(name string, crt *certmanagerv1.Certificate) *cluster {
		c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(crt).WithObjects(crt.DeepCopy(), secret.DeepCopy()).Build()
		return &cluster{Client: c, name: name, uid: types.UID(name)}
	}
	p := &pair{crt: crt, m: &mover{options: &options{}, from: side("a", crt), to: side("b", copied), now: func() time.Time { return now }}}
	o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crt)
	if err != nil {
		t.Fatal(err)
	}
	p.source = &snapshot{items: []*item{{object: &object{Object: o}, key: client.ObjectKeyFromObject(crt), moves: true}}}
	return p
}

// secretOf is the Secret of a Certificate, valid for 30 days.
func secretOf(t *testing.T, crt *certmanagerv1.Certificate, from time.Time) *corev1.Secret {
	t.Helper()
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	der, err := pki.CreateCSR(machine.CSRTemplateOf(&crt.Spec), key)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := pki.DecodeCSR(der)
	if err != nil {
		t.Fatal(err)
	}
	usages, err := pki.ParseUsages[string](nil, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	template, err := pki.NewTemplate(csr, pki.Issuance{NotBefore: from, Duration: 30 * 24 * time.Hour, Usages: usages})
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := pki.Sign(template, template, key)
	if err != nil {
		t.Fatal(err)
	}
	chain := pki.EncodeCertificates(leaf)
	text, err := facts.EncodeKey(crt, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := facts.Target{Certificate: crt, Chain: chain, Key: text, Issuer: crt.Spec.IssuerRef}.Secret()
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

// TestVerify: a target in which a Certificate would be issued again is not released.
func TestVerify(t *testing.T) {
	t.Parallel()
	if p := newPair(t, time.Hour, "1", nil); p.m.verify(t.Context(), p.source) != nil {
		t.Error("a good target is not released:", p.m.verify(t.Context(), p.source))
	}
	p := newPair(t, time.Hour, "1", func(c *certmanagerv1.Certificate) {
		certmanagerv1.SetCertificateCondition(c, certmanagerv1.CertificateCondition{Type: "Issuing", Status: cmmeta.ConditionTrue, Reason: "ManuallyTriggered"}, time.Now())
	})
	if err := p.m.verify(t.Context(), p.source); err == nil || !strings.Contains(err.Error(), "Certificate team/web would create") {
		t.Errorf("a target that issues again: %v", err)
	}
	p = newPair(t, time.Hour, "1", func(c *certmanagerv1.Certificate) { c.Spec.DNSNames = []string{"other.example.com"} })
	if err := p.m.verify(t.Context(), p.source); err == nil || !strings.Contains(err.Error(), "Certificate team/web is not the same") {
		t.Errorf("a target that differs: %v", err)
	}
}

// TestVerifyWithAnotherUID: when a Certificate is renewed depends on its UID by default. One that the UID of the copy
// would have renewed already is not renewed by the move.
func TestVerifyWithAnotherUID(t *testing.T) {
	t.Parallel()
	early := 0
	for n := range 20 { // some are due by their UIDs, and some are not
		uid := types.UID(fmt.Sprint("copy", n))
		p := newPair(t, 20*24*time.Hour+10*time.Minute, uid, nil)
		if renewal.Of(&certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{UID: uid}}, p.crt.Status.NotBefore.Time, p.crt.Status.NotAfter.Time, time.Time{}).At.
			Before(p.crt.Status.RenewalTime.Time) {
			early++
		}
		p.m.now = func() time.Time { return p.crt.Status.RenewalTime.Add(-time.Minute) }
		if err := p.m.verify(t.Context(), p.source); err != nil {
			t.Errorf("with UID %s: %v", uid, err)
		}
	}
	if early == 0 {
		t.Error("no UID has the copy renewed earlier: the test shows nothing")
	}
}

// TestSecretInUse: a Secret that an earlier move into the other direction has left is replaced, unless a Certificate of
// the target has taken it into use again.
func TestSecretInUse(t *testing.T) {
	t.Parallel()
	for _, paused := range []string{"", movingFrom + "a"} {
		p := newPair(t, time.Hour, "1", func(c *certmanagerv1.Certificate) {
			if paused != "" {
				pauseAs(c, paused)
			}
		})
		secret := &object{}
		secret.SetGroupVersionKind(kindOf(secretKind))
		key := client.ObjectKey{Namespace: "team", Name: "web-tls"}
		if err := p.m.to.Get(t.Context(), key, secret); err != nil {
			t.Fatal(err)
		}
		it := &item{object: secret.DeepCopy(), key: key}
		it.Object["data"] = map[string]any{"tls.crt": "bmV3"}
		pauseAs(secret, movedTo+"a")
		if err := p.m.to.Update(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		if err := p.m.checkConflict(t.Context(), it); (err != nil) != (paused == "") {
			t.Errorf("with a Certificate that is paused by %q: %v", paused, err)
		}
	}
}
