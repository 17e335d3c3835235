package ca

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/signer"
)

var now = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

const clusterNamespace = "cert-manager"

// secrets is a store of Secrets, by namespace/name; err is what it says while it is away.
type secrets struct {
	byName map[string]*corev1.Secret
	err    error
}

func (s *secrets) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	if s.err != nil {
		return nil, s.err
	}
	if secret, ok := s.byName[namespace+"/"+name]; ok {
		return secret, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
}

// put stores a Secret in a new version.
func (s *secrets) put(namespace, name string, data map[string][]byte) {
	if s.byName == nil {
		s.byName = map[string]*corev1.Secret{}
	}
	version := 1
	if old := s.byName[namespace+"/"+name]; old != nil {
		version = len(old.ResourceVersion) + 1
	}
	s.byName[namespace+"/"+name] = &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), ResourceVersion: strings.Repeat("1", version)},
		Data:       data,
	}
}

// authority is a certificate, its key in PEM, and what it was signed with.
type authority struct {
	cert *x509.Certificate
	key  []byte
}

func newAuthority(t testing.TB, cn string, isCA bool, parent *authority) *authority {
	t.Helper()
	return newAuthorityWith(t, cn, isCA, isCA, parent)
}

// newAuthorityWith says apart whether it is a CA, and whether its key may sign certificates, and sets other limits.
func newAuthorityWith(t testing.TB, cn string, isCA, certSign bool, parent *authority, limits ...func(*x509.Certificate)) *authority {
	t.Helper()
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	text, err := pki.EncodePKCS8(key)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := pki.CreateCSR(pki.CSRTemplate{Subject: pkix.Name{CommonName: cn}}, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := pki.DecodeCSR(csr)
	if err != nil {
		t.Fatal(err)
	}
	usages, err := pki.ParseUsages[string](nil, certSign, nil)
	if err != nil {
		t.Fatal(err)
	}
	template, err := pki.NewTemplate(parsed, pki.Issuance{NotBefore: now.Add(-time.Hour), Duration: 24 * time.Hour, IsCA: isCA, Usages: usages})
	if err != nil {
		t.Fatal(err)
	}
	for _, limit := range limits {
		limit(template)
	}
	by, byKey := template, key
	if parent != nil {
		by = parent.cert
		if byKey, err = pki.DecodePrivateKey(parent.key); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := pki.Sign(template, by, byKey)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert: cert, key: text}
}

// certifiedBy returns an authority's name and key with a certificate by another one.
func (a *authority) certifiedBy(t testing.TB, by *authority) *authority {
	t.Helper()
	key, err := pki.DecodePrivateKey(by.key)
	if err != nil {
		t.Fatal(err)
	}
	template := *a.cert
	cert, err := pki.Sign(&template, by.cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert: cert, key: a.key}
}

func pemOf(all ...*authority) []byte {
	var out []byte
	for _, a := range all {
		out = append(out, pki.EncodeCertificates(a.cert)...)
	}
	return out
}

func newSigner(s *secrets) *Signer {
	return New(Config{Secrets: s, Now: func() time.Time { return now }, ClusterResourceNamespace: clusterNamespace})
}

func issuerIn(namespace string) certmanagerv1.GenericIssuer {
	spec := certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{
		SecretName: "ca", CRLDistributionPoints: []string{"http://crl"}, OCSPServers: []string{"http://ocsp"}, IssuingCertificateURLs: []string{"http://ca"},
	}}
	if namespace == "" {
		return &certmanagerv1.ClusterIssuer{ObjectMeta: metav1.ObjectMeta{Name: "i", Generation: 3}, Spec: spec}
	}
	return &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "i", Namespace: namespace, Generation: 3}, Spec: spec}
}

