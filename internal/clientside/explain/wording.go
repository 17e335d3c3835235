package explain

import (
	"slices"
	"strings"
	"unicode"
)

// OthersShown is how many other messages of a Group people are shown.
const OthersShown = 2

// How much tells a cause from others: so many bytes without names and times, of so many bytes at most, and so many
// hosts of a Certificate are looked for.
const wordingText, wordingMost, wordingNames = 300, 2000, 20

// Wording is a message, and how many Certificates of a Group have it. The names of a Certificate, times and the like do
// not make another message.
type Wording struct {
	Cause        string `json:"cause"`
	Certificates int    `json:"certificates"`

	// first is the first Certificate that has it.
	first Report
	place int
}

// wordingOf is a cause without what differs from one Certificate to the next: its names, times, and what only machines
// read.
func wordingOf(r Report) string {
	if r.Cause == "" {
		return r.State
	}
	hosts := append([]string{r.subject}, r.Names[:min(len(r.Names), wordingNames)]...)
	for i, host := range hosts {
		hosts[i] = strings.TrimSuffix(strings.TrimPrefix(host, "*."), ".")
	}
	var wording strings.Builder
	said := r.Cause[:min(len(r.Cause), wordingMost)]
	if r.Namespace != "" {
		said = strings.ReplaceAll(said, r.Namespace+"/", "…/")
	}
	for word := range strings.FieldsFuncSeq(said, separates) {
		word = strings.TrimRight(word, ".:")
		switch {
		case isStamp(word) || slices.ContainsFunc([]string{r.Name, r.Namespace, r.Secret}, func(name string) bool { return isObject(word, name) }):
			word = "…"
		default:
			word, _, _ = strings.Cut(word, ":") // a port
			if slices.ContainsFunc(hosts, func(host string) bool { return isHost(word, host) }) {
				word = "…"
			}
		}
		wording.WriteString(word + " ")
		if wording.Len() > wordingText {
			break
		}
	}
	return wording.String()
}

func separates(c rune) bool {
	return unicode.IsSpace(c) || strings.ContainsRune("/\"'“”(),;=<>[]{}", c)
}

// isHost reports whether a word is a host, or a name below it.
func isHost(word, host string) bool {
	before := len(word) - len(host)
	return host != "" && before >= 0 && strings.EqualFold(word[before:], host) && (before == 0 || word[before-1] == '.')
}

// isObject reports whether a word is the name of an object, and no usual word, or the name of what was made for it.
func isObject(word, name string) bool {
	rest, found := strings.CutPrefix(word, name)
	return found && name != "" && (rest == "" && strings.ContainsAny(name, "-.") || strings.HasPrefix(rest, "-"))
}

// isStamp reports whether a word is a time, the number of an order or the like, or a token.
func isStamp(word string) bool {
	if len(word) < 8 || !strings.ContainsAny(word, "0123456789") {
		return false
	}
	return strings.Trim(word, "0123456789-:TZ") == "" || len(word) >= 20 && strings.IndexFunc(word, func(c rune) bool {
		return c != '-' && c != '_' && !unicode.IsLetter(c) && !unicode.IsDigit(c)
	}) < 0
}
