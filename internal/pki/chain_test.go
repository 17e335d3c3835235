package pki

import (
	"bytes"
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"chancery.dev/internal/rig/tool"
)

func testTimeSerial() *big.Int { return big.NewInt(7) }

func TestBuildChain(t *testing.T) {
	root := issue(t, "root", true, nil)
	top := issue(t, "top", true, root)
	sub := issue(t, "sub", true, top)
	leaf := issue(t, "leaf", false, sub)
	rootLeaf := issue(t, "root leaf", false, root)
	lone := issue(t, "lone", false, nil)
	other := issue(t, "other", true, nil)
	// The root's name with another key: linked by name, not by signature.
	impostor := issue(t, "root", true, nil)

	type certs = []*x509.Certificate
	for name, c := range map[string]struct {
		in    certs
		chain certs
		ca    *x509.Certificate
		fails string
	}{
		"nothing":                 {fails: "no certificates"},
		"self-signed alone":       {in: certs{lone.cert}, chain: certs{lone.cert}, ca: lone.cert},
		"the same twice":          {in: certs{lone.cert, lone.cert}, chain: certs{lone.cert}, ca: lone.cert},
		"lone leaf":               {in: certs{leaf.cert}, chain: certs{leaf.cert}},
		"leaf and root":           {in: certs{rootLeaf.cert, root.cert}, chain: certs{rootLeaf.cert}, ca: root.cert},
		"whole chain":             {in: certs{leaf.cert, sub.cert, top.cert, root.cert}, chain: certs{leaf.cert, sub.cert, top.cert}, ca: root.cert},
		"root unknown":            {in: certs{leaf.cert, sub.cert, top.cert}, chain: certs{leaf.cert, sub.cert, top.cert}, ca: top.cert},
		"one intermediate":        {in: certs{sub.cert, leaf.cert}, chain: certs{leaf.cert, sub.cert}, ca: sub.cert},
		"duplicates":              {in: certs{root.cert, sub.cert, top.cert, leaf.cert, root.cert, sub.cert}, chain: certs{leaf.cert, sub.cert, top.cert}, ca: root.cert},
		"a gap":                   {in: certs{leaf.cert, top.cert}, fails: "do not belong to one chain"},
		"unrelated":               {in: certs{leaf.cert, sub.cert, other.cert}, fails: "do not belong to one chain"},
		"a fork":                  {in: certs{rootLeaf.cert, top.cert, root.cert}, fails: "signs both"},
		"same name, other key":    {in: certs{rootLeaf.cert, impostor.cert}, fails: "do not belong to one chain"},
		"the right one of a name": {in: certs{rootLeaf.cert, root.cert, impostor.cert}, fails: "do not belong to one chain"},
		"too many":                {in: fakes(maxChain + 1), fails: "too many"},
	} {
		t.Run(name, func(t *testing.T) {
			for range 4 {
				rand.Shuffle(len(c.in), func(i, j int) { c.in[i], c.in[j] = c.in[j], c.in[i] })
				got, err := BuildChain(t.Context(), c.in)
				if c.fails != "" {
					if err == nil || !strings.Contains(err.Error(), c.fails) {
						t.Fatalf("error %v, want %q", err, c.fails)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(got.Certificates, c.chain) || got.CA != c.ca {
					t.Fatalf("chain %v, CA %v", names(got.Certificates...), got.CA)
				}
			}
		})
	}
}

// TestSeveralPaths: roots and CAs that several keys have signed. The certificate comes with one path, and verifies
// under each root; by OpenSSL, which takes the first signer that it finds, too where the root itself is among the
// certificates.
func TestSeveralPaths(t *testing.T) {
	openssl := tool.Path(t, "openssl")
	older, other := issue(t, "old root", true, nil), issue(t, "other root", true, nil)
	root := issue(t, "root", true, nil)
	rootByOlder := issueFor(t, "root", true, root.key, older)
	rootAgain := issueFor(t, "root", true, root.key, nil)
	leaf := issue(t, "leaf", false, root)
	// The four certificates of a root that gets another key under the same name (RFC 4210 §4.4).
	turned := issue(t, "old root", true, nil)
	turnedByOlder, olderByTurned := issueFor(t, "old root", true, turned.key, older), issueFor(t, "old root", true, older.key, turned)
	turnedLeaf := issue(t, "leaf", false, turned)
	sub := issue(t, "sub", true, root)
	subByOther := issueFor(t, "sub", true, sub.key, other)
	subAgain := issueFor(t, "sub", true, sub.key, root)
	subWithID := withKeyID(t, sub, other)
	subLeaf := issue(t, "leaf", false, sub)
	top := issue(t, "top", true, other)
	subByTop := issueFor(t, "sub", true, sub.key, top)

	type certs = []*x509.Certificate
	for name, c := range map[string]struct {
		in    certs
		path  []string
		cross int
		roots certs // each of which verifies it
		ssl   certs // each of which verifies it by OpenSSL
	}{
		"a root, signed by the old one":      {certs{leaf.cert, root.cert, rootByOlder.cert}, []string{"leaf"}, 1, certs{root.cert, older.cert}, certs{root.cert, older.cert}},
		"and the old one":                    {certs{leaf.cert, root.cert, rootByOlder.cert, older.cert}, []string{"leaf"}, 1, certs{root.cert, older.cert}, certs{root.cert, older.cert}},
		"only signed by the old one":         {certs{leaf.cert, rootByOlder.cert, older.cert}, []string{"leaf", "root"}, 0, certs{root.cert, older.cert}, certs{root.cert, older.cert}},
		"a root, made again of the same key": {certs{leaf.cert, root.cert, rootAgain.cert}, []string{"leaf"}, 0, certs{root.cert, rootAgain.cert}, certs{root.cert, rootAgain.cert}},
		"a root with another key":            {certs{turnedLeaf.cert, turned.cert, turnedByOlder.cert, older.cert}, []string{"leaf"}, 1, certs{turned.cert, older.cert}, certs{turned.cert, older.cert}},
		"and both signed by each other":      {certs{turnedLeaf.cert, turned.cert, turnedByOlder.cert, olderByTurned.cert, older.cert}, []string{"leaf"}, 1, certs{turned.cert, older.cert}, certs{turned.cert, older.cert}},
		"a CA with two parents":              {certs{subLeaf.cert, sub.cert, subByOther.cert, root.cert, other.cert}, []string{"leaf", "sub"}, 1, certs{root.cert, other.cert}, nil},
		"which name its key differently":     {certs{subLeaf.cert, sub.cert, subWithID, root.cert, other.cert}, []string{"leaf", "sub"}, 1, certs{root.cert, other.cert}, certs{root.cert}},
		"of which one is known":              {certs{subLeaf.cert, sub.cert, subByOther.cert, other.cert}, []string{"leaf", "sub"}, 1, certs{root.cert, other.cert}, certs{other.cert}},
		"of which none is known":             {certs{subLeaf.cert, sub.cert, subByOther.cert}, []string{"leaf", "sub"}, 1, certs{root.cert, other.cert}, nil},
		"a CA with two parents, one further": {certs{subLeaf.cert, sub.cert, subByTop.cert, top.cert, root.cert, other.cert}, []string{"leaf", "sub"}, 2, certs{root.cert, other.cert}, certs{root.cert}},
		"a CA, made again of the same key":   {certs{subLeaf.cert, sub.cert, subAgain.cert, root.cert}, []string{"leaf", "sub"}, 0, certs{root.cert}, certs{root.cert}},
		"two parents and two roots":          {certs{subLeaf.cert, sub.cert, subByOther.cert, root.cert, rootByOlder.cert, other.cert}, []string{"leaf", "sub"}, 2, certs{root.cert, other.cert, older.cert}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			first, err := BuildChain(t.Context(), c.in)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(names(first.Certificates...), c.path) || len(first.Cross) != c.cross {
				t.Fatalf("path %q, cross %q", names(first.Certificates...), names(first.Cross...))
			}
			for range 4 {
				rand.Shuffle(len(c.in), func(i, j int) { c.in[i], c.in[j] = c.in[j], c.in[i] })
				if again, err := BuildChain(t.Context(), c.in); err != nil || !slices.Equal(again.Certificates, first.Certificates) || again.CA != first.CA || !slices.Equal(again.Cross, first.Cross) {
					t.Fatalf("in another order: %q, %q, %v", names(again.Certificates...), names(again.Cross...), err)
				}
			}
			// What a CA prepends to its own chain is the same.
			at := slices.IndexFunc(c.in, func(x *x509.Certificate) bool { return !x.IsCA })
			authority := slices.Concat(c.in[:at], c.in[at+1:])
			signer := slices.IndexFunc(authority, func(x *x509.Certificate) bool {
				return signed(x, c.in[at]) && bytes.Equal(x.SubjectKeyId, c.in[at].AuthorityKeyId)
			})
			authority[0], authority[signer] = authority[signer], authority[0]
			base, err := BuildChain(t.Context(), authority)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := base.Prepend(c.in[at]); err != nil || !slices.Equal(got.Certificates, first.Certificates) || got.CA != first.CA || !slices.Equal(got.Cross, first.Cross) {
				t.Errorf("Prepend: %q, cross %q, %v", names(got.Certificates...), names(got.Cross...), err)
			}
			chain, ca := first.PEM()
			between := x509.NewCertPool()
			between.AppendCertsFromPEM(chain)
			for _, root := range c.roots {
				roots := x509.NewCertPool()
				roots.AddCert(root)
				if _, err := first.Certificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: testTime.Add(time.Minute), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
					t.Errorf("under %q: %v", root.Subject, err)
				}
			}
			// What is in ca.crt verifies the chain by OpenSSL in any case.
			for _, root := range append([][]byte{ca}, pems(c.ssl)...) {
				if out, err := opensslVerify(t, openssl, root, chain); err != nil {
					t.Errorf("%v: %s", err, out)
				}
			}
		})
	}
}

