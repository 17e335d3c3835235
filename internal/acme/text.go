package acme

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxExcerpt bounds, in bytes, the part of a field that is shown although the field is not as ACME has it.
const MaxExcerpt = 512

// Sanitise makes text of a stranger fit to be shown: valid UTF-8, no control characters,
// runs of white space as one space, at most limit bytes.
func Sanitise(s string, limit int) string {
	if len(s) > 4*limit {
		s = s[:4*limit] // bound the work, too
	}
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case r == utf8.RuneError || !unicode.IsPrint(r):
			return -1
		default:
			return r
		}
	}, s)
	s = strings.Join(strings.Fields(s), " ")
	if len(s) <= limit {
		return s
	}
	s = s[:limit]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s
}
