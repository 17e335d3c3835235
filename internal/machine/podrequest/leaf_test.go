package podrequest

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"chancery.dev/internal/pki"
)

// TestRefuses: one change to a certificate that may be handed out makes each refusal.
func TestRefuses(t *testing.T) {
	t.Parallel()
	id := &url.URL{Scheme: "spiffe", Host: "prod.example.com", Path: "/ns/shop/sa/web"}
	a := Action{Step: StepSign, Duration: 24 * time.Hour, Names: pki.AltNames{URIs: []string{id.String()}, DNSNames: []string{"web.shop.svc", "api.shop.svc"}}}
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	for about, c := range map[string]struct {
		change func(*x509.Certificate)
		says   string
	}{
		"as it is":          {func(*x509.Certificate) {}, ""},
		"an hour":           {func(l *x509.Certificate) { l.NotAfter = l.NotBefore.Add(Shortest) }, ""},
		"less":              {func(l *x509.Certificate) { l.NotAfter = l.NotBefore.Add(Shortest - time.Second) }, "valid for 59m59s, and has to be valid for 1h0m0s to 24h0m0s"},
		"a second too long": {func(l *x509.Certificate) { l.NotAfter = l.NotAfter.Add(time.Second) }, "valid for 24h0m1s"},
		"begins early": {func(l *x509.Certificate) {
			l.NotBefore, l.NotAfter = now.Add(-5*time.Minute-time.Second), now.Add(time.Hour)
		}, "valid from 2030-01-02T02:59:04Z on"},
		"begins late":       {func(l *x509.Certificate) { l.NotBefore = now.Add(5*time.Minute + time.Second) }, "valid from"},
		"no names":          {func(l *x509.Certificate) { l.URIs, l.DNSNames = nil, nil }, `has the names [], and has to have [spiffe://prod.example.com/ns/shop/sa/web web.shop.svc api.shop.svc]`},
		"one of the names":  {func(l *x509.Certificate) { l.DNSNames = l.DNSNames[1:] }, "has the names"},
		"another identity":  {func(l *x509.Certificate) { l.URIs[0].Path = "/ns/shop/sa/bank" }, "has the names"},
		"two identities":    {func(l *x509.Certificate) { l.URIs = append(l.URIs, &url.URL{Scheme: "spiffe", Host: "a"}) }, "has the names"},
		"a DNS name more":   {func(l *x509.Certificate) { l.DNSNames = append(l.DNSNames, "bank.shop.svc") }, "has the names"},
		"an address":        {func(l *x509.Certificate) { l.IPAddresses = []net.IP{net.IPv4(192, 0, 2, 1)} }, `"192.0.2.1"`},
		"an e-mail address": {func(l *x509.Certificate) { l.EmailAddresses = []string{"a@example.com"} }, `"a@example.com"`},
		"a common name":     {func(l *x509.Certificate) { l.Subject.CommonName = "web" }, `has the subject "CN=web"`},
		"an organization":   {func(l *x509.Certificate) { l.Subject.Organization = []string{"system:masters"} }, `has the subject "O=system:masters"`},
		"a name of its own": {func(l *x509.Certificate) {
			l.Subject.ExtraNames = []pkix.AttributeTypeAndValue{{Type: []int{1, 2, 3}, Value: "x"}}
		}, "has the subject"},
		"a CA":               {func(l *x509.Certificate) { l.BasicConstraintsValid, l.IsCA = true, true }, "CA certificate"},
		"it signs":           {func(l *x509.Certificate) { l.KeyUsage |= x509.KeyUsageCertSign }, "CA certificate"},
		"for servers alone":  {func(l *x509.Certificate) { l.ExtKeyUsage = l.ExtKeyUsage[:1] }, "lacks one of the usages"},
		"for clients alone":  {func(l *x509.Certificate) { l.ExtKeyUsage = l.ExtKeyUsage[1:] }, "lacks one of the usages"},
		"no signatures":      {func(l *x509.Certificate) { l.KeyUsage = x509.KeyUsageKeyAgreement }, "lacks one of the usages"},
		"more usages":        {func(l *x509.Certificate) { l.KeyUsage |= x509.KeyUsageKeyAgreement }, ""},
		"sorted differently": {func(l *x509.Certificate) { slices.Sort(l.DNSNames) }, ""},
	} {
		own := *id
		template := &x509.Certificate{
			NotBefore: now.Add(-30 * time.Second), NotAfter: now.Add(24*time.Hour - 30*time.Second), URIs: []*url.URL{&own}, DNSNames: slices.Clone(a.Names.DNSNames),
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}
		c.change(template)
		template.PublicKey = key.Public()
		leaf, err := pki.Sign(template, &x509.Certificate{Subject: pkix.Name{CommonName: "CA"}, PublicKey: key.Public()}, key)
		if err != nil {
			t.Fatal(about, err)
		}
		switch err := a.Refuses(leaf, now); {
		case c.says == "" && err != nil, c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: %v, want %q", about, err, c.says)
		}
	}
}