func pems(certs []*x509.Certificate) (out [][]byte) {
	for _, c := range certs {
		out = append(out, EncodeCertificates(c))
	}
	return out
}

// opensslVerify has OpenSSL verify the first certificate of a chain.
func opensslVerify(t *testing.T, openssl string, root, chain []byte) (string, error) {
	t.Helper()
	dir := t.TempDir()
	for file, text := range map[string][]byte{"chain.pem": chain, "ca.pem": root} {
		if err := os.WriteFile(filepath.Join(dir, file), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), openssl, "verify", "-partial_chain", "-attime", strconv.FormatInt(testTime.Unix()+60, 10), "-CAfile", "ca.pem", "-untrusted", "chain.pem", "chain.pem")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestAChainOfOneNameIsCheap: certificates that share a subject may be signed by each other. Key identifiers
// tell which one signs, so the work grows with the length of the chain, not with its square.
func TestAChainOfOneNameIsCheap(t *testing.T) {
	work := func(name func(int) string) float64 {
		above := issue(t, "root", true, nil)
		certs := []*x509.Certificate{above.cert}
		for i := range maxChain - 1 {
			key := mustKey(t, ECDSA)
			template := mustTemplate(t, mustCSR(t, CSRTemplate{Subject: pkix.Name{CommonName: name(i)}, IsCA: true}, key), true)
			template.AuthorityKeyId = above.cert.SubjectKeyId
			cert, err := Sign(template, above.cert, above.key)
			if err != nil {
				t.Fatal(err)
			}
			above = &pair{cert: cert, key: key}
			certs = append(certs, cert)
		}
		slices.Reverse(certs)
		return testing.AllocsPerRun(1, func() {
			if _, err := BuildChain(t.Context(), certs); err != nil {
				t.Fatal(err)
			}
		})
	}
	different, same := work(strconv.Itoa), work(func(int) string { return "x" })
	if same > 3*different {
		t.Errorf("%.0f allocations for a chain of one name, %.0f for a chain of different ones", same, different)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	root := issue(t, "root", true, nil)
	if _, err := BuildChain(ended, []*x509.Certificate{issue(t, "leaf", false, root).cert, root.cert}); !errors.Is(err, context.Canceled) {
		t.Errorf("after the context has ended: %v", err)
	}
}

func TestBuildChainRefusesCircle(t *testing.T) {
	// Two authorities that certify each other's key.
	a, b := issue(t, "a", true, nil), issue(t, "b", true, nil)
	aByB := issueFor(t, "a", true, a.key, b)
	bByA := issueFor(t, "b", true, b.key, a)
	if _, err := BuildChain(t.Context(), []*x509.Certificate{aByB.cert, bByA.cert}); err == nil || !strings.Contains(err.Error(), "circle") {
		t.Errorf("error %v", err)
	}
	leaf, stranger := issue(t, "leaf", false, a), issue(t, "stranger", false, nil)
	if _, err := BuildChain(t.Context(), []*x509.Certificate{leaf.cert, aByB.cert, bByA.cert, stranger.cert}); err == nil || !strings.Contains(err.Error(), "one chain") {
		t.Errorf("a circle and a stranger: %v", err)
	}
}

func TestPrependIsBuildChain(t *testing.T) {
	root := issue(t, "root", true, nil)
	top := issue(t, "top", true, root)
	sub := issue(t, "sub", true, top)
	for _, c := range []struct {
		authority []*x509.Certificate
		signer    *pair
	}{
		{[]*x509.Certificate{root.cert}, root},
		{[]*x509.Certificate{top.cert}, top},
		{[]*x509.Certificate{top.cert, root.cert}, top},
		{[]*x509.Certificate{sub.cert, top.cert}, sub},
		{[]*x509.Certificate{sub.cert, top.cert, root.cert}, sub},
	} {
		leaf := issue(t, "leaf", false, c.signer).cert
		base, err := BuildChain(t.Context(), c.authority)
		if err != nil {
			t.Fatal(err)
		}
		got, err := base.Prepend(leaf)
		if err != nil {
			t.Fatal(err)
		}
		want, err := BuildChain(t.Context(), append(c.authority, leaf))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.Certificates, want.Certificates) || got.CA != want.CA {
			t.Errorf("Prepend: %v, BuildChain: %v", names(got.Certificates...), names(want.Certificates...))
		}
		if _, err := base.Prepend(issue(t, "stranger", false, nil).cert); err == nil {
			t.Error("a stranger was prepended")
		}
	}
	rootChain, err := BuildChain(t.Context(), []*x509.Certificate{root.cert})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rootChain.Prepend(issueFor(t, "root", true, root.key, root).cert); err == nil || !strings.Contains(err.Error(), "its own") {
		t.Errorf("a certificate with its signer's name and key: %v", err)
	}
	if _, err := (Chain{}).Prepend(root.cert); err == nil {
		t.Error("prepended to nothing")
	}
}

func names(certs ...*x509.Certificate) (out []string) {
	for _, c := range certs {
		out = append(out, c.Subject.CommonName)
	}
	return out
}

// fakes are n different certificates that nobody looks into.
func fakes(n int) (out []*x509.Certificate) {
	for i := range n {
		out = append(out, &x509.Certificate{Raw: []byte(strconv.Itoa(i))})
	}
	return out
}

func TestDecodeCertificates(t *testing.T) {
	root := issue(t, "root", true, nil)
	leaf := issue(t, "leaf", false, root)
	text := EncodeCertificates(leaf.cert, root.cert)
	certs, err := DecodeChain(append([]byte("Subject: CN=leaf\n"), text...))
	if err != nil || !slices.Equal(names(certs...), []string{"leaf", "root"}) {
		t.Errorf("%v, %v", names(certs...), err)
	}
	cert, err := DecodeCertificate(text)
	if err != nil || cert.Subject.CommonName != "leaf" {
		t.Errorf("first certificate: %v", err)
	}
	padding := func(n int) []byte { return append(bytes.Repeat([]byte("\n"), n-len(text)), text...) }
	for _, c := range []struct {
		limit  int
		decode func([]byte) error
	}{
		{36500, func(b []byte) error { _, err := DecodeCertificate(b); return err }},
		{95000, func(b []byte) error { _, err := DecodeChain(b); return err }},
		{330000, func(b []byte) error { _, err := DecodeBundle(b); return err }},
	} {
		if err := c.decode(padding(c.limit)); err != nil {
			t.Errorf("%d bytes: %v", c.limit, err)
		}
		if err := c.decode(padding(c.limit + 1)); err == nil {
			t.Errorf("%d bytes were decoded", c.limit+1)
		}
		for want, in := range map[string][]byte{
			"no PEM block":           nil,
			"not a CERTIFICATE":      append(slices.Clone(text), pemBlock(pemPKCS8, []byte{1})...),
			"block 1":                pemBlock(pemCertificate, []byte{1}),
			"has no PEM block CERTI": []byte("hello"),
		} {
			if err := c.decode(in); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q", err, want)
			}
		}
	}
}

