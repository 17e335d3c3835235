package layout_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// term is a word that everything a user reads says of a thing, and no other.
type term struct {
	word, means string
	// not are other words for the same, as a reader sees them, and bad finds them.
	not string
	bad *regexp.Regexp
}

// terms are the words. JSON fields and the names of metrics, flags and annotations are what they are.
func terms() []term {
	re := func(alternatives ...string) *regexp.Regexp {
		return regexp.MustCompile(strings.Join(alternatives, "|"))
	}
	return []term{
		{word: "Certificate", means: "the object that asks. What is in its Secret is a certificate"},
		{word: "issuer", means: "an Issuer, a ClusterIssuer, or an object of another controller that a Certificate names"},
		{word: "request", means: "a CertificateRequest or a CertificateSigningRequest"},
		{word: "older root", means: "a root that a CA had before, and that is valid"},
		{word: "link", means: "a certificate that an older root has signed for the root after it, so that clients with the older root accept what the new one signs"},
		{word: "proof", means: "what shows a CA that a name is yours: a Challenge asks for it, a solver makes it"},
		{
			"expire", "of a certificate or a CA: its time has come. The time is its expiry", "end, be over",
			re(`\b[Cc]ertificates? (that |which )?(would |will |has |have )?end(s|ed)?\b`, `\b(ends|ended) in \d`, `\bend(s|ed)? (within|soon|first|on [%\d])`,
				`\bfirst to end\b`, `\b[Ee]nd of (a|the|its|their|an issuer's) (old |new )?(certificate|CA)\b`, `\b(authorization|CA|root)('s)? ends?\b`,
				`\b(they|it) ends? by itself\b`, `\bbefore the end\b`),
		},
		{
			"finished", "of a request, Order, Challenge or test: nothing more becomes of it", "ended, over",
			re(`\b(has|have) (not )?ended\b`, `\b(is|are|was|were) over\b`, `\b(until|when|before|after|once) (it|they) ends?\b`,
				`\b([Cc]hallenge|Order|[Rr]equest|test|replacement)s? ends\b`),
		},
		{
			"renew", "have another certificate issued for a Certificate: in time, after a change, or because you say so", "issue again",
			re(`\bissued? (all |leaves |them |it )?(at once )?again\b`, `\bissues? .{0,50}\bagain\b`, `\b[Ii]ssue again\b`),
		},
		{"correct", "change what is wrong. Repair is for what runs, such as a webhook", "mend, fix", re(`\b[Mm]end(s|ed|ing)?\b`, `\b[Ff]ix(es|ed)? (the|what|your)\b`)},
		{
			"postponed", "of a Challenge: it waits for its proof to be seen, and has given its slot to others", "parked",
			re(`\b([Pp]arked|PARKED)\b`),
		},
		{"limited", "of an ACME account: the CA wants no requests of it for a time", "parked, blocked", re(`\baccounts? (is|are) blocked\b`)},
		{"one Challenge", "numbers go with singular and plural", "1 Challenges", re(`\b1 (Certificates|Challenges|Orders|[Ii]ssuers|certificates|names|requests|causes)\b`)},
	}
}

// TestTerms: docs/terms.md lists the terms: go test ./internal/layout -update writes it.
func TestTerms(t *testing.T) {
	var page strings.Builder
	page.WriteString(`# One word for one thing

Look a word up here if you wonder what it means, or write a text for users and wonder which word to take. A test reads
outputs, conditions, events, help and these pages against the last column. JSON fields, and the names of metrics, flags
and annotations, stay as they are.

| word | what it means | not |
|---|---|---|
`)
	for _, w := range terms() {
		page.WriteString("| " + w.word + " | " + w.means + " | " + w.not + " |\n")
	}
	page.WriteString(`
The words of the kinds and their fields are those of the [reference](reference/fields.md), and what clients of
cert-manager see has cert-manager's words: [spec](spec/README.md).
`)
	written(t, "terms.md", page.String())
}

// TestWords: what users read has the words of docs/terms.md.
func TestWords(t *testing.T) {
	read := 0
	for name, text := range readTexts(t) {
		for _, said := range saidBy(t, name, text) {
			read++
			for _, problem := range otherWords(said) {
				t.Errorf("%s: %s", name, problem)
			}
		}
	}
	if read < 5000 {
		t.Errorf("only %d texts: are they elsewhere?", read)
	}
}

