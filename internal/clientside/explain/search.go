package explain

import "strings"

// Search is what somebody types to find Certificates: words, each of which has to fit. The zero value takes all.
//
// A word fits a part of the namespace and the name, of the issuer's kind and name, of a host, of the state, of the
// health, or of the class of the trouble; a host fits the wildcard that covers it. A word after "state:", "issuer:" or
// "namespace:" has to be the health, the issuer (a name, or kind/name) or the namespace itself.
type Search struct {
	words []string
}

// NewSearch takes what was typed.
func NewSearch(text string) Search { return Search{strings.Fields(strings.ToLower(text))} }

// Takes reports whether a Certificate is to be shown.
func (s Search) Takes(r Report) bool {
	for _, word := range s.words {
		if !fits(r, word) {
			return false
		}
	}
	return true
}

func fits(r Report, word string) bool {
	switch label, value, _ := strings.Cut(word, ":"); label {
	case "state":
		return value == string(r.Health)
	case "issuer":
		return strings.EqualFold(value, r.Issuer.Name) || strings.EqualFold(value, r.Issuer.Kind+"/"+r.Issuer.Name)
	case "namespace":
		return value == r.Namespace
	}
	for _, text := range []string{r.Namespace + "/" + r.Name, r.Issuer.Kind + "/" + r.Issuer.Name, r.State, string(r.Health), r.Class} {
		if strings.Contains(strings.ToLower(text), word) {
			return true
		}
	}
	_, parent, _ := strings.Cut(word, ".")
	for _, name := range r.Names {
		name = strings.ToLower(name)
		if base, wild := strings.CutPrefix(name, "*."); strings.Contains(name, word) || wild && parent != "" && base == parent {
			return true
		}
	}
	return false
}
