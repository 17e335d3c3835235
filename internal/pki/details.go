package pki

import (
	"crypto/x509"
	"encoding/csv"
	"net"
	"net/url"
	"strings"
)

// CertificateAltNames returns the subject alternative names of a certificate in its
// order; an error if its otherNames do not parse.
func CertificateAltNames(cert *x509.Certificate) (AltNames, error) {
	names := altNames(cert.DNSNames, cert.EmailAddresses, cert.IPAddresses, cert.URIs)
	var err error
	names.OtherNames, err = parseOtherNames(cert.Extensions)
	return names, err
}

func altNames(dns, emails []string, ips []net.IP, uris []*url.URL) AltNames {
	n := AltNames{DNSNames: dns, EmailAddresses: emails}
	for _, ip := range ips {
		n.IPAddresses = append(n.IPAddresses, ip.String())
	}
	for _, u := range uris {
		n.URIs = append(n.URIs, u.String())
	}
	return n
}

// CertificateDetails returns what the annotations of a target Secret say about its certificate (spec §2.4), by
// annotation name without the prefix. A list is one RFC 4180 record in certificate order. common-name, alt-names,
// ip-sans and uri-sans are always there, the others only with a value.
func CertificateDetails(cert *x509.Certificate) map[string]string {
	names := altNames(cert.DNSNames, cert.EmailAddresses, cert.IPAddresses, cert.URIs)
	s := cert.Subject
	details := map[string]string{
		"common-name": s.CommonName,
		"alt-names":   csvRecord(names.DNSNames),
		"ip-sans":     csvRecord(names.IPAddresses),
		"uri-sans":    csvRecord(names.URIs),
	}
	for name, value := range map[string]string{
		"email-sans":                  csvRecord(names.EmailAddresses),
		"subject-organizations":       csvRecord(s.Organization),
		"subject-organizationalunits": csvRecord(s.OrganizationalUnit),
		"subject-countries":           csvRecord(s.Country),
		"subject-provinces":           csvRecord(s.Province),
		"subject-localities":          csvRecord(s.Locality),
		"subject-postalcodes":         csvRecord(s.PostalCode),
		"subject-streetaddresses":     csvRecord(s.StreetAddress),
		"subject-serialnumber":        s.SerialNumber,
	} {
		if value != "" {
			details[name] = value
		}
	}
	return details
}

// csvRecord returns a list as one record of RFC 4180, without a line end.
func csvRecord(values []string) string {
	if len(values) == 0 {
		return ""
	}
	var out strings.Builder
	w := csv.NewWriter(&out)
	// Neither call can fail: a strings.Builder takes everything.
	_ = w.Write(values)
	w.Flush()
	return strings.TrimSuffix(out.String(), "\n")
}
