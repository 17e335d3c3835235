package pki

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"chancery.dev/internal/rig/tool"
)

// until is a root that ends some hours after testTime, with limits.
func until(t testing.TB, cn string, hours int, limit func(*x509.Certificate)) *pair {
	t.Helper()
	key := mustKey(t, ECDSA)
	template := mustTemplate(t, mustCSR(t, CSRTemplate{Subject: pkix.Name{CommonName: cn}, IsCA: true, EncodeUsages: true}, key), true)
	template.NotAfter = testTime.Add(time.Duration(hours) * time.Hour)
	if limit != nil {
		limit(template)
	}
	cert, err := Sign(template, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return &pair{cert: cert, key: key}
}

func mustLink(t testing.TB, root, old *pair) *x509.Certificate {
	t.Helper()
	link, err := NewLink(root.cert, old.cert, old.key, testTime)
	if err != nil {
		t.Fatal(err)
	}
	return link
}

// verifies reports whether a verifier that trusts one root accepts a leaf at a time, by Go.
func verifies(root *x509.Certificate, at time.Time, leaf *x509.Certificate, behind ...*x509.Certificate) error {
	o := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	o.Roots.AddCert(root)
	for _, c := range behind {
		o.Intermediates.AddCert(c)
	}
	_, err := leaf.Verify(o)
	return err
}

// TestLink: the three roots have one name, as those have that one Certificate asks for. Whoever knows an older one
// accepts what the newest has signed, by Go and by OpenSSL.
func TestLink(t *testing.T) {
	openssl := tool.Path(t, "openssl")
	first, second, third := until(t, "root", 3, nil), until(t, "root", 2, nil), until(t, "root", 4, func(c *x509.Certificate) {
		c.PermittedDNSDomains, c.MaxPathLen = []string{"example.com"}, 3
	})
	links := []*x509.Certificate{mustLink(t, third, second), mustLink(t, second, first)}
	link := links[0]
	if !bytes.Equal(link.RawSubject, third.cert.RawSubject) || !PublicKeysEqual(link.PublicKey, third.cert.PublicKey) || !bytes.Equal(link.SubjectKeyId, third.cert.SubjectKeyId) {
		t.Error("the link is not for the new root")
	}
	if !bytes.Equal(link.AuthorityKeyId, second.cert.SubjectKeyId) || link.SerialNumber.Cmp(third.cert.SerialNumber) == 0 || !link.NotAfter.Equal(second.cert.NotAfter) {
		t.Errorf("signed by %x, serial number %s, until %s", link.AuthorityKeyId, link.SerialNumber, link.NotAfter)
	}
	if !slices.Equal(link.PermittedDNSDomains, []string{"example.com"}) || link.MaxPathLen != 3 || link.KeyUsage != third.cert.KeyUsage {
		t.Errorf("limits %v, %d, %b", link.PermittedDNSDomains, link.MaxPathLen, link.KeyUsage)
	}
	leaf := issue(t, "leaf", false, third)
	chain := EncodeCertificates(slices.Concat([]*x509.Certificate{leaf.cert}, links)...)
	for name, root := range map[string]*pair{"first": first, "second": second, "third": third} {
		if err := verifies(root.cert, testTime.Add(time.Minute), leaf.cert, links...); err != nil {
			t.Errorf("by Go, under the %s root: %v", name, err)
		}
		if out, err := opensslVerify(t, openssl, EncodeCertificates(root.cert), chain); err != nil {
			t.Errorf("by OpenSSL, under the %s root: %v: %s", name, err, out)
		}
		if err := verifies(root.cert, testTime.Add(time.Minute), leaf.cert); (err == nil) != (root == third) {
			t.Errorf("without links, under the %s root: %v", name, err)
		}
	}
	if err := verifies(third.cert, testTime.Add(59*time.Minute), leaf.cert, until(t, "root", 0, nil).cert, links[0]); err != nil {
		t.Errorf("with a link that has expired: %v", err)
	}
}

// TestLinkNamesItsSigner: x509.CreateCertificate by itself leaves out the signer's key where both have one name, and
// OpenSSL then takes the link for a root that nobody trusts.
func TestLinkNamesItsSigner(t *testing.T) {
	openssl := tool.Path(t, "openssl")
	old, root := until(t, "root", 2, nil), until(t, "root", 2, nil)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		Subject: root.cert.Subject, SerialNumber: big.NewInt(2), NotBefore: testTime, NotAfter: testTime.Add(time.Hour), IsCA: true, BasicConstraintsValid: true, SubjectKeyId: root.cert.SubjectKeyId,
	}, old.cert, root.key.Public(), old.key)
	if err != nil {
		t.Fatal(err)
	}
	leaf := issue(t, "leaf", false, root)
	for says, test := range map[string]struct {
		link []byte
		good bool
	}{
		"a link that does not name its signer": {link: der},
		"a link":                               {link: mustLink(t, root, old).Raw, good: true},
	} {
		chain := slices.Concat(EncodeCertificates(leaf.cert), pemBlock("CERTIFICATE", test.link))
		if out, err := opensslVerify(t, openssl, EncodeCertificates(old.cert), chain); (err == nil) != test.good {
			t.Errorf("by OpenSSL, %s: %v: %s", says, err, out)
		}
		shown := tls.Certificate{Certificate: [][]byte{leaf.cert.Raw, test.link}, PrivateKey: leaf.key}
		if out, err := opensslClient(t, openssl, EncodeCertificates(old.cert), shown); (err == nil) != test.good {
			t.Errorf("by openssl s_client, %s: %v: %s", says, err, out)
		}
	}
}

