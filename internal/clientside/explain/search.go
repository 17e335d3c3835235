package explain

import "strings"

// Search is what somebody types to find Certificates: words, each of which has to fit. The zero value takes all.
//
// A word fits a part of the namespace and the name, of the issuer's kind and name, of a host, of the state, of the
// health, or of the class of the trouble; a host fits the wildcard that covers it. A word after "state:", "issuer:",
// "namespace:" or "cause:" has to be the health, the issuer (a name, or kind/name), the namespace or the class itself.
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

// Find returns those of some Certificates that are to be shown.
func (s Search) Find(reports []Report) []Report {
	if len(s.words) == 0 {
		return reports
	}
	var found []Report
	for _, r := range reports {
		if s.Takes(r) {
			found = append(found, r)
		}
	}
	return found
}

// A word with one of these labels has to be something itself.
const stateLabel, issuerLabel, namespaceLabel, causeLabel = "state:", "issuer:", "namespace:", "cause:"

// Label is the label of a word, with its colon; empty if it has none.
func Label(word string) string {
	for _, label := range []string{stateLabel, issuerLabel, namespaceLabel, causeLabel} {
		if strings.HasPrefix(word, label) {
			return label
		}
	}
	return ""
}

// IssuerSearch is what finds the Certificates of an issuer; empty if no search can.
func IssuerSearch(issuer Node) string {
	search := issuerLabel + issuer.Kind + "/" + issuer.Name
	if issuer.Namespace != "" {
		search = namespaceLabel + issuer.Namespace + " " + search
	}
	if len(search) > maxSearch || strings.ContainsFunc(issuer.Name, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return "" // anybody may write anything into spec.issuerRef
	}
	return strings.ToLower(search)
}

// maxSearch is how long a search for an issuer with the longest names is, in bytes.
const maxSearch = 400

// Search is what finds the Certificates of a group; empty if no search can.
func (g *Group) Search() string {
	issuer, class := IssuerSearch(g.First.Issuer), classWord(g.Class)
	if issuer == "" || len(class) > maxSearch || strings.ContainsFunc(class, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return ""
	}
	if class == "" {
		return issuer + " " + causeLabel + " " + stateLabel + "trouble"
	}
	return issuer + " " + causeLabel + class
}

// classWord is a class as a search has it.
func classWord(class string) string { return strings.ReplaceAll(strings.ToLower(class), " ", "") }

func fits(r Report, word string) bool {
	label := Label(word)
	switch value := word[len(label):]; label {
	case stateLabel:
		return value == string(r.Health) || value == "trouble" && r.Health.IsTrouble()
	case issuerLabel:
		return strings.EqualFold(value, r.Issuer.Name) || strings.EqualFold(value, r.Issuer.Kind+"/"+r.Issuer.Name)
	case namespaceLabel:
		return value == r.Namespace
	case causeLabel:
		return value == classWord(r.Class)
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
