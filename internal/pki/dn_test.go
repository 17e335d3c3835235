package pki

import (
	"encoding/asn1"
	"strings"
	"testing"
)

func TestParseLiteralSubject(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		// want is what crypto/x509/pkix makes of the DER: RFC 4514 again, by other hands.
		{"", ""},
		{"  ", ""},
		{"CN=foo", "CN=foo"},
		{"cn=foo,O=Bar", "CN=foo,O=Bar"},
		{"CN=foo, OU=a+OU=b , C=DE", "CN=foo,OU=a+OU=b,C=DE"},
		{`CN=foo\, bar\+x\\`, `CN=foo\, bar\+x\\`},
		{`CN=\ a\ ,O=x`, `CN=\ a\ ,O=x`},
		{`CN=a\\ ,O=x`, `CN=a\\,O=x`},
		{`CN=\#x`, `CN=\#x`},
		{`CN=M\C3\BCller`, "CN=Müller"},
		{"CN=Müller", "CN=Müller"},
		{"CN=a=b", "CN=a=b"},
		{"CN=a;O=b", "CN=a,O=b"},
		{"2.5.4.3=foo", "CN=foo"},
		{"CN=#0c03666f6f", "CN=foo"},
		{"STREET=1 Way,POSTALCODE=123,L=Town,ST=State,SERIALNUMBER=7", "STREET=1 Way,POSTALCODE=123,L=Town,ST=State,SERIALNUMBER=7"},
	} {
		rdns, err := ParseLiteralSubject(c.in)
		if err != nil {
			t.Errorf("%q: %v", c.in, err)
			continue
		}
		der, err := asn1.Marshal(rdns)
		if err != nil {
			t.Errorf("%q: %v", c.in, err)
			continue
		}
		back, err := decodeName(der)
		if err != nil || back.String() != c.want {
			t.Errorf("%q: became %q, %v; want %q", c.in, back, err, c.want)
		}
	}
}

func TestLiteralSubjectIsReversed(t *testing.T) {
	rdns, err := ParseLiteralSubject("CN=leaf,O=org,C=DE")
	if err != nil {
		t.Fatal(err)
	}
	if len(rdns) != 3 || rdns[0][0].Value != "DE" || rdns[2][0].Value != "leaf" {
		t.Errorf("order in DER is that of the string reversed, got %v", rdns)
	}
}

func TestLiteralSubjectDomainComponentIsIA5(t *testing.T) {
	der, err := LiteralSubjectDER("CN=x,UID=u,DC=example,DC=com")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(der), "\x16\x03com") || !strings.Contains(string(der), "\x16\x07example") {
		t.Errorf("domain components are not IA5Strings: %x", der)
	}
}

func TestParseLiteralSubjectRefuses(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"CN", "key=value"},
		{"=x", "Literal subject contains unrecognized key with value [x]"},
		{"CN=a,b", "key=value"},
		{"CN=a,", "key=value"},
		{"CN=", "empty"},
		{"CN=a,O=", "empty"},
		{"DC=bücher", "xn--"},
		{"FOO=bar", "Literal subject contains unrecognized key with value [bar]"},
		{"CN=foo,,=bar", `Literal subject contains unrecognized key with value [bar]: there is nothing in front of a ','`},
		{"CN=foo,,O=bar", `Literal subject contains unrecognized key with value [bar]: there is nothing in front of a ','`},
		{"CN=foo,=bar", `Literal subject contains unrecognized key with value [bar]: the key is ""`},
		{"1.2.x=bar", "Literal subject contains unrecognized key with value [bar]"},
		{`CN=a\`, `a \ must be followed`},
		{`CN=a\q`, `a \ must be followed`},
		{`CN=\ff`, "UTF-8"},
		{"CN=\xff", "UTF-8"},
		{"CN=#zz", "hex"},
		{"CN=#0c05", "BER"},
		{"CN=" + strings.Repeat("x", maxLiteralSubject), "bytes"},
	} {
		_, err := ParseLiteralSubject(c.in)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.40q: error %v, want %q", c.in, err, c.want)
		}
	}
}

func TestSubjectsEqual(t *testing.T) {
	name := func(s string) []byte {
		der, err := LiteralSubjectDER(s)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	for _, c := range []struct {
		a, b []byte
		want bool
	}{
		{name("CN=a,O=b"), name("CN=a,O=b"), true},
		{name("CN=a"), name("CN=#0c0161"), true}, // PrintableString and UTF8String
		{name("CN=a,O=b"), name("O=b,CN=a"), false},
		{name("CN=a"), name("CN=A"), false},
		{name("CN=a"), name("O=a"), false},
		{name("CN=a"), name(""), false},
		{name("CN=a"), []byte("junk"), false},
	} {
		if got := SubjectsEqual(c.a, c.b); got != c.want {
			t.Errorf("%x and %x: %t, want %t", c.a, c.b, got, c.want)
		}
	}
}

func FuzzParseLiteralSubject(f *testing.F) {
	for _, s := range []string{"CN=foo,O=Bar", `CN=a\,b+OU=c;C=DE`, `CN=\ x\ `, "CN=#0c03666f6f", "2.5.4.3=x", `CN=\C3\BC`, "=,+", `\`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		rdns, err := ParseLiteralSubject(s)
		if err != nil {
			return
		}
		der, err := asn1.Marshal(rdns)
		if err != nil {
			t.Fatalf("%q parses but does not encode: %v", s, err)
		}
		if strings.Contains(s, "#") {
			return // a value given in BER may be anything
		}
		if _, err := decodeName(der); err != nil {
			t.Fatalf("%q encodes to what does not decode: %v", s, err)
		}
	})
}