// opensslClient lets openssl s_client, which trusts roots, connect to a server.
func opensslClient(t *testing.T, openssl string, roots []byte, server tls.Certificate) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(file, roots, 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{server}, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		if conn, err := listener.Accept(); err == nil {
			_, _ = conn.Write([]byte("hello"))
			_ = conn.Close()
		}
	}()
	out, err := exec.CommandContext(t.Context(), openssl, "s_client", "-connect", listener.Addr().String(), "-verify_return_error",
		"-CAfile", file, "-attime", strconv.FormatInt(testTime.Add(time.Minute).Unix(), 10)).CombinedOutput()
	_ = listener.Close()
	<-served
	return string(out), err
}

func TestNoLink(t *testing.T) {
	root, other := until(t, "root", 2, nil), until(t, "root", 2, nil)
	for says, old := range map[string]*pair{
		"has expired":       until(t, "root", 0, nil),
		"path length":       until(t, "root", 2, func(c *x509.Certificate) { c.MaxPathLenZero = true }),
		"without cert sign": until(t, "root", 2, func(c *x509.Certificate) { c.ExtraExtensions = nil; c.KeyUsage = x509.KeyUsageDigitalSignature }),
		"PrivateKey":        {cert: until(t, "root", 2, nil).cert, key: other.key},
	} {
		if _, err := NewLink(root.cert, old.cert, old.key, testTime); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

// TestSucceed: what ca.crt of a CA holds after the root was replaced.
func TestSucceed(t *testing.T) {
	a, b, c := until(t, "root", 5, nil), until(t, "root", 6, nil), until(t, "root", 7, nil)
	ab, bc := mustLink(t, b, a), mustLink(t, c, b)
	expired, again := until(t, "root", 0, nil), issueFor(t, "root", true, c.key, nil)
	sub, leaf := issue(t, "sub", true, a), issue(t, "leaf", false, a)
	type certs = []*x509.Certificate
	for name, test := range map[string]struct{ issued, earlier, want certs }{
		"one rotation":             {certs{b.cert}, certs{a.cert, a.cert, ab}, certs{b.cert, a.cert, ab}},
		"two":                      {certs{c.cert}, certs{b.cert, a.cert, ab, bc}, certs{c.cert, b.cert, a.cert, ab, bc}},
		"the same key":             {certs{again.cert}, certs{c.cert, b.cert, a.cert, ab, bc}, certs{again.cert, b.cert, a.cert, ab, bc}},
		"what has expired goes":    {certs{b.cert}, certs{expired.cert, a.cert}, certs{b.cert, a.cert}},
		"and what is no CA":        {certs{b.cert}, certs{leaf.cert, a.cert}, certs{b.cert, a.cert}},
		"an intermediate":          {certs{b.cert, a.cert, ab}, certs{a.cert, sub.cert}, certs{b.cert, a.cert, sub.cert, ab}},
		"nothing before":           {certs{b.cert}, nil, certs{b.cert}},
		"the same once more, late": {certs{expired.cert}, certs{a.cert}, certs{expired.cert, a.cert}},
	} {
		if got := Succeed(test.issued, test.earlier, testTime); !slices.Equal(got, test.want) {
			t.Errorf("%s: %d certificates, want %d: %q", name, len(got), len(test.want), names(got...))
		}
	}
	// Eleven: the first to expire goes, and of two that expire at once, the link.
	var earlier certs
	for i := range MaxRoots - 2 {
		earlier = append(earlier, until(t, "root", 10+i, nil).cert)
	}
	soon := until(t, "root", 1, nil)
	got := Succeed(certs{until(t, "root", 0, nil).cert}, append(earlier, soon.cert, mustLink(t, &pair{cert: earlier[0]}, soon)), testTime)
	if len(got) != MaxRoots || got[0].NotAfter != testTime || !slices.Contains(got, soon.cert) {
		t.Errorf("%d certificates, until %v", len(got), got)
	}
}

// TestFurtherCertificates: only what leads from the chain to an older root goes along, the nearest first.
func TestFurtherCertificates(t *testing.T) {
	a, b, c := until(t, "root", 5, nil), until(t, "root", 6, nil), until(t, "root", 7, nil)
	ab, bc := mustLink(t, b, a), mustLink(t, c, b)
	back := issueFor(t, "root", true, b.key, c).cert // old with new
	sub := issue(t, "sub", true, c)
	elsewhere := mustLink(t, until(t, "other", 5, nil), a)
	type certs = []*x509.Certificate
	for name, test := range map[string]struct{ chain, links, want certs }{
		"both":                        {certs{c.cert}, certs{ab, bc}, certs{bc, ab}},
		"below an intermediate":       {certs{sub.cert, c.cert}, certs{bc, ab}, certs{bc, ab}},
		"one rotation":                {certs{c.cert}, certs{bc}, certs{bc}},
		"a gap":                       {certs{c.cert}, certs{ab}, nil},
		"what leads back":             {certs{c.cert}, certs{back, ab, bc}, certs{bc, ab}},
		"of another root":             {certs{c.cert}, certs{elsewhere, bc}, certs{bc}},
		"one is in the chain already": {certs{c.cert, bc}, certs{bc, ab}, certs{bc, ab}},
	} {
		chain, err := BuildChain(t.Context(), test.chain, test.links...)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(chain.Cross, test.want) || chain.Certificates[0] != test.chain[0] || chain.CA != c.cert {
			t.Errorf("%s: %d links, want %d", name, len(chain.Cross), len(test.want))
		}
	}
}

// TestSplitPath: what leads from a leaf to its root is told from what leads to others.
func TestSplitPath(t *testing.T) {
	a, c := until(t, "root", 5, nil), until(t, "root", 7, nil)
	link, sub := mustLink(t, c, a), issue(t, "sub", true, c)
	low := issue(t, "low", true, sub)
	type certs = []*x509.Certificate
	for name, test := range map[string]struct {
		leaf         *pair
		above        certs
		path, others certs
	}{
		"by the root":      {issue(t, "leaf", false, c), certs{link}, nil, certs{link}},
		"by others":        {issue(t, "leaf", false, low), certs{link, sub.cert, low.cert}, certs{low.cert, sub.cert}, certs{link}},
		"the root itself":  {c, nil, nil, nil},
		"under no root":    {issue(t, "leaf", false, a), certs{sub.cert, link}, certs{sub.cert, link}, nil},
		"with a gap":       {issue(t, "leaf", false, low), certs{low.cert, link}, certs{low.cert, link}, nil},
		"nothing is there": {issue(t, "leaf", false, low), nil, nil, nil},
	} {
		path, others := SplitPath(test.leaf.cert, test.above, c.cert)
		if !slices.Equal(path, test.path) || !slices.Equal(others, test.others) {
			t.Errorf("%s: path %q, others %q", name, names(path...), names(others...))
		}
	}
}

// TestSplitLinks: a link has the name and the key of a root.
func TestSplitLinks(t *testing.T) {
	a, b, c := until(t, "root", 5, nil), until(t, "root", 6, nil), until(t, "root", 7, nil)
	ab, bc := mustLink(t, b, a), mustLink(t, c, b)
	top := issue(t, "top", true, a)
	type certs = []*x509.Certificate
	for name, test := range map[string]struct{ bundle, others, links certs }{
		"two rotations":    {certs{c.cert, b.cert, a.cert, ab, bc}, certs{c.cert, b.cert, a.cert}, certs{ab, bc}},
		"an intermediate":  {certs{c.cert, bc, top.cert, a.cert}, certs{c.cert, top.cert, a.cert}, certs{bc}},
		"no root is known": {certs{top.cert, ab}, certs{top.cert, ab}, nil},
		"nothing":          {nil, nil, nil},
	} {
		if others, links := SplitLinks(test.bundle); !slices.Equal(others, test.others) || !slices.Equal(links, test.links) {
			t.Errorf("%s: %q and links %q", name, names(others...), names(links...))
		}
	}
}

// TestSucceedIsBounded: ca.crt stays what a CA issuer reads, whatever was in it before.
func TestSucceedIsBounded(t *testing.T) {
	root, old := until(t, "root", 5, nil), until(t, "root", 6, nil)
	weak := until(t, "root", 7, nil)
	foreign := *weak.cert
	foreign.PublicKey = &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), maxForeignRSASize), E: 65537}
	large := make([]*x509.Certificate, MaxRoots-1)
	for i := range large {
		large[i] = until(t, "root", 20+i, func(c *x509.Certificate) {
			for range 200 {
				c.CRLDistributionPoints = append(c.CRLDistributionPoints, strings.Repeat("http://crl.example.com/", 4))
			}
		}).cert
	}
	got := Succeed([]*x509.Certificate{root.cert}, append([]*x509.Certificate{&foreign, old.cert}, large...), testTime)
	if text := EncodeCertificates(got...); len(text) > MaxChainPEM || got[0] != root.cert || len(got) < 2 || slices.Contains(got, &foreign) {
		t.Errorf("%d bytes of %d certificates", len(text), len(got))
	}
	// No root is known of the CA, and a self-signed certificate of its name and key was there before.
	sub := issue(t, "sub", true, root)
	lone := issueFor(t, "sub", true, sub.key, nil)
	if got := Succeed([]*x509.Certificate{sub.cert}, []*x509.Certificate{lone.cert}, testTime); got[0] != sub.cert {
		t.Errorf("%q is first", names(got...))
	}
	// The same key under another identifier: OpenSSL needs the certificate that a leaf names.
	other := *root.cert
	other.SubjectKeyId, other.Raw = []byte("other"), []byte("other")
	if got := Succeed([]*x509.Certificate{root.cert}, []*x509.Certificate{&other}, testTime); len(got) != 2 {
		t.Errorf("%d certificates, want both", len(got))
	}
}
