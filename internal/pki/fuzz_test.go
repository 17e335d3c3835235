package pki

import (
	"bytes"
	"encoding/pem"
	"slices"
	"testing"
	"unicode/utf8"
)

// FuzzDecodeCSR: what is taken is one block of a request that verifies, reads the same from the PEM that is written of
// it, and has the same facts then.
func FuzzDecodeCSR(f *testing.F) {
	text, err := CreateCSR(fullTemplate(), mustKey(f, ECDSA))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(bytes.ReplaceAll(text, []byte("CERTIFICATE"), []byte("NEW CERTIFICATE")))
	f.Add(append([]byte("a comment\n"), text...))
	f.Fuzz(func(t *testing.T, text []byte) {
		csr, err := DecodeCSR(text)
		if err != nil {
			return
		}
		again, err := DecodeCSR(pemBlock(pemRequest, csr.Raw))
		if err != nil || !bytes.Equal(again.Raw, csr.Raw) || len(text) > MaxChainPEM {
			t.Fatalf("it is not read again: %v", err)
		}
		facts, err := InspectCSR(csr)
		if same, err2 := InspectPEM(text); (err == nil) != (err2 == nil) || err == nil && !slices.Equal(facts.Usages.UsageNames(), same.Usages.UsageNames()) {
			t.Errorf("%+v, %v and %+v, %v", facts, err, same, err2)
		}
	})
}

// FuzzFirstOf: the first certificate of a chain is the one that the whole chain has first, and the rest is a tail of
// the text.
func FuzzFirstOf(f *testing.F) {
	root := issue(f, "root", true, nil)
	f.Add(EncodeCertificates(issue(f, "leaf", false, root).cert, root.cert))
	f.Fuzz(func(t *testing.T, text []byte) {
		leaf, rest, err := FirstOf(text)
		if err == nil && !bytes.HasSuffix(text, rest) {
			t.Errorf("the rest is no tail: %q", rest)
		}
		all, err2 := DecodeChain(text)
		if err2 == nil && (err != nil || !leaf.Equal(all[0])) {
			t.Errorf("the first is %v (%v), the chain has %v", leaf, err, all[0])
		}
	})
}

// FuzzAltNames: a request that is made of names either is not made, or says these names, as they are written
// canonically.
func FuzzAltNames(f *testing.F) {
	f.Add("www.example.com", "2001:DB8::1", "spiffe://example.com/ü", "a@example.com", "1.3.6.1.4.1.311.20.2.3", "a@b")
	f.Add("*.example.com", "::ffff:192.0.2.1", "urn:a:b", `"a b"@example.com`, "1.2.840.2147483648", "ü")
	key := mustKey(f, ECDSA)
	f.Fuzz(func(t *testing.T, dns, ip, uri, email, oid, other string) {
		names := AltNames{
			DNSNames: nonEmpty(dns), IPAddresses: nonEmpty(ip), URIs: nonEmpty(uri), EmailAddresses: nonEmpty(email),
		}
		if oid != "" || other != "" {
			names.OtherNames = []OtherName{{OID: oid, Value: other}}
		}
		text, err := CreateCSR(CSRTemplate{AltNames: names}, key)
		if err != nil {
			return
		}
		csr, err := ParseCSR(text)
		if err != nil {
			return // crypto/x509 refuses some names, such as one with a space: the request fails, and says so
		}
		facts, err := InspectCSR(csr)
		if err != nil {
			t.Fatalf("%q: %v", names, err)
		}
		got := facts.AltNames
		if !slices.Equal(got.DNSNames, names.DNSNames) || !slices.Equal(got.EmailAddresses, names.EmailAddresses) ||
			!slices.Equal(got.IPAddresses, CanonicalIPs(names.IPAddresses)) || !slices.Equal(got.URIs, CanonicalURIs(names.URIs)) ||
			!slices.Equal(got.OtherNames, names.OtherNames) {
			t.Errorf("asked for %q, and the request says %q", names, got)
		}
	})
}

// FuzzSubjectsEqual: a name equals itself, in whichever order two are compared.
func FuzzSubjectsEqual(f *testing.F) {
	for _, s := range []string{"CN=a,O=b", "CN=#0c0161", ""} {
		der, err := LiteralSubjectDER(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(der, der)
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		if !SubjectsEqual(a, a) || SubjectsEqual(a, b) != SubjectsEqual(b, a) {
			t.Errorf("%x and %x", a, b)
		}
		if x, err := decodeName(a); err == nil && SubjectsEqual(a, b) {
			if y, err := decodeName(b); err != nil || len(x) != len(y) {
				t.Errorf("%x and %x have not as many parts", a, b)
			}
		}
	})
}

// onlyOurPEM reports whether a text is one PEM block after another, as we write them.
func onlyOurPEM(text []byte) bool {
	var out []byte
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			return len(text) == 0
		}
		out = pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})
		if !bytes.HasPrefix(text, out) || !utf8.Valid(out) {
			return false
		}
		text = rest
	}
}
