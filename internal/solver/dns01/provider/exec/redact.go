package exec

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/go-logr/logr"

	"chancery.dev/internal/fault"
)

const (
	// leastSecret is the shortest text that is taken out: shorter ones occur in any text.
	leastSecret = 4
	// leastPiece is the shortest line of a secret with several lines that is taken out by itself.
	leastPiece = 16
)

// redactor returns a function that takes secrets out of text: as they are, and encoded as in URLs, JSON and HTTP
// headers. It keeps about a hundred bytes for each byte of the secrets, which limits.Credentials bounds.
func redactor(secrets map[string]string) func(string) string {
	var forms []string
	add := func(s string) {
		if len(s) < leastSecret {
			return
		}
		forms = append(forms, s, url.QueryEscape(s), url.PathEscape(s),
			base64.StdEncoding.EncodeToString([]byte(s)), base64.RawURLEncoding.EncodeToString([]byte(s)))
		if quoted, err := json.Marshal(s); err == nil {
			forms = append(forms, strings.Trim(string(quoted), `"`))
		}
	}
	for _, s := range secrets {
		add(s)
		add(strings.TrimSpace(s))
		for piece := range strings.SplitSeq(strings.ReplaceAll(s, `\n`, "\n"), "\n") {
			if len(piece) >= leastPiece {
				add(strings.TrimSpace(piece))
			}
		}
	}
	// The longest first: one may be part of another.
	slices.SortFunc(forms, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	var pairs []string
	for _, f := range slices.Compact(forms) {
		pairs = append(pairs, f, "[redacted]")
	}
	return strings.NewReplacer(pairs...).Replace
}

// changing matches the parts that differ in each answer of a provider: request ids, trace ids, times.
var changing = regexp.MustCompile(`(?i)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}` +
	`|\b(?:request|trace|correlation|ray)[ _-]?id"?[:=]? *"?[0-9a-z._:/-]{6,}` +
	`|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[0-9.]*(?:Z|[+-]\d\d:?\d\d)?`)

// steady makes an error's text the same on every try, for the status of an object: each change is a write (spec §5.7).
func steady(s string) string {
	return cmp.Or(fault.Quote(changing.ReplaceAllString(s, "[…]")), "it failed and does not say why")
}

// logLines logs what a program writes to standard error, a line at a time.
type logLines struct {
	log    logr.Logger
	redact func(string) string
	rest   []byte
	left   int
}

// Write implements io.Writer. It takes all, so that a program never waits.
func (l *logLines) Write(p []byte) (int, error) {
	for part := range bytes.Lines(p) {
		l.rest = append(l.rest, part[:min(len(part), maxHeldLine-len(l.rest))]...)
		if bytes.HasSuffix(part, []byte("\n")) {
			l.line()
		}
	}
	return len(p), nil
}

// line logs a line. It is cut after its secrets are taken out: a piece of a secret would not be found.
func (l *logLines) line() {
	held := string(l.rest)
	l.rest = nil
	if l.left <= 0 {
		return
	}
	text := strings.TrimRight(l.redact(held), "\r\n")
	text = text[:min(len(text), maxStderrLine)]
	if l.left -= len(text) + 1; l.left <= 0 {
		l.log.Info("the program says more than is logged")
		return
	}
	l.log.Info(text)
}
