package fault

import (
	"strings"
	"testing"
	"unicode"
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
		if got := Quote(text); got != want || len(got) > MaxQuote || !utf8.ValidString(got) {
			t.Errorf("Quote(%.40q) = %q of %d bytes, want %q", text, got, len(got), want)
		}
	}
}

// TestQuoteCutsNoLink: wherever a link stands in a text, it is whole, or it is not there.
func TestQuoteCutsNoLink(t *testing.T) {
	t.Parallel()
	link := "https://portal.example/sfe/v1/unpause?jwt=" + strings.Repeat("x", 700)
	for before := range 1200 {
		text := strings.Repeat("w ", before) + "Please visit: " + link
		got := Quote(text)
		if !strings.HasSuffix(got, " "+link) || len(got) > MaxQuote+len(link)+1 || Links(got)[0] != link {
			t.Fatalf("after %d words: %s", before, got)
		}
		if got = Quote(text + ", then wait."); !strings.HasSuffix(got, " "+link+", …") || Links(got)[0] != link {
			t.Fatalf("after %d words, with words after it: %s", before, got)
		}
	}
	for text, want := range map[string]string{
		link: link,
		"https://" + strings.Repeat("x", MaxQuotedLink+1):                   "…",
		"see https://" + strings.Repeat("x", 2*maxQuoted) + " now":          "see…",
		"https://a.example " + link:                                         "https://a.example " + link,
		`<a href="http://a.example/` + strings.Repeat("y", 600) + `">x</a>`: `<a href=" http://a.example/` + strings.Repeat("y", 600) + " …",
	} {
		if got := Quote(text); got != want {
			t.Errorf("%.60s: %s", text, got)
		}
	}
}

// TestCutIsUTF8: whatever a text is, what is left of it is text.
func TestCutIsUTF8(t *testing.T) {
	for text, want := range map[string]string{
		strings.Repeat("\x80", 100):           "…",
		strings.Repeat("ü\xff", 100):          "üü…",
		"http://a.example/\nhttp://b.example": "http://a.example/ …",
	} {
		if got := Cut(text, 8); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// FuzzQuote: what is shown is short, printable text.
func FuzzQuote(f *testing.F) {
	f.Add("a\x1b[31m\nb " + strings.Repeat("https://x.example/ü ", 100))
	f.Add(strings.Repeat("http://", 1000))
	f.Fuzz(func(t *testing.T, text string) {
		got := Quote(text)
		if !utf8.ValidString(got) || strings.ContainsFunc(got, unicode.IsControl) || len(got) > MaxQuote+MaxQuotedLink+len("… …")+1 {
			t.Errorf("%d bytes: %q", len(got), got)
		}
	})
}
