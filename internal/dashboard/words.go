package dashboard

import (
	"html/template"
	"net/url"
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

// soft is a name of which, if it is long, a browser may begin a new line after each dot and slash.
func soft(name string) template.HTML {
	text := template.HTMLEscapeString(name)
	if len(name) > 40 {
		text = strings.NewReplacer(".", ".<wbr>", "/", "/<wbr>", ":", ":<wbr>").Replace(text)
	}
	return template.HTML(text)
}

// issuer is the name of an issuer, and then its kind: most are of one kind.
func issuer(title string) template.HTML {
	kind, name, _ := strings.Cut(strings.Replace(title, " ", "/", 1), "/")
	return soft(name) + " <small>" + soft(kind) + "</small>"
}

// mark is the word for a health in the table.
func mark(r explain.Row, now time.Time) string {
	switch {
	case r.Health == explain.Expired && r.Expires != nil && r.Expires.After(now):
		return "CA expired"
	case r.Health == explain.Late:
		return "renewal too late"
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

func stamp(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05 UTC") }

// far is how far a time is.
func far(at *metav1.Time, now time.Time) string {
	if away := at.Sub(now); away >= 0 {
		return "in " + duration.HumanDuration(away)
	}
	return duration.HumanDuration(now.Sub(at.Time)) + " ago"
}

// firstSteps is what a user runs who has no Certificate yet: with an issuer that is there, or else with one of its own.
func firstSteps(p *picture, namespace string) string {
	const own = `apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: first}
spec: {selfSigned: {}}
---
`
	before, kind, name := own, "Issuer", "first"
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
END`
}
