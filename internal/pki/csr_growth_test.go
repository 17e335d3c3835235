package pki

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/binary"
	"strconv"
	"testing"

	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/growth"
)

// TestRequestsGrow: a request is read, and says what it says, at a cost that grows with its size: as many names,
// or parts of a subject, as there is room for, each as short as it may be.
func TestRequestsGrow(t *testing.T) {
	key := mustKey(t, ECDSA)
	number := func(i int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(i)) }
	// names makes a request with as many names as fit.
	names := func(each int, name func(i int) asn1.RawValue) func(size int) x509.CertificateRequest {
		return func(size int) (r x509.CertificateRequest) {
			var x extensions
			var all []asn1.RawValue
			for i := range size / each {
				all = append(all, name(i))
			}
			x.add(oidSubjectAltName, false, all)
			if x.err != nil {
				t.Fatal(x.err)
			}
			r.ExtraExtensions = x.list
			return r
		}
	}
	for what, of := range map[string]func(size int) x509.CertificateRequest{
		"the same DNS name":   names(3, func(int) asn1.RawValue { return generalName(tagDNS, []byte("a")) }),
		"DNS names":           names(8, func(i int) asn1.RawValue { return generalName(tagDNS, []byte(strconv.Itoa(100_000+i))) }),
		"addresses":           names(6, func(i int) asn1.RawValue { return generalName(tagIP, number(i)) }),
		"URIs":                names(8, func(i int) asn1.RawValue { return generalName(tagURI, []byte(strconv.Itoa(100_000+i))) }),
		"addresses of e-mail": names(3, func(int) asn1.RawValue { return generalName(tagEmail, []byte("a")) }),
		"parts of a subject": func(size int) (r x509.CertificateRequest) {
			var rdns pkix.RDNSequence
			for range size / 14 {
				rdns = append(rdns, pkix.RelativeDistinguishedNameSET{{Type: asn1.ObjectIdentifier{2, 5, 4, 11}, Value: "a"}})
			}
			var err error
			if r.RawSubject, err = asn1.Marshal(rdns); err != nil {
				t.Fatal(err)
			}
			return r
		},
	} {
		t.Run(what, func(t *testing.T) {
			const der = (limits.ChainPEM - 100) / 65 * 48 // PEM has 65 bytes for 48
			growth.Linear(t, der, func(size int) func() {
				request := of(size - 400)
				made, err := x509.CreateCertificateRequest(rand.Reader, &request, key)
				if err != nil {
					t.Fatal(err)
				}
				text := pemBlock(pemRequest, made)
				if len(text) > limits.ChainPEM || len(made) < size*3/4 {
					t.Fatalf("the request has %d bytes of %d", len(text), size)
				}
				return func() {
					csr, err := DecodeCSR(text)
					if err != nil {
						t.Fatal(err)
					}
					facts, err := InspectCSR(csr)
					if err != nil || !bytes.Equal(facts.RawSubject, csr.RawSubject) {
						t.Fatal(err)
					}
					if err := HiddenExtensions(csr); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}