// TestWordsBite: each kind of text is read, and each word that is not to be used is found.
func TestWordsBite(t *testing.T) {
	for name, text := range map[string]string{
		"docs/a.md": "Mend it. `parked` is a field.", "internal/a/testdata/a.txt": "  event Warning X: it is over", "deploy/chart/files/alerts.yaml": "  d: mend it",
		"internal/a/a.go": "package a\n\ntype t struct {\n\tA string `json:\"is over\"`\n}\n\nvar x = \"certificates that \" + \"is issued again\" + \"parked\"\n",
	} {
		found := 0
		for _, said := range saidBy(t, name, text) {
			found += len(otherWords(said))
		}
		if found != 1 {
			t.Errorf("%s: %d are found", name, found)
		}
	}
	for _, text := range []string{
		"the certificate ends", "ends in 69d", "ended on 2026", "those that end first", "the first to end", "the end of their certificate", "its authorization ends",
		"has not ended", "the replacement is over", "until it ends", "a Challenge ends as errored", "issued again", "issues the leaves again", "Issue again", "mended it",
		"PARKED UNTIL", "1 Challenges",
	} {
		if len(otherWords(text)) == 0 {
			t.Errorf("%q is not found", text)
		}
	}
	for _, text := range []string{"it ends with …", "ends in `_total`", "over TLS", "the end of the page", "21 Challenges", "recommended it", "issued", "the program ended"} {
		if found := otherWords(text); len(found) > 0 {
			t.Errorf("%q: %q", text, found)
		}
	}
}

// otherWords says which words of a text are not those of the terms.
func otherWords(text string) (problems []string) {
	for _, w := range terms() {
		if w.bad == nil {
			continue
		}
		for _, found := range w.bad.FindAllString(text, -1) {
			problems = append(problems, strconv.Quote(found)+": the word is "+w.word+", see docs/terms.md")
		}
	}
	return problems
}

var code, quoted = regexp.MustCompile("`[^`]*`"), regexp.MustCompile(`"[^"]*"`)

// saidBy returns what users read of a file: paragraphs of pages, outputs and statuses in tables of decisions, texts in
// programs. Fields and names are no text.
func saidBy(t *testing.T, name, text string) []string {
	t.Helper()
	switch {
	case slices.Contains([]string{"docs/terms.md", "docs/mission.md"}, name), strings.HasPrefix(name, "docs/spec/"), strings.HasPrefix(name, "docs/decisions/"):
		return nil
	case strings.HasPrefix(name, "docs/") && path.Ext(name) == ".md", name == "README.md":
		return strings.Split(strings.Join(strings.Fields(code.ReplaceAllString(text, "x")), " "), ". ")
	case strings.HasPrefix(name, "internal/") && strings.Contains(name, "/testdata/") && path.Ext(name) == ".txt", name == "deploy/chart/files/alerts.yaml":
		var all []string
		for line := range strings.Lines(text) {
			switch {
			case strings.Contains(line, " -> "): // a state that the test names, and what is decided in it
				all = append(all, quoted.FindAllString(line, -1)...)
			case strings.HasPrefix(line, " "):
				all = append(all, line)
			}
		}
		return all
	case path.Ext(name) == ".go" && !strings.HasSuffix(name, "_test.go") && ofUsers(name):
		return literals(t, name, text)
	}
	return nil
}

// ofUsers reports whether a file is of a program that users run.
func ofUsers(name string) bool {
	for _, other := range []string{"internal/rig/", "internal/layout/", "standalone/bench/", "standalone/child/", "standalone/compare/", "e2e/", "tools/"} {
		if strings.HasPrefix(name, other) {
			return false
		}
	}
	return true
}

// literals are the texts in a program of more than a word.
func literals(t *testing.T, name, text string) (all []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	tags := map[*ast.BasicLit]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			if n.Tag != nil {
				tags[n.Tag] = true
			}
		case *ast.BasicLit:
			if said, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING && !tags[n] && strings.Contains(said, " ") {
				all = append(all, said)
			}
		}
		return true
	})
	return all
}