func newRequest(t testing.TB) signer.Request {
	t.Helper()
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	csr, err := pki.CreateCSR(pki.CSRTemplate{Subject: pkix.Name{CommonName: "leaf"}, AltNames: pki.AltNames{DNSNames: []string{"a.example.com"}}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return signer.Request{
		SourceKind: "CertificateRequest", CSR: csr, Duration: time.Hour, Usages: certmanagerv1.DefaultKeyUsages(),
	}
}

func TestSignedChain(t *testing.T) {
	root := newAuthority(t, "root", true, nil)
	sub := newAuthority(t, "sub", true, root)
	for _, c := range []struct {
		name      string
		namespace string
		data      map[string][]byte
		above     []byte // what Bundle.Chain has after the leaf
		ca        []byte
	}{
		{"self-signed root", "team", map[string][]byte{"tls.crt": pemOf(root), "tls.key": root.key}, nil, pemOf(root)},
		{"root in both", "team", map[string][]byte{"tls.crt": pemOf(root), "tls.key": root.key, "ca.crt": pemOf(root)}, nil, pemOf(root)},
		{"intermediate, root in tls.crt", "team", map[string][]byte{"tls.crt": pemOf(sub, root), "tls.key": sub.key}, pemOf(sub), pemOf(root)},
		{"intermediate, root in ca.crt", "", map[string][]byte{"tls.crt": pemOf(sub), "tls.key": sub.key, "ca.crt": pemOf(root)}, pemOf(sub), pemOf(root)},
		{"intermediate, root unknown", "", map[string][]byte{"tls.crt": pemOf(sub), "tls.key": sub.key}, pemOf(sub), pemOf(sub)},
	} {
		store := &secrets{}
		namespace := c.namespace
		if namespace == "" {
			namespace = clusterNamespace
		}
		store.put(namespace, "ca", c.data)
		result, err := newSigner(store).Sign(t.Context(), issuerIn(c.namespace), newRequest(t))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		chain, err := pki.DecodeChain(result.Bundle.Chain)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		leaf := chain[0]
		if string(result.Bundle.Chain) != string(pki.EncodeCertificates(leaf))+string(c.above) || string(result.Bundle.CA) != string(c.ca) {
			t.Errorf("%s: chain of %d, CA %.60s", c.name, len(chain), result.Bundle.CA)
		}
		if result.Warning != "" {
			t.Errorf("%s: warning %q", c.name, result.Warning)
		}
		if leaf.Subject.CommonName != "leaf" || !leaf.NotBefore.Equal(now) || !leaf.NotAfter.Equal(now.Add(time.Hour)) {
			t.Errorf("%s: leaf %s from %s to %s", c.name, leaf.Subject, leaf.NotBefore, leaf.NotAfter)
		}
		if fmt.Sprint(leaf.CRLDistributionPoints, leaf.OCSPServer, leaf.IssuingCertificateURL) != "[http://crl] [http://ocsp] [http://ca]" {
			t.Errorf("%s: addresses %v %v %v", c.name, leaf.CRLDistributionPoints, leaf.OCSPServer, leaf.IssuingCertificateURL)
		}
	}
}

// TestLimitsOfTheCA: what the CA's own certificates do not allow is refused, and the request says why. It is no failure
// for good, because the CA may be replaced.
func TestLimitsOfTheCA(t *testing.T) {
	for name, c := range map[string]struct {
		limit  func(*x509.Certificate)
		change func(*signer.Request)
		says   string
	}{
		"path length":      {func(c *x509.Certificate) { c.MaxPathLen, c.MaxPathLenZero = 0, true }, func(r *signer.Request) { r.IsCA = true }, "path length"},
		"name constraints": {func(c *x509.Certificate) { c.PermittedDNSDomains = []string{"corp.example"} }, func(*signer.Request) {}, "name constraints"},
		"usages": {func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} },
			func(r *signer.Request) { r.Usages = []certmanagerv1.KeyUsage{"code signing"} }, "code signing"},
	} {
		for _, above := range []bool{false, true} { // in the certificate that signs, and in the one above
			root := newAuthorityWith(t, "root", true, true, nil, c.limit)
			data := map[string][]byte{"tls.crt": pemOf(root), "tls.key": root.key}
			if above {
				sub := newAuthority(t, "sub", true, root)
				data = map[string][]byte{"tls.crt": pemOf(sub), "tls.key": sub.key, "ca.crt": pemOf(root)}
			}
			store := &secrets{}
			store.put("team", "ca", data)
			r := newRequest(t)
			c.change(&r)
			result, err := newSigner(store).Sign(t.Context(), issuerIn("team"), r)
			f := fault.Of(err)
			if f == nil || f.Kind != fault.KindTerminal || f.Class == fault.ClassPermanent || f.Reason != "SigningError" || !strings.Contains(err.Error(), c.says) || len(result.Bundle.Chain) > 0 {
				t.Errorf("%s, above %t: %v", name, above, err)
			}
		}
	}
	mute := newAuthorityWith(t, "mute", true, false, nil)
	store := &secrets{}
	store.put("team", "ca", map[string][]byte{"tls.crt": pemOf(mute), "tls.key": mute.key})
	if _, err := newSigner(store).Sign(t.Context(), issuerIn("team"), newRequest(t)); err == nil || !strings.Contains(err.Error(), "without cert sign") {
		t.Errorf("a CA that may sign no certificates: %v", err)
	}
}

