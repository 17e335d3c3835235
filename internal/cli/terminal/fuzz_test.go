package terminal_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"chancery.dev/internal/cli/terminal"
)

// FuzzPrintable: what is left is UTF-8 without anything that a terminal obeys, to clean it again changes nothing, and
// it is the same in however many parts it is written.
func FuzzPrintable(f *testing.F) {
	f.Add("ü\x1b[31m\u202e\U000e0041\xe8\xa8\t\n", 3)
	f.Add("\x9b2J", 1)
	f.Fuzz(func(t *testing.T, text string, at int) {
		got := terminal.Text(text)
		bad := strings.ContainsFunc(got, func(r rune) bool { return r != '\n' && r != '\t' && unicode.In(r, unicode.Cc, unicode.Cf) })
		if bad || !utf8.ValidString(got) || terminal.Text(got) != got || strings.ContainsAny(terminal.Line(text), "\n\t") {
			t.Errorf("%q: %q", text, got)
		}
		var out bytes.Buffer
		w := terminal.NewWriter(&out)
		at = max(0, min(at, len(text)))
		fmt.Fprint(w, text[:at])
		fmt.Fprint(w, text[at:]+"\n") // a character that is cut off is written with what follows
		if want := terminal.Text(text + "\n"); out.String() != want {
			t.Errorf("%q, cut at %d: %q, want %q", text, at, out.String(), want)
		}
	})
}