func TestCertificateDetails(t *testing.T) {
	uri, err := url.Parse("spiffe://x/y")
	if err != nil {
		t.Fatal(err)
	}
	full := &x509.Certificate{
		Subject: pkix.Name{
			CommonName: "cn, not a list", Organization: []string{"Foo, Inc.", `say "hi"`}, OrganizationalUnit: []string{"u"},
			Country: []string{"DE", "FR"}, Province: []string{"p"}, Locality: []string{"l"}, PostalCode: []string{"1"},
			StreetAddress: []string{"s"}, SerialNumber: "n",
		},
		DNSNames: []string{"b", "a"}, IPAddresses: []net.IP{net.ParseIP("::1"), net.ParseIP("10.0.0.1")},
		URIs: []*url.URL{uri}, EmailAddresses: []string{"e@x"},
	}
	want := map[string]string{
		"common-name": "cn, not a list", "alt-names": "b,a", "ip-sans": "::1,10.0.0.1", "uri-sans": "spiffe://x/y", "email-sans": "e@x",
		"subject-organizations": `"Foo, Inc.","say ""hi"""`, "subject-organizationalunits": "u", "subject-countries": "DE,FR",
		"subject-provinces": "p", "subject-localities": "l", "subject-postalcodes": "1", "subject-streetaddresses": "s", "subject-serialnumber": "n",
	}
	if diff := cmp.Diff(want, CertificateDetails(full)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	empty := map[string]string{"common-name": "", "alt-names": "", "ip-sans": "", "uri-sans": ""}
	if diff := cmp.Diff(empty, CertificateDetails(&x509.Certificate{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestOpenSSLVerifiesChain(t *testing.T) {
	openssl := tool.Path(t, "openssl")
	root := issue(t, "root", true, nil)
	sub := issue(t, "sub", true, root)
	leaf := issue(t, "leaf", false, sub)
	chain, err := BuildChain(t.Context(), []*x509.Certificate{root.cert, leaf.cert, sub.cert})
	if err != nil {
		t.Fatal(err)
	}
	chainPEM, caPEM := chain.PEM()
	dir := t.TempDir()
	for file, text := range map[string][]byte{"chain.pem": chainPEM, "ca.pem": caPEM} {
		if err := os.WriteFile(filepath.Join(dir, file), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(openssl, "verify", "-x509_strict", "-attime", strconv.FormatInt(testTime.Unix()+60, 10), "-CAfile", "ca.pem", "-untrusted", "chain.pem", "chain.pem")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// FuzzDecodeChain: what is written of a chain that is taken is PEM of certificates alone, and reads the same.
func FuzzDecodeChain(f *testing.F) {
	root := issue(f, "root", true, nil)
	f.Add(EncodeCertificates(issue(f, "leaf", false, root).cert, root.cert))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		certs, err := DecodeChain(text)
		if err != nil {
			return
		}
		written := EncodeCertificates(certs...)
		again, err := DecodeBundle(written)
		if err != nil || !slices.EqualFunc(again, certs, (*x509.Certificate).Equal) || !onlyOurPEM(written) {
			t.Fatalf("%d certificates are written as %q, %v", len(certs), written, err)
		}
		chain, err := BuildChain(t.Context(), certs)
		if err == nil && (len(chain.Certificates) == 0 || len(chain.Certificates) > len(certs)) {
			t.Errorf("a chain of %d of %d", len(chain.Certificates), len(certs))
		}
	})
}
