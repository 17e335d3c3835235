package acme

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"math/big"
	"net/netip"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"chancery.dev/internal/fault"
)

// The example of RFC 9773 §4.1.
func TestCertIDVector(t *testing.T) {
	akid := []byte{0x69, 0x88, 0x5B, 0x6B, 0x87, 0x46, 0x40, 0x41, 0xE1, 0xB3, 0x7B, 0x84, 0x7B, 0xA0, 0xAE, 0x2C, 0xDE, 0x01, 0xC8, 0xD4}
	id, err := CertID(&x509.Certificate{AuthorityKeyId: akid, SerialNumber: big.NewInt(0x87654321)})
	if err != nil || id != "aYhba4dGQEHhs3uEe6CuLN4ByNQ.AIdlQyE" {
		t.Errorf("%q, %v", id, err)
	}
	id, err = CertID(&x509.Certificate{AuthorityKeyId: []byte{1}, SerialNumber: big.NewInt(0x7f)})
	if err != nil || id != "AQ.fw" {
		t.Errorf("%q, %v", id, err)
	}
	for _, cert := range []*x509.Certificate{{SerialNumber: big.NewInt(1)}, {AuthorityKeyId: akid}} {
		if _, err := CertID(cert); err == nil {
			t.Errorf("an ID for %+v", cert)
		}
	}
}

func TestIdentifiers(t *testing.T) {
	for addr, want := range map[string]string{"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1", "2001:DB8:0::1": "2001:db8::1"} {
		if got := IP(netip.MustParseAddr(addr)).Value; got != want {
			t.Errorf("%s: %s", addr, got)
		}
	}
	body, err := json.Marshal(NewOrderRequest{Identifiers: []Identifier{DNS("*.example.com")}})
	if err != nil || string(body) != `{"identifiers":[{"type":"dns","value":"*.example.com"}]}` {
		t.Errorf("%s, %v", body, err)
	}
}

func FuzzParseProblem(f *testing.F) {
	f.Add([]byte(`{"type":"urn:ietf:params:acme:error:dns","detail":"a\u0000\n","subproblems":[{"type":"x","identifier":{"type":"dns","value":"a"}}]}`))
	f.Add([]byte(`{"detail":"` + strings.Repeat("ä", 3000) + `"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		p := ParseProblem(400, body)
		if p == nil {
			return
		}
		if p.Type == "" || p.Status != 400 || len(p.Detail) > fault.MaxQuote+fault.MaxQuotedLink+len(" …  …") {
			t.Errorf("%+v", p)
		}
		if text := p.Error(); !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
			t.Errorf("%q", text)
		}
	})
}

// TestAProblemFitsAStatus: CertificateRequests hold 128 KiB of text, and what does not fit is never written.
func TestAProblemFitsAStatus(t *testing.T) {
	p := &Problem{Type: CodeCompound.Type(), Detail: strings.Repeat("d", fault.MaxQuote)}
	for range maxSubproblems {
		p.Subproblems = append(p.Subproblems, Subproblem{Type: CodeCAA.Type(), Detail: strings.Repeat("s", fault.MaxQuote)})
	}
	if text := p.Error(); len(text) > 600 || !strings.HasSuffix(text, "; and 100 more") {
		t.Errorf("%d bytes: …%s", len(text), text[len(text)-40:])
	}
	for i := range p.Subproblems {
		p.Subproblems[i].Identifier, p.Subproblems[i].Detail = DNS(fmt.Sprintf("%d.example.com", i)), "CAA forbids it"
	}
	p.Detail = "some names are refused"
	text := p.Error()
	if !strings.Contains(text, "; 1.example.com: urn:ietf:params:acme:error:caa: CAA forbids it; ") {
		t.Error("a subproblem is missing:", text)
	}
	if quoted := strings.TrimPrefix(text, p.Type+": "); len(quoted) > fault.MaxQuote+len("; and 100 more") || !strings.HasSuffix(text, " more") {
		t.Errorf("%d bytes: %s", len(quoted), text)
	}
}
