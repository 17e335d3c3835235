package pki_test

import (
	"strings"
	"testing"

	"chancery.dev/internal/pki"
)

func TestDNSNameKey(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ü", 1<<20) // of no name
	for name, want := range map[string]string{
		"a.example.com": "a.example.com", "A.Example.COM.": "a.example.com", "*.Example.com": "*.example.com", "": "", ".": "",
		"a..":                  "a.", // no name: it fits none
		"www.bücher.example":   "www.xn--bcher-kva.example",
		"*.BÜCHER.example.":    "*.xn--bcher-kva.example",
		"_acme.straße.example": "_acme.xn--strae-oqa.example",
		"ｅｘａｍｐｌｅ.com":          "example.com", // as browsers read it
		"\u202eevil.example":   "\u202eevil.example",
		long:                   long,
	} {
		if got := pki.DNSNameKey(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