// TestValidityIsClampedOnDemand: by an annotation of the issuer no certificate ends after the CA's.
func TestValidityIsClampedOnDemand(t *testing.T) {
	root := newAuthority(t, "root", true, nil)
	store := &secrets{}
	store.put("team", "ca", map[string][]byte{"tls.crt": pemOf(root), "tls.key": root.key})
	issuer := issuerIn("team")
	issuer.SetAnnotations(map[string]string{certmanagerv1.ClampValidityAnnotation: "true"})
	r := newRequest(t)
	for duration, want := range map[time.Duration]time.Time{time.Hour: now.Add(time.Hour), 1000 * time.Hour: root.cert.NotAfter} {
		r.Duration = duration
		result, err := newSigner(store).Sign(t.Context(), issuer, r)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := pki.DecodeCertificate(result.Bundle.Chain)
		if err != nil {
			t.Fatal(err)
		}
		if clamped := result.WarningReason == "ValidityClamped"; !leaf.NotAfter.Equal(want) || clamped != want.Equal(root.cert.NotAfter) {
			t.Errorf("%s: until %s, want %s; %s: %s", duration, leaf.NotAfter, want, result.WarningReason, result.Warning)
		}
	}
	late := New(Config{Secrets: store, Now: func() time.Time { return root.cert.NotAfter }})
	if _, err := late.Sign(t.Context(), issuer, r); err == nil || !strings.Contains(err.Error(), "expired on") {
		t.Errorf("by a CA that has expired: %v", err)
	}
}

func TestOutlivingLeafIsSignedWithWarning(t *testing.T) {
	root := newAuthority(t, "root", true, nil)
	store := &secrets{}
	store.put("team", "ca", map[string][]byte{"tls.crt": pemOf(root), "tls.key": root.key})
	r := newRequest(t)
	r.Duration = 90 * 24 * time.Hour
	result, err := newSigner(store).Sign(t.Context(), issuerIn("team"), r)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := pki.DecodeCertificate(result.Bundle.Chain)
	if err != nil {
		t.Fatal(err)
	}
	if !leaf.NotAfter.Equal(now.Add(r.Duration)) {
		t.Errorf("validity was clamped to %s", leaf.NotAfter)
	}
	if result.WarningReason != "CertificateOutlivesCA" || !strings.Contains(result.Warning, "team/ca") {
		t.Errorf("warning %q: %q", result.WarningReason, result.Warning)
	}
}

func TestCertSignFollowsTheKindOfRequest(t *testing.T) {
	root := newAuthority(t, "root", true, nil)
	store := &secrets{}
	store.put("team", "ca", map[string][]byte{"tls.crt": pemOf(root), "tls.key": root.key})
	for kind, want := range map[string]bool{"CertificateRequest": true, "CertificateSigningRequest": false} {
		r := newRequest(t)
		r.SourceKind, r.IsCA = kind, true
		result, err := newSigner(store).Sign(t.Context(), issuerIn("team"), r)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := pki.DecodeCertificate(result.Bundle.Chain)
		if err != nil {
			t.Fatal(err)
		}
		if got := cert.KeyUsage&x509.KeyUsageCertSign != 0; got != want || !cert.IsCA {
			t.Errorf("%s: CA %t, may sign certificates %t, want %t", kind, cert.IsCA, got, want)
		}
	}
}

