package injection

import "testing"

// TestStrangeParts: each PEM block that is no certificate counts, also one that cannot be read.
func TestStrangeParts(t *testing.T) {
	const empty = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
	for text, strange := range map[string]int{
		"":                   0,
		"# no block":         0,
		empty:                1,
		empty + "  " + empty: 2,
		"-----BEGIN CERTIFICATE-----\nA!AA\n-----END CERTIFICATE-----\n" + empty: 2,
		"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n":         1,
		"-----BEGIN CERTIFICATE-----\nAAAA":                                      1,
	} {
		if b := parse([]byte(text)); b.strange != strange || len(b.certs) > 0 {
			t.Errorf("%q: %d strange parts, want %d", text, b.strange, strange)
		}
	}
}
