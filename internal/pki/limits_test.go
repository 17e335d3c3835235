package pki

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"
)

// TestCheckLimits: an authority vouches for nothing that verifiers refuse because of its own certificates. Go's
// verifier is asked what it thinks of the same chain.
func TestCheckLimits(t *testing.T) {
	uri := func(text string) []*url.URL {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return []*url.URL{u}
	}
	_, ten, err := net.ParseCIDR("10.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	type change = func(*x509.Certificate)
	inside := func(c *x509.Certificate) {
		c.PermittedDNSDomains, c.PermittedDNSDomainsCritical = []string{"corp.example"}, true
	}
	names := func(names ...string) change { return func(c *x509.Certificate) { c.DNSNames = names } }
	ca := func(c *x509.Certificate) { c.IsCA, c.BasicConstraintsValid = true, true }
	length := func(n int) change { return func(c *x509.Certificate) { c.MaxPathLen, c.MaxPathLenZero = n, n == 0 } }
	usage := func(of ...x509.ExtKeyUsage) change { return func(c *x509.Certificate) { c.ExtKeyUsage = of } }
	none := func(*x509.Certificate) {}
	for name, c := range map[string]struct {
		root, sub, leaf change
		says            string
	}{
		"no limits":                {none, none, names("a.example"), ""},
		"a CA":                     {none, none, ca, ""},
		"path length 0":            {none, length(0), ca, "path length"},
		"path length 0, a leaf":    {none, length(0), names("a.example"), ""},
		"path length 1":            {none, length(1), ca, ""},
		"path length 1 above":      {length(1), none, ca, "path length"},
		"path length 0 above":      {length(0), none, names("a.example"), "path length"},
		"inside":                   {none, inside, names("a.corp.example"), ""},
		"outside":                  {none, inside, names("a.corp.example", "a.example"), "name constraints"},
		"outside of what is above": {inside, none, names("a.example"), "name constraints"},
		"excluded":                 {none, func(c *x509.Certificate) { c.ExcludedDNSDomains = []string{"corp.example"} }, names("a.corp.example"), "name constraints"},
		"an address":               {none, func(c *x509.Certificate) { c.PermittedIPRanges = []*net.IPNet{ten} }, func(c *x509.Certificate) { c.IPAddresses = []net.IP{{11, 0, 0, 1}} }, "name constraints"},
		"an address inside":        {none, func(c *x509.Certificate) { c.PermittedIPRanges = []*net.IPNet{ten} }, func(c *x509.Certificate) { c.IPAddresses = []net.IP{{10, 0, 0, 1}} }, ""},
		"an e-mail address":        {none, func(c *x509.Certificate) { c.PermittedEmailAddresses = []string{"corp.example"} }, func(c *x509.Certificate) { c.EmailAddresses = []string{"a@example.com"} }, "name constraints"},
		"a URI":                    {none, func(c *x509.Certificate) { c.ExcludedURIDomains = []string{"corp.example"} }, func(c *x509.Certificate) { c.URIs = uri("spiffe://corp.example/x") }, "name constraints"},
		"server only, a server":    {none, usage(x509.ExtKeyUsageServerAuth), usage(x509.ExtKeyUsageServerAuth), ""},
		"server only, no usage":    {none, usage(x509.ExtKeyUsageServerAuth), none, ""},
		"server only, both":        {none, usage(x509.ExtKeyUsageServerAuth), usage(x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageCodeSigning), `"code signing"`},
		"server only, above":       {usage(x509.ExtKeyUsageServerAuth), none, usage(x509.ExtKeyUsageCodeSigning), `"code signing"`},
		"any usage":                {none, usage(x509.ExtKeyUsageAny), usage(x509.ExtKeyUsageCodeSigning), ""},
		"no right to sign":         {none, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature }, none, "cert sign"},
	} {
		root := limited(t, nil, "root", ca, c.root)
		sub := limited(t, root, "sub", ca, c.sub)
		leaf := limited(t, sub, "", c.leaf)
		err := CheckLimits(leaf.cert, []*x509.Certificate{sub.cert, root.cert})
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
		options := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: testTime, KeyUsages: leaf.cert.ExtKeyUsage}
		options.Roots.AddCert(root.cert)
		options.Intermediates.AddCert(sub.cert)
		if len(options.KeyUsages) == 0 {
			options.KeyUsages = []x509.ExtKeyUsage{x509.ExtKeyUsageAny}
		}
		// Go's verifier is content with one usage out of several, and does not count a CA at the end of a path.
		lenient := len(leaf.cert.ExtKeyUsage) > 1 || leaf.cert.IsCA
		if _, verify := leaf.cert.Verify(options); (verify == nil) != (err == nil) && !lenient {
			t.Errorf("%s: %v, but Go's verifier says: %v", name, err, verify)
		}
	}
}

// TestNameConstraintsHaveNoBackDoor: a common name is taken for a DNS name by some verifiers, and names that Go does
// not know keep it from looking at none of the others.
func TestNameConstraintsHaveNoBackDoor(t *testing.T) {
	ca := limited(t, nil, "ca", func(c *x509.Certificate) {
		c.IsCA, c.BasicConstraintsValid, c.PermittedDNSDomains = true, true, []string{"corp.example"}
	})
	for name, c := range map[string]struct {
		template CSRTemplate
		good     bool
	}{
		"a common name inside":  {CSRTemplate{Subject: pkix.Name{CommonName: "a.corp.example"}}, true},
		"a person":              {CSRTemplate{Subject: pkix.Name{CommonName: "J. Doe"}}, true},
		"a common name outside": {CSRTemplate{Subject: pkix.Name{CommonName: "a.example"}}, false},
		"another common name": {CSRTemplate{Subject: pkix.Name{CommonName: "a.example"},
			AltNames: AltNames{DNSNames: []string{"a.corp.example"}}}, false},
		"behind another name": {CSRTemplate{AltNames: AltNames{
			DNSNames: []string{"a.example"}, OtherNames: []OtherName{{OID: "1.3.6.1.4.1.311.20.2.3", Value: "a@b"}},
		}}, false},
	} {
		key := mustKey(t, ECDSA)
		cert, err := Sign(mustTemplate(t, mustCSR(t, c.template, key), false), ca.cert, ca.key)
		if err != nil {
			t.Fatal(err)
		}
		if err := CheckLimits(cert, []*x509.Certificate{ca.cert}); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// limited is a certificate made as the changes say.
func limited(t *testing.T, parent *pair, cn string, changes ...func(*x509.Certificate)) *pair {
	t.Helper()
	key := mustKey(t, ECDSA)
	template := &x509.Certificate{
		SerialNumber: testTimeSerial(), Subject: pkix.Name{CommonName: cn}, PublicKey: key.Public(),
		NotBefore: testTime.Add(-time.Hour), NotAfter: testTime.Add(time.Hour),
	}
	for _, change := range changes {
		change(template)
	}
	signer, by := template, key
	if parent != nil {
		signer, by = parent.cert, parent.key
	}
	cert, err := Sign(template, signer, by)
	if err != nil {
		t.Fatal(err)
	}
	return &pair{cert: cert, key: key}
}
