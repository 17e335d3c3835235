package dashboard

import (
	"html/template"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"chancery.dev/internal/clientside/explain"
)

// maxTimes is how many times of a cause are kept on one line: strangers may write many.
const maxTimes = 4

// space is how many bytes of text a page has room for.
type space int

// take returns as much of a text as there is room for.
func (s *space) take(text string) string {
	for i, r := range text {
		if *s <= 0 {
			return text[:i] + "…"
		}
		*s -= space(utf8.RuneLen(r))
		if strings.ContainsRune("\"'&+<>", r) {
			*s -= 4 // HTML writes five bytes
		}
	}
	return text
}

func certificatePath(namespace, name string) string {
	return "/certificate/" + url.PathEscape(namespace) + "/" + url.PathEscape(name)
}

// find is where a search leads.
func find(search string) string {
	if search == "" {
		return "/"
	}
	return "/?" + url.Values{"q": {search}}.Encode()
}

// cut is the beginning of a long text.
func cut(text string) string {
	left := space(causeText)
	return left.take(text)
}

// cure is the beginning of what to do.
func cure(text string) string {
	left := space(cureText)
	return left.take(text)
}

// because is the beginning of a cause, in which a time is on one line.
func because(text string) template.HTML {
	words := strings.Split(cut(text), " ")
	for i, times := 0, 0; i < len(words); i++ {
		_, err := time.Parse(time.RFC3339, strings.TrimRight(words[i], ",:;."))
		words[i] = template.HTMLEscapeString(words[i])
		if err == nil && times < maxTimes {
			words[i] = `<span class="nb">` + words[i] + `</span>`
			times++
		}
	}
	return template.HTML(strings.Join(words, " "))
}

// hosts are the first of the names of a certificate, and how many more there are.
func hosts(names []string) string {
	left, shown := space(hostText), ""
	for i, name := range names {
		if i > 0 && len(name) > int(left)-2 {
			return shown + " and " + strconv.Itoa(len(names)-i) + " more"
		}
		if i > 0 {
			shown += ", "
		}
		shown += left.take(name)
	}
	return shown
}

// soft is a name of which, if it is long, a browser may begin a new line after dots and slashes.
func soft(name string) template.HTML {
	var text strings.Builder
	since := 0 // the last place for a new line
	for part := range strings.FieldsFuncSeq(strings.NewReplacer(".", ".\n", "/", "/\n", ":", ":\n").Replace(name), func(c rune) bool { return c == '\n' }) {
		if since += len(part); len(name) > 40 && since > len(part) && since > softLine {
			text.WriteString("<wbr>")
			since = len(part)
		}
		text.WriteString(template.HTMLEscapeString(part))
	}
	return template.HTML(text.String())
}

// softLine is how many bytes of a long name stay together at least.
const softLine = 20

// longest is a name of an object: anybody may write a longer one into spec.issuerRef.
func longest(name string) string {
	left := space(nameMost)
	return left.take(name)
}

// short is the beginning of a word.
func short(word string) string {
	left := space(shortText)
	return left.take(word)
}

// issuer is the name of an issuer, and then its kind: most are of one kind.
func issuer(title string) template.HTML {
	kind, name, _ := strings.Cut(strings.Replace(title, " ", "/", 1), "/")
	return soft(longest(name)) + " <small>" + soft(short(kind)) + "</small>"
}

// mark is the word for a health in the table.
func mark(r explain.Row, now time.Time) string {
	switch {
	case r.Health == explain.Expired && r.Expires != nil && r.Expires.After(now):
		return "CA expired"
	case r.Health == explain.Late && r.CAExpires != nil:
		return "CA expires soon"
	case r.Health == explain.Late:
		return "expires before renewal"
	case r.Health == explain.Issuing:
		return "being issued"
	default:
		return string(r.Health)
	}
}

// outcome is the colour of an object of the chain, or of an issuer.
func outcome(of string) string {
	switch of {
	case explain.Issued.String():
		return "good"
	case explain.Failed.String():
		return "bad"
	default:
		return "waiting"
	}
}

func plural(n int, one string) string {
	if n != 1 {
		one += "s"
	}
	return strconv.Itoa(n) + " " + one
}

// day10 is the day of a time.
func day10(at *metav1.Time) string { return at.UTC().Format(time.DateOnly) }

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }

func at(now time.Time) *metav1.Time { return &metav1.Time{Time: now} }

// far is how far a time is.
func far(at *metav1.Time, now time.Time) string {
	if away := at.Sub(now); away >= 0 {
		return "in " + duration.HumanDuration(away)
	}
	return duration.HumanDuration(now.Sub(at.Time)) + " ago"
}

// renewal is when the next try or the renewal is, or since when the renewal is due.
func renewal(r explain.Row, now time.Time) string {
	switch {
	case r.Cause != "" && r.Tries != nil && r.Tries.After(now):
		return "next try " + far(r.Tries, now)
	case r.Renews == nil:
		return "–"
	case r.Renews.After(now):
		return far(r.Renews, now)
	default:
		return "due " + far(r.Renews, now)
	}
}

// unbroken is a command in which no line ends between a dash and the letters of a flag.
func unbroken(command string) template.HTML {
	return template.HTML(oneFlag.ReplaceAllString(template.HTMLEscapeString(command), `$1<span class="nb">$2</span>`))
}

// oneFlag is a flag after a space. No flag of ours is longer than a line of a telephone.
var oneFlag = regexp.MustCompile(`( )(--?[a-z-]{1,20})`)

// firstSteps is what a user runs who has no Certificate yet: with an issuer that is there, or else with one of its own.
func firstSteps(p *picture, namespace string) (commands string, own bool) {
	const issuer = `apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: first}
spec: {selfSigned: {}}
---
`
	before, kind, name := issuer, "Issuer", "first"
	for _, i := range p.issuers {
		if i.Cause == "" && (i.Namespace == "" || i.Namespace == namespace) {
			before, kind, name = "", i.Kind, i.Name
			break
		}
	}
	return "kubectl apply -n " + namespace + " -f - <<'END'\n" + before + `apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: first}
spec:
  secretName: first-tls
  dnsNames: [first.example.com]
  issuerRef: {kind: ` + kind + `, name: ` + name + `}
END`, before != ""
}
