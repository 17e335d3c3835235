package pki_test

import (
	"testing"

	"chancery.dev/internal/pki"
)

func TestDNSNameKey(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"a.example.com": "a.example.com", "A.Example.COM.": "a.example.com", "*.Example.com": "*.example.com", "": "", ".": "",
		"a..": "a.", // no name: it fits none
	} {
		if got := pki.DNSNameKey(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
