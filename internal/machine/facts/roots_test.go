package facts

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/pki"
)

// rootSecret is the Secret of a root called "root" that ends some hours after now, and has further certificates in
// ca.crt.
func rootSecret(t *testing.T, now time.Time, hours int, further ...*x509.Certificate) (*corev1.Secret, *x509.Certificate) {
	t.Helper()
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	usages, err := pki.ParseUsages[string](nil, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	request, err := pki.CreateCSR(pki.CSRTemplate{Subject: pkix.Name{CommonName: "root"}, IsCA: true, EncodeUsages: true}, key)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := pki.DecodeCSR(request)
	if err != nil {
		t.Fatal(err)
	}
	template, err := pki.NewTemplate(csr, pki.Issuance{NotBefore: now.Add(-time.Hour), Duration: time.Duration(hours+1) * time.Hour, IsCA: true, Usages: usages})
	if err != nil {
		t.Fatal(err)
	}
	root, err := pki.Sign(template, template, key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := pki.EncodePKCS8(key)
	if err != nil {
		t.Fatal(err)
	}
	chain := pki.EncodeCertificates(root)
	return &corev1.Secret{Data: map[string][]byte{
		cmmeta.TLSCertKey: chain, cmmeta.TLSPrivateKeyKey: text, cmmeta.TLSCAKey: append(slices.Clone(chain), pki.EncodeCertificates(further...)...),
	}}, root
}

// TestSucceedCA: ca.crt of a CA after its root was replaced, whatever the Secret held before. The older root is kept
// in any case, and there is a link where the old key can sign one.
func TestSucceedCA(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	_, oldest := rootSecret(t, now, 10)
	_, gone := rootSecret(t, now, 0)
	old, oldRoot := rootSecret(t, now, 20, oldest, gone)
	next, newRoot := rootSecret(t, now, 30)
	chain, ca := next.Data[cmmeta.TLSCertKey], next.Data[cmmeta.TLSCAKey]
	with := func(key string, text []byte) *corev1.Secret {
		s := old.DeepCopy()
		s.Data[key] = text
		return s
	}
	expired, _ := rootSecret(t, now, 0, oldest)
	roots := []*x509.Certificate{newRoot, oldRoot, oldest}
	for name, c := range map[string]struct {
		chain   []byte
		earlier *corev1.Secret
		roots   []*x509.Certificate
		link    bool
	}{
		"a rotation":                   {chain, old, roots, true},
		"the old key is gone":          {chain, with(cmmeta.TLSPrivateKeyKey, nil), roots, false},
		"another key is there":         {chain, with(cmmeta.TLSPrivateKeyKey, next.Data[cmmeta.TLSPrivateKeyKey]), roots, false},
		"the old root has expired":     {chain, expired, []*x509.Certificate{newRoot, oldest}, false},
		"the same key":                 {chain, next, []*x509.Certificate{newRoot}, false},
		"an empty Secret":              {chain, &corev1.Secret{}, []*x509.Certificate{newRoot}, false},
		"ca.crt cannot be read":        {chain, with(cmmeta.TLSCAKey, []byte("x")), roots[:2], true},
		"an intermediate comes back":   {pki.EncodeCertificates(oldest, newRoot), old, roots, false},
		"the new chain cannot be read": {[]byte("x"), old, roots, false},
	} {
		got, unlinked := SucceedCA(c.chain, ca, c.earlier, now)
		certs, err := pki.DecodeBundle(got)
		if err != nil {
			t.Fatal(name, err)
		}
		others, links := pki.SplitLinks(certs)
		if !slices.EqualFunc(others, c.roots, (*x509.Certificate).Equal) || (len(links) == 1) != c.link || len(links) > 1 {
			t.Errorf("%s: %d roots, want %d, and %d links", name, len(others), len(c.roots), len(links))
		}
		if (unlinked == nil) != (c.link || strings.Contains(name, "the same key") || strings.Contains(name, "empty")) {
			t.Errorf("%s: the reason is %v", name, unlinked)
		}
		if len(certs) == 1 && !bytes.Equal(got, ca) {
			t.Errorf("%s: ca.crt is not what the issuer gave", name)
		}
	}
	if got, _ := SucceedCA(chain, []byte("not PEM"), old, now); string(got) != "not PEM" {
		t.Errorf("what the issuer gave has become %q", got)
	}
}

// TestLinksAreNotTheLeafsAuthorities: a link that ends, behind the leaf in tls.crt, breaks no chain to the leaf's own
// root: it is told apart.
func TestLinksAreNotTheLeafsAuthorities(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	old, oldRoot := rootSecret(t, now, 20)
	next, newRoot := rootSecret(t, now, 30)
	text, _ := SucceedCA(next.Data[cmmeta.TLSCertKey], next.Data[cmmeta.TLSCAKey], old, now)
	ca, err := pki.DecodeBundle(text)
	if err != nil {
		t.Fatal(err)
	}
	_, links := pki.SplitLinks(ca)
	key, err := pki.DecodePrivateKey(next.Data[cmmeta.TLSPrivateKeyKey])
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := pki.Sign(&x509.Certificate{Subject: pkix.Name{CommonName: "leaf"}, PublicKey: key.Public(), NotBefore: now, NotAfter: now.Add(time.Hour)}, newRoot, key)
	if err != nil {
		t.Fatal(err)
	}
	f := OfSecret(&corev1.Secret{Data: map[string][]byte{
		cmmeta.TLSCertKey: append(pki.EncodeCertificates(leaf), pki.EncodeCertificates(links...)...), cmmeta.TLSCAKey: pki.EncodeCertificates(newRoot, oldRoot),
	}})
	if !f.AuthoritiesEnd.Equal(newRoot.NotAfter) || !f.CrossEnd.Equal(oldRoot.NotAfter) || f.Roots != 2 {
		t.Errorf("authorities until %s, links until %s, %d roots", f.AuthoritiesEnd, f.CrossEnd, f.Roots)
	}
}
