// Package terminal makes text from untrusted sources safe to print on a terminal. It replaces escape sequences, other
// control characters (C0, DEL, C1), but not line ends and tabs. It also replaces invisible characters, and characters
// that change the direction of the text after them. The package writes the JSON escape of the character instead (such
// as \u001b), so that JSON keeps its meaning.
//
// All commands print through this package: Writer is for the whole output of a command, Line for one field in a line.
// The package does not limit the length of text, and does not escape HTML.
package terminal

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Text returns a text with the harmful characters as escapes. Line ends and tabs stay.
func Text(s string) string {
	if strings.IndexFunc(s, harmful) < 0 { // an invalid byte is utf8.RuneError, which is harmful as it may be one of C1
		return s
	}
	var out strings.Builder
	for _, r := range s {
		switch {
		case !harmful(r):
			out.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}

// Line is Text for a part of a line: runs of white space are one space.
func Line(s string) string { return Text(strings.Join(strings.Fields(s), " ")) }

// harmful reports whether a terminal obeys a character, or a reader does not see it. utf8.RuneError stands for bytes
// that are no UTF-8.
func harmful(r rune) bool {
	switch r {
	case '\n', '\t':
		return false
	case utf8.RuneError, '\u2028', '\u2029': // line and paragraph separator
		return true
	}
	return unicode.In(r, unicode.Cc, unicode.Cf)
}

// Writer writes as Text does.
type Writer struct {
	under io.Writer
	// part is the beginning of a character whose other bytes are still to come.
	part []byte
}

// NewWriter returns a Writer over another one. A Writer over a Writer is that Writer.
func NewWriter(under io.Writer) *Writer {
	if w, is := under.(*Writer); is {
		return w
	}
	return &Writer{under: under}
}

// Write implements io.Writer.
func (w *Writer) Write(p []byte) (int, error) {
	text := append(w.part, p...) //nolint:gocritic // part is written anew below
	whole := len(text)
	for i := max(0, whole-utf8.UTFMax+1); i < whole; i++ {
		if utf8.RuneStart(text[i]) && !utf8.FullRune(text[i:]) {
			whole = i
			break
		}
	}
	w.part = append([]byte(nil), text[whole:]...)
	if _, err := io.WriteString(w.under, Text(string(text[:whole]))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Raw returns the writer below a Writer: for what a command itself tells a terminal. Text in between has to go through
// Text.
func Raw(w io.Writer) io.Writer {
	if guarded, is := w.(*Writer); is {
		return guarded.under
	}
	return w
}
