package shim

import (
	"crypto"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/pki"
)

// FuzzAnnotations: a Certificate that annotations ask for without a warning can be requested, has no more names than
// the API takes, and what was read as JSON is JSON. Warnings are as short as events.
func FuzzAnnotations(f *testing.F) {
	f.Add("a.example, *.b.example", "192.0.2.1", "spiffe://a/b", "a@example.com", `Example,"Example, Inc."`, "server auth", "2160h", `{"labels":{"a":"b"}}`)
	f.Add(",", "::1%eth0", "a:\x7f", "ü@example.com", "a\nb", "any,any", "1h", `{}}`)
	f.Add("a", "1", "http://[", `"a b"@b`, `"`, "x", "9999999h", `{"annotations":{"cert-manager.io/x":""}}`)
	f.Add("", "", "", "ü@example.com", "", "", "", "")
	f.Add("", "", "https://ü.example/ü", "", "", "", "", "")
	f.Add("", "fe80::1%eth0", "", "", "", "", "", "")
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, dns, ip, uri, email, organizations, usages, duration, template string) {
		annotations := map[string]string{
			certmanagerv1.CommonNameAnnotation: dns, certmanagerv1.AltNamesAnnotation: dns, certmanagerv1.IPSANsAnnotation: ip,
			certmanagerv1.URISANsAnnotation: uri, certmanagerv1.EmailSANsAnnotation: email,
			certmanagerv1.OrganizationsAnnotation: organizations, certmanagerv1.IngressUsagesAnnotation: usages,
			certmanagerv1.IngressDurationAnnotation: duration, certmanagerv1.IngressSecretTemplateAnnotation: template,
		}
		for _, value := range annotations {
			if !utf8.ValidString(value) {
				return // the API server stores no such annotation
			}
		}
		spec := &certmanagerv1.CertificateSpec{Usages: []certmanagerv1.KeyUsage{"digital signature"}}
		problems := annotate(spec, annotations)
		for _, problem := range problems {
			if len(problem) > limits.EventBytes {
				t.Errorf("a warning of %d bytes: %s", len(problem), problem)
			}
		}
		if len(spec.DNSNames) > limits.CertificateNames || len(spec.Usages) > limits.CertificateNames {
			t.Errorf("%d names, %d usages", len(spec.DNSNames), len(spec.Usages))
		}
		if spec.SecretTemplate != nil && !json.Valid([]byte(template)) {
			t.Errorf("%q is taken for JSON", template)
		}
		if spec.Duration != nil && spec.Duration.Duration < certmanagerv1.MinimumCertificateDuration {
			t.Errorf("%q is read as %s", duration, spec.Duration.Duration)
		}
		if len(problems) == 0 {
			requestable(t, spec, key)
		}
	})
}

// requestable reports an error if no request can be made of a Certificate.
func requestable(t *testing.T, spec *certmanagerv1.CertificateSpec, key crypto.Signer) {
	t.Helper()
	template := pki.CSRTemplate{EncodeUsages: true, AltNames: pki.AltNames{
		DNSNames: spec.DNSNames, IPAddresses: spec.IPAddresses, URIs: spec.URIs, EmailAddresses: spec.EmailAddresses,
	}}
	for _, usage := range spec.Usages {
		template.Usages = append(template.Usages, string(usage))
	}
	template.Subject.CommonName = spec.CommonName
	if spec.Subject != nil {
		template.Subject.Organization = spec.Subject.Organizations
	}
	text, err := pki.CreateCSR(template, key)
	if err == nil {
		_, err = pki.ParseCSR(text)
	}
	// Of a URI whose host is no domain, crypto/x509 alone can tell; the request fails then, and says so.
	if err != nil && !strings.Contains(err.Error(), "cannot parse URI") {
		t.Errorf("%q can be asked for, and not be requested: %v", template.AltNames, err)
	}
}
