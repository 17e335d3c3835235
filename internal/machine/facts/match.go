package facts

import (
	"cmp"
	"slices"
	"strings"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/pki"
)

// RequestViolations returns the names of the spec's fields that a request does
// not fulfil any more (spec §2.1); none if the request is still the right one.
func RequestViolations(spec *certmanagerv1.CertificateSpec, r Request) ([]string, error) {
	if r.Error != nil {
		return nil, r.Error
	}
	v := nameViolations(spec, r.Names)
	v = append(v, subjectViolations(spec, r.RawSubject)...)
	if spec.IsCA != r.Spec.IsCA {
		v = append(v, "spec.isCA")
	}
	if !sameSet(spec.Usages, r.Spec.Usages) {
		v = append(v, "spec.usages")
	}
	if spec.Duration != nil && r.Spec.Duration != nil && spec.Duration.Duration != r.Spec.Duration.Duration {
		v = append(v, "spec.duration")
	}
	if !spec.IssuerRef.Equivalent(r.Spec.IssuerRef) {
		v = append(v, "spec.issuerRef")
	}
	return v, nil
}

func nameViolations(spec *certmanagerv1.CertificateSpec, names pki.AltNames) []string {
	v := addressViolations(spec, names)
	if !sameSet(pki.CanonicalDNSNames(spec.DNSNames), pki.CanonicalDNSNames(names.DNSNames)) {
		v = append(v, "spec.dnsNames")
	}
	if len(spec.OtherNames) > 0 && !sameOtherNames(spec.OtherNames, names.OtherNames) {
		v = append(v, "spec.otherNames")
	}
	return v
}

// addressViolations compares the names that are no DNS names.
func addressViolations(spec *certmanagerv1.CertificateSpec, names pki.AltNames) []string {
	var v []string
	if !sameSet(pki.CanonicalIPs(spec.IPAddresses), names.IPAddresses) {
		v = append(v, "spec.ipAddresses")
	}
	if !sameSet(pki.CanonicalURIs(spec.URIs), names.URIs) {
		v = append(v, "spec.uris")
	}
	if !sameSet(pki.CanonicalEmails(spec.EmailAddresses), pki.CanonicalEmails(names.EmailAddresses)) {
		v = append(v, "spec.emailAddresses")
	}
	return v
}

func sameOtherNames(want []certmanagerv1.OtherName, names []pki.OtherName) bool {
	var got []certmanagerv1.OtherName
	for _, n := range names {
		got = append(got, certmanagerv1.OtherName{OID: n.OID, UTF8Value: n.Value})
	}
	compare := func(a, b certmanagerv1.OtherName) int {
		return cmp.Or(strings.Compare(a.OID, b.OID), strings.Compare(a.UTF8Value, b.UTF8Value))
	}
	set := func(n []certmanagerv1.OtherName) []certmanagerv1.OtherName {
		return slices.Compact(slices.SortedFunc(slices.Values(n), compare))
	}
	return slices.Equal(set(want), set(got))
}

func subjectViolations(spec *certmanagerv1.CertificateSpec, raw []byte) []string {
	if spec.LiteralSubject != "" {
		want, err := pki.LiteralSubjectDER(spec.LiteralSubject)
		if err != nil || !pki.SubjectsEqual(want, raw) {
			return []string{"spec.literalSubject"}
		}
		return nil
	}
	var v []string
	got := pki.SubjectOf(raw)
	if spec.CommonName != got.CommonName {
		v = append(v, "spec.commonName")
	}
	want := certmanagerv1.X509Subject{}
	if spec.Subject != nil {
		want = *spec.Subject
	}
	if want.SerialNumber != got.SerialNumber {
		v = append(v, "spec.subject.serialNumber")
	}
	for _, part := range []struct {
		name      string
		want, got []string
	}{
		{"organizations", want.Organizations, got.Organization},
		{"countries", want.Countries, got.Country},
		{"localities", want.Localities, got.Locality},
		{"organizationalUnits", want.OrganizationalUnits, got.OrganizationalUnit},
		{"postCodes", want.PostalCodes, got.PostalCode},
		{"provinces", want.Provinces, got.Province},
		{"streetAddresses", want.StreetAddresses, got.StreetAddress},
	} {
		if !sameSet(part.want, part.got) {
			v = append(v, "spec.subject."+part.name)
		}
	}
	return v
}

// Violations compares an issued certificate with the spec when the
// request it came from is gone. It is lenient: issuers may move the common name
// into the DNS names, or out of them.
func Violations(spec *certmanagerv1.CertificateSpec, leaf *Leaf) []string {
	var v []string
	names := func(cn string, dns []string) []string {
		if cn != "" {
			dns = append(slices.Clone(dns), cn)
		}
		return pki.CanonicalDNSNames(dns)
	}
	cn := strings.ToLower(spec.CommonName)
	if spec.LiteralSubject != "" {
		cn = strings.ToLower(leaf.CommonName)
	}
	if want, got := names(cn, spec.DNSNames), names(leaf.CommonName, leaf.Names.DNSNames); !sameSet(want, got) {
		otherDNS := !sameSet(names("", spec.DNSNames), names("", leaf.Names.DNSNames))
		if cn != "" && !slices.Contains(got, cn) || !otherDNS {
			v = append(v, "spec.commonName")
		}
		if otherDNS {
			v = append(v, "spec.dnsNames")
		}
	}
	return append(v, addressViolations(spec, leaf.Names)...)
}

// sameSet reports whether two lists hold the same elements, in any order and
// however often.
func sameSet[T ~string](a, b []T) bool {
	sorted := func(s []T) []T { return slices.Compact(slices.Sorted(slices.Values(s))) }
	return slices.Equal(sorted(a), sorted(b))
}
