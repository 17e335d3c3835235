package fault

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestQuote(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "",
		" one\r\n\ttwo ":            "one two",
		"a\xff\xfeb":                "ab",
		strings.Repeat("x", 512):    strings.Repeat("x", 512),
		strings.Repeat("x", 513):    strings.Repeat("x", 509) + "…",
		strings.Repeat("ü", 1<<10):  strings.Repeat("ü", 254) + "…",
		strings.Repeat("x ", 1<<10): strings.Repeat("x ", 254) + "x…",
	} {
		if got := Quote(text); got != want || len(got) > maxQuote || !utf8.ValidString(got) {
			t.Errorf("Quote(%.40q) = %q of %d bytes, want %q", text, got, len(got), want)
		}
	}
}