// broken are Secrets that no certificate can be signed with.
func broken(t *testing.T) map[string]struct {
	data        map[string][]byte
	setup, want string
} {
	t.Helper()
	root, leaf, other := newAuthority(t, "root", true, nil), newAuthority(t, "leaf", false, nil), newAuthority(t, "other", true, nil)
	return map[string]struct {
		data        map[string][]byte
		setup, want string
	}{
		"empty":          {nil, "ErrGetKeyPair", "key tls.crt"},
		"no key":         {map[string][]byte{"tls.crt": pemOf(root)}, "ErrGetKeyPair", "key tls.key: it is missing"},
		"bad cert":       {map[string][]byte{"tls.crt": []byte("x"), "tls.key": root.key}, "ErrGetKeyPair", "key tls.crt"},
		"bad key":        {map[string][]byte{"tls.crt": pemOf(root), "tls.key": []byte("x")}, "ErrGetKeyPair", "key tls.key"},
		"bad ca.crt":     {map[string][]byte{"tls.crt": pemOf(root), "tls.key": root.key, "ca.crt": []byte("x")}, "ErrGetKeyPair", "key ca.crt"},
		"not a CA":       {map[string][]byte{"tls.crt": pemOf(leaf), "tls.key": leaf.key}, "ErrInvalidKeyPair", "isCA: true"},
		"root first":     {map[string][]byte{"tls.crt": append(pemOf(other), pemOf(root)...), "tls.key": root.key}, "ErrInvalidKeyPair", "is not the first one"},
		"another's key":  {map[string][]byte{"tls.crt": pemOf(root), "tls.key": other.key}, "ErrInvalidKeyPair", "does not belong"},
		"CA not at top":  {map[string][]byte{"tls.crt": append(pemOf(leaf), pemOf(root)...), "tls.key": leaf.key}, "ErrInvalidKeyPair", "isCA: true"},
		"not even there": {nil, "ErrGetKeyPair", "does not exist"},
	}
}

func TestBrokenSecretWaitsForTheSecret(t *testing.T) {
	for name, c := range broken(t) {
		store := &secrets{}
		reason := "SecretMissing"
		if name != "not even there" {
			store.put("team", "ca", c.data)
			reason = "SecretInvalidData"
		}
		s := newSigner(store)
		_, err := s.Sign(t.Context(), issuerIn("team"), newRequest(t))
		if f := fault.Of(err); f == nil || f.Kind != fault.KindPending || f.Reason != reason || !strings.Contains(f.Error(), c.want) || !strings.Contains(f.Error(), "team/ca") {
			t.Errorf("%s: Sign says %#v: %v", name, f, err)
		}
		issuer := issuerIn("team")
		facts, err := s.Probe(t.Context(), issuer)
		if f := fault.Of(err); f == nil || f.Kind != fault.KindPending || f.Reason != c.setup || !strings.Contains(f.Error(), c.want) {
			t.Errorf("%s: Probe says %v", name, err)
		}
		if facts.Reason != "" || len(issuer.GetStatus().Conditions) > 0 {
			t.Errorf("%s: Probe found %+v, and the issuer is %+v", name, facts, issuer.GetStatus())
		}
	}
}

func TestAPIServerAway(t *testing.T) {
	s := newSigner(&secrets{err: errors.New("no route to host")})
	_, err := s.Sign(t.Context(), issuerIn("team"), newRequest(t))
	if f := fault.Of(err); f == nil || f.Kind != fault.KindAfter || f.Reason != "SecretGetError" || f.Delay <= 0 {
		t.Errorf("Sign says %v", err)
	}
	if _, err := s.Probe(t.Context(), issuerIn("team")); err == nil || fault.Of(err) != nil {
		t.Errorf("Probe says %v, want an error that says nothing about the issuer", err)
	}
}

