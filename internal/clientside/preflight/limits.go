package preflight

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/pki"
)

// The limits that Let's Encrypt publishes: https://letsencrypt.org/docs/rate-limits and /docs/profiles.
const (
	limitWindow   = 7 * 24 * time.Hour
	maxDuplicates = 5
	maxPerDomain  = 50
	maxNames      = 100
	maxNamesShort = 25
)

// Issued is a certificate that the CA has issued to this cluster.
type Issued struct {
	Names []string
	At    time.Time
}

// Limits has what Judge needs to know.
type Limits struct {
	// Issued are the certificates of the issuer that are known.
	Issued []Issued
	Now    time.Time
	// Registered returns the registered domain of a name: example.com for www.example.com.
	Registered func(name string) string
}

// OfLetsEncrypt reports whether a server is one of Let's Encrypt, and whether it is the one for production.
func OfLetsEncrypt(server string) (is, production bool) {
	u, err := url.Parse(server)
	if err != nil {
		return false, false
	}
	host := u.Hostname()
	return strings.HasSuffix(host, ".api.letsencrypt.org"), host == "acme-v02.api.letsencrypt.org"
}

// Judge judges the limits of the CA: those that Let's Encrypt publishes. Other CAs publish none that are known here.
func (l Limits) Judge(crt *certmanagerv1.Certificate, issuer *acmev1.ACMEIssuer) []Finding {
	is, production := OfLetsEncrypt(issuer.Server)
	findings, spec := l.calendar(crt, issuer), &crt.Spec
	if !is {
		return append(findings, Finding{Check: "limits", Outcome: NotChecked, Message: "the limits of this CA are not known here: only those of Let's Encrypt are"})
	}
	findings = append(findings, form(spec, Profile(crt, issuer)), key(spec.PrivateKey))
	if production {
		findings = append(findings, l.counts(spec))
	}
	return findings
}

// form judges the names and the lifetime.
func form(spec *certmanagerv1.CertificateSpec, profile string) Finding {
	names, most := len(spec.DNSNames)+len(spec.IPAddresses), maxNames
	short := profile == "shortlived"
	if short || profile == "tlsserver" {
		most = maxNamesShort
	}
	f := Finding{Check: "limits", Subject: "names", Outcome: OK, Message: fmt.Sprintf("%d of the %d names that Let's Encrypt takes", names, most)}
	switch {
	case names > most:
		f.Outcome, f.Message = Failed, fmt.Sprintf("%d names, and Let's Encrypt takes %d in a certificate", names, most)
		f.WhatToDo = "Split the Certificate into several"
	case len(spec.IPAddresses) > 0 && !short:
		f.Outcome, f.Message = Failed, "Let's Encrypt issues for IP addresses by the profile shortlived only"
		f.WhatToDo = "Set spec.acme.profile of the issuer to shortlived, or the annotation of the Certificate"
	}
	return f
}

// key judges the key by what Let's Encrypt takes: RSA of 2048, 3072 or 4096 bits, ECDSA P-256 and P-384.
func key(k *certmanagerv1.CertificatePrivateKey) Finding {
	algorithm, size := certmanagerv1.RSAKeyAlgorithm, 0
	if k != nil {
		algorithm, size = cmp.Or(k.Algorithm, algorithm), k.Size
	}
	takes := map[certmanagerv1.PrivateKeyAlgorithm][]int{certmanagerv1.RSAKeyAlgorithm: {0, 2048, 3072, 4096}, certmanagerv1.ECDSAKeyAlgorithm: {0, 256, 384}}
	f := Finding{Check: "limits", Subject: "key", Outcome: OK, Message: "Let's Encrypt takes such a key"}
	if !slices.Contains(takes[algorithm], size) {
		f.Outcome, f.Message = Failed, strings.TrimSpace(fmt.Sprintf("Let's Encrypt takes no key of the kind %s", algorithm))
		if size != 0 {
			f.Message += fmt.Sprintf(" with %d bits", size)
		}
		f.WhatToDo = "Set spec.privateKey to RSA with 2048, 3072 or 4096 bits, or to ECDSA with 256 or 384"
	}
	return f
}

// counts judges the rate limits by the certificates that are known; there may have been more.
func (l Limits) counts(spec *certmanagerv1.CertificateSpec) Finding {
	names := canonical(slices.Concat(spec.DNSNames, spec.IPAddresses))
	domains := map[string]int{}
	for _, name := range names {
		domains[l.Registered(name)] = 0
	}
	same := 0
	for _, issued := range l.Issued {
		if l.Now.Sub(issued.At) >= limitWindow {
			continue
		}
		if slices.Equal(canonical(issued.Names), names) {
			same++
			continue // a certificate with the same names is a renewal, which the other limit does not count
		}
		seen := map[string]bool{}
		for _, name := range canonical(issued.Names) {
			domain := l.Registered(name)
			if _, ours := domains[domain]; ours && !seen[domain] {
				seen[domain] = true
				domains[domain]++
			}
		}
	}
	f := Finding{Check: "limits", Subject: "rate", Outcome: OK, Message: fmt.Sprintf(
		"at least %d of %d certificates with the same names in the last 7 days, as far as this cluster knows", same, maxDuplicates)}
	if same >= maxDuplicates {
		f.Outcome = Failed
		f.WhatToDo = Cure(cause.Class(fault.ClassRateLimited))
		return f
	}
	for domain, n := range domains {
		if n >= maxPerDomain {
			f.Outcome, f.WhatToDo = Failed, Cure(cause.Class(fault.ClassRateLimited))
			f.Message = fmt.Sprintf("at least %d certificates for %s in the last 7 days, and Let's Encrypt issues %d", n, domain, maxPerDomain)
			return f
		}
	}
	if same >= maxDuplicates-1 {
		f.Outcome, f.WhatToDo = Warning, "Try with --staging-issuer first"
	}
	return f
}

// canonical is a set of names that can be compared.
func canonical(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = pki.DNSNameKey(n)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
