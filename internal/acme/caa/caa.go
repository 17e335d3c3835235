// Package caa checks text by the grammar of an issue-value (RFC 8659 §4.2). CAA records and the TXT records of
// DNS-PERSIST-01 contain issue-values. The package looks up no records.
package caa

import "strings"

// Trim removes the white space that the grammar allows around a name, a tag and a value.
func Trim(s string) string { return strings.Trim(s, " \t") }

// Cut splits a parameter into its tag, in lower case, and its value, which IsValue judges; false if it is no
// tag=value.
func Cut(parameter string) (tag, value string, ok bool) {
	tag, value, ok = strings.Cut(parameter, "=")
	tag, value = strings.ToLower(Trim(tag)), Trim(value)
	return tag, value, ok && IsLabel(tag)
}

// IsLabel reports whether a text is a tag, or a label of a name: letters, digits, and hyphens between them.
func IsLabel(s string) bool {
	strange := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-'
	}
	return s != "" && s[0] != '-' && s[len(s)-1] != '-' && !strings.ContainsFunc(s, strange)
}

// IsValue reports whether a text is the value of a parameter: ASCII that can be printed, and no space.
func IsValue(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}