func TestSigningErrors(t *testing.T) {
	root, other := newAuthority(t, "root", true, nil), newAuthority(t, "other", true, nil)
	below := newAuthority(t, "below", true, root)
	good := map[string][]byte{"tls.crt": pemOf(root), "tls.key": root.key}
	for _, c := range []struct {
		name   string
		data   map[string][]byte
		change func(*signer.Request)
		want   string
	}{
		{"no request", good, func(r *signer.Request) { r.CSR = []byte("x") }, "PEM"},
		{"unknown usage", good, func(r *signer.Request) { r.Usages = []certmanagerv1.KeyUsage{"fly"} }, `"fly"`},
		{"no duration", good, func(r *signer.Request) { r.Duration = 0 }, "duration"},
		{"two chains", map[string][]byte{"tls.crt": pemOf(root, other), "tls.key": root.key}, nil, "do not belong to one chain"},
		{"unrelated ca.crt", map[string][]byte{"tls.crt": pemOf(root), "tls.key": root.key, "ca.crt": pemOf(other)}, nil, "do not belong to one chain"},
		{"signing not lowest", map[string][]byte{"tls.crt": pemOf(root, below), "tls.key": root.key}, nil, "must be the lowest"},
	} {
		store := &secrets{}
		store.put("team", "ca", c.data)
		r := newRequest(t)
		if c.change != nil {
			c.change(&r)
		}
		_, err := newSigner(store).Sign(t.Context(), issuerIn("team"), r)
		if f := fault.Of(err); f == nil || f.Kind != fault.KindTerminal || f.Reason != "SigningError" || !strings.Contains(f.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestProbe(t *testing.T) {
	root := newAuthority(t, "root", true, nil)
	store := &secrets{}
	store.put(clusterNamespace, "ca", map[string][]byte{"tls.crt": pemOf(root), "tls.key": root.key})
	clock := now
	s := New(Config{Secrets: store, Now: func() time.Time { return clock }, ClusterResourceNamespace: clusterNamespace})
	probe := func() signer.Facts {
		t.Helper()
		facts, err := s.Probe(t.Context(), issuerIn(""))
		if err != nil || !facts.Ready || facts.Reason != "KeyPairVerified" {
			t.Fatalf("%+v, %v", facts, err)
		}
		return facts
	}
	first := probe()
	if first.Message != "Signing CA verified" || !first.Until.After(now) || !first.NotAfter.Equal(root.cert.NotAfter) || !first.NotBefore.Equal(root.cert.NotBefore) {
		t.Fatalf("found %+v", first)
	}
	clock = first.Until
	if expired := probe(); !strings.Contains(expired.Message, "expired on") || !expired.Until.IsZero() {
		t.Errorf("of an expired CA: %+v", expired)
	}
	other := newAuthority(t, "other", true, nil)
	clock = now
	store.put(clusterNamespace, "ca", map[string][]byte{"tls.crt": pemOf(root, other), "tls.key": root.key})
	refused := func(want string) {
		t.Helper()
		if _, err := s.Probe(t.Context(), issuerIn("")); fault.Of(err) == nil || fault.Of(err).Kind != fault.KindPending || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	refused("the CA cannot sign")
	mute := newAuthorityWith(t, "mute", true, false, nil)
	store.put(clusterNamespace, "ca", map[string][]byte{"tls.crt": pemOf(mute), "tls.key": mute.key})
	refused("without cert sign")
	early := newAuthorityWith(t, "early", true, true, nil, func(c *x509.Certificate) { c.NotBefore = now.Add(time.Hour) })
	store.put(clusterNamespace, "ca", map[string][]byte{"tls.crt": pemOf(early), "tls.key": early.key})
	_, err := s.Probe(t.Context(), issuerIn(""))
	if f := fault.Of(err); f == nil || f.Kind != fault.KindAfter || f.Delay != time.Hour || !strings.Contains(err.Error(), "is not valid before") {
		t.Errorf("of a CA that is not valid yet: %v", err)
	}
	clock = now.Add(time.Hour)
	probe()
	if _, err := s.Probe(t.Context(), &certmanagerv1.Issuer{}); err == nil {
		t.Error("an issuer without spec.ca was looked at")
	}
}

func TestRotatedKeyPairIsUsedAtOnce(t *testing.T) {
	store := &secrets{}
	s := newSigner(store)
	for _, cn := range []string{"first", "second"} {
		root := newAuthority(t, cn, true, nil)
		store.put("team", "ca", map[string][]byte{"tls.crt": pemOf(root), "tls.key": root.key})
		result, err := s.Sign(t.Context(), issuerIn("team"), newRequest(t))
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := pki.DecodeCertificate(result.Bundle.Chain)
		if err != nil || leaf.Issuer.CommonName != cn {
			t.Errorf("signed by %s, want %s (%v)", leaf.Issuer.CommonName, cn, err)
		}
	}
	store.put("team", "ca", nil)
	if _, err := s.Sign(t.Context(), issuerIn("team"), newRequest(t)); fault.Of(err) == nil {
		t.Errorf("signed with a key pair that is gone: %v", err)
	}
}

// TestAuthorityIsWhatIsDelivered: a certificate is issued again if the CA certificates that it would be delivered with
// end later than those that it was delivered with. If Authority said others than Sign delivers, a certificate would be
// issued again and again.
func TestAuthorityIsWhatIsDelivered(t *testing.T) {
	root := newAuthority(t, "root", true, nil)
	sub := newAuthority(t, "sub", true, root)
	low := newAuthority(t, "low", true, sub)
	other := newAuthority(t, "other", true, nil)
	cross, subByOther := root.certifiedBy(t, other), sub.certifiedBy(t, other)
	store := &secrets{}
	s, issuer := newSigner(store), issuerIn("team")
	for name, data := range map[string]map[string][]byte{
		"a root":                   {"tls.crt": pemOf(root), "tls.key": root.key},
		"no root":                  {"tls.crt": pemOf(sub), "tls.key": sub.key},
		"a root in ca.crt":         {"tls.crt": pemOf(sub), "tls.key": sub.key, "ca.crt": pemOf(root, other)},
		"a root in tls.crt":        {"tls.crt": pemOf(sub, root), "tls.key": sub.key},
		"a chain without its root": {"tls.crt": pemOf(low, sub), "tls.key": low.key},
		"a cross certificate":      {"tls.crt": pemOf(root, cross), "tls.key": root.key, "ca.crt": pemOf(other)},
		"the other way round":      {"tls.crt": pemOf(cross), "tls.key": root.key, "ca.crt": pemOf(root, other)},
		"two parents":              {"tls.crt": pemOf(sub, subByOther, root), "tls.key": sub.key, "ca.crt": pemOf(other)},
		"two parents above":        {"tls.crt": pemOf(low, sub, subByOther), "tls.key": low.key, "ca.crt": pemOf(root)},
	} {
		store.put("team", "ca", data)
		authority, err := s.Authority(t.Context(), issuer)
		if err != nil {
			t.Fatal(err)
		}
		result, err := s.Sign(t.Context(), issuer, newRequest(t))
		if err != nil {
			t.Fatal(err)
		}
		delivered, err := pki.DecodeChain(slices.Concat(result.Bundle.Chain, result.Bundle.CA))
		if err != nil {
			t.Fatal(err)
		}
		same := func(a, b []*x509.Certificate) bool {
			return !slices.ContainsFunc(a, func(c *x509.Certificate) bool { return !slices.ContainsFunc(b, c.Equal) })
		}
		if !same(authority, delivered[1:]) || !same(delivered[1:], authority) || signer.AuthorityID(authority[0]) == signer.AuthorityID(other.cert) {
			t.Errorf("%s: delivers %d certificates, of which %d are said", name, len(delivered)-1, len(authority))
		}
		facts, err := s.Probe(t.Context(), issuer)
		if err != nil || facts.Authority != signer.AuthorityID(authority[0]) {
			t.Errorf("%s: %+v, %v", name, facts, err)
		}
	}
	store.put("team", "ca", map[string][]byte{"tls.crt": pemOf(root, other), "tls.key": root.key})
	facts, err := s.Probe(t.Context(), issuer)
	if _, torn := s.Authority(t.Context(), issuer); torn == nil || err == nil || facts.Authority != "" {
		t.Errorf("a CA that cannot sign is said to replace another: %+v, %v", facts, err)
	}
}

func TestKeyPairIsParsedOnceForEachVersion(t *testing.T) {
	root := newAuthority(t, "root", true, nil)
	store := &secrets{}
	s, issuer := newSigner(store), issuerIn("team")
	var seen []*keyPair
	for range 3 {
		store.put("team", "ca", map[string][]byte{"tls.crt": pemOf(root), "tls.key": root.key})
		first, errA := s.pair(t.Context(), issuer, issuer.GetSpec().CA)
		again, errB := s.pair(t.Context(), issuer, issuer.GetSpec().CA)
		if errA != nil || errB != nil || first != again || slices.Contains(seen, first) {
			t.Errorf("%v, %v: the same version was parsed again, or another one was not", errA, errB)
		}
		seen = append(seen, first)
	}
	store.byName["team/ca"].UID = ""
	first, errA := s.pair(t.Context(), issuer, issuer.GetSpec().CA)
	again, errB := s.pair(t.Context(), issuer, issuer.GetSpec().CA)
	if errA != nil || errB != nil || first == again {
		t.Error("a Secret without identity was remembered")
	}
}

func BenchmarkSign(b *testing.B) {
	root := newAuthority(b, "root", true, nil)
	store := &secrets{}
	store.put("team", "ca", map[string][]byte{"tls.crt": pemOf(root), "tls.key": root.key})
	s, issuer, r := newSigner(store), issuerIn("team"), newRequest(b)
	for b.Loop() {
		if _, err := s.Sign(b.Context(), issuer, r); err != nil {
			b.Fatal(err)
		}
	}
}
