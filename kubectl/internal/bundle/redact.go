package bundle

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// gone stands in place of what was taken out.
const gone = "REDACTED"

// redactor takes out of objects and texts what is nobody else's business. It never sees the data of a Secret. The same
// host name gets the same pseudonym in all files.
type redactor struct {
	// domains are the known ones, below which host names are taken out; nil if host names stay.
	domains    map[string]bool
	pseudonyms map[string]string
}

// The forms of secrets in texts.
var (
	privateKey  = regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|$)`)
	encodedPEM  = regexp.MustCompile(`LS0tLS1CRUdJT[A-Za-z0-9+/_=-]+`)
	webToken    = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*\.?[A-Za-z0-9_-]*`)
	userinfo    = regexp.MustCompile(`(?:(://)(?:[^/\s"'@]*:[^\s"']*|[^/\s"']+)|[A-Za-z0-9._%+-]+:[^/\s"'@]+)@(?:sha[0-9]+:)?`)
	header      = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9+/_.=~-]{6,}`)
	assignment  = regexp.MustCompile(`(?i)([a-z0-9_.-]*` + words + `[a-z0-9_.-]*)(\\*["']?\s*[:=]\s*)(` + quoted + `|'[^']*'|` + bare + `(?:,` + bare + `)*)`)
	mail        = regexp.MustCompile(`[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+`)
	hostLike    = regexp.MustCompile(`[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)+`)
	opaque      = regexp.MustCompile(`[A-Za-z0-9+/]{32,}={0,2}|[A-Za-z0-9+=_-]{24,}`)
	upper       = regexp.MustCompile(`[A-Z]`)
	lower       = regexp.MustCompile(`[a-z]`)
	digit       = regexp.MustCompile(`[0-9]`)
	reference   = regexp.MustCompile(`(?i)(?:names?|refs?|namespace|kind|path|file|dir|endpoint|url|audiences?|algorithm)$`)
	harmlessEnv = regexp.MustCompile(`^(?:POD_NAME|POD_NAMESPACE|NODE_NAME|GOMEMLIMIT|CHANCERY_MEMORY_LIMIT|GOMAXPROCS|GODEBUG|GOGC|TZ|SSL_CERT_(?:FILE|DIR)|(?:HTTPS?|NO)_PROXY|KUBERNETES_[A-Z_]+)$`)
	ourDomains  = regexp.MustCompile(`^(?:[a-z0-9.-]+\.)?(?:cert-manager\.io|chancery\.dev)/|^kubernetes\.io/(?:ingress\.class|tls-acme)$|^deployment\.kubernetes\.io/revision$`)
)

// words are in the names of fields and flags that hold secrets.
const words = `(?:pass(?:w|phrase|\b)|pwd|cookie|token|secret|hmac|tsig|api[-_]?key|private[-_]?key|access[-_]?key|mac[-_]?key|credential|role[-_]?id)`

// hints are in lower case, and one of them is in every name that words match.
func hints() []string {
	return []string{"pass", "pwd", "cookie", "token", "secret", "hmac", "tsig", "key", "credential", "role"}
}

// Values in texts: a string of JSON, also one within a string and one that is cut off, and a word.
const (
	quoted = `\\+"(?:[^"\\]|\\[^"])*\\*"|"(?:[^"\\\n]|\\.)*"?`
	bare   = `[^\s"',;&}\])]+`
)

// text takes secrets and e-mail addresses out of a text.
func (r *redactor) text(s string) string {
	s = privateKey.ReplaceAllLiteralString(s, gone)
	s = encodedPEM.ReplaceAllStringFunc(s, func(run string) string {
		text, _ := base64.StdEncoding.DecodeString(run[:len(run)/4*4])
		if strings.Contains(string(text), "PRIVATE KEY") || len(text) == 0 {
			return gone
		}
		return run
	})
	s = webToken.ReplaceAllLiteralString(s, gone)
	// Most texts have none of these, and the expressions are slow: ten thousand objects have a hundred megabytes.
	low := strings.ToLower(s)
	has := func(part string) bool { return strings.Contains(low, part) }
	if has("@") {
		s = userinfo.ReplaceAllStringFunc(s, func(found string) string {
			if !strings.HasSuffix(found, "@") {
				return found // an image with its digest
			}
			return userinfo.FindStringSubmatch(found)[1] + gone + "@"
		})
	}
	if has("bearer") || has("basic") {
		s = header.ReplaceAllString(s, "$1 "+gone)
	}
	if slices.ContainsFunc(hints(), has) {
		s = assignment.ReplaceAllStringFunc(s, func(found string) string {
			parts := assignment.FindStringSubmatch(found)
			if reference.MatchString(parts[1]) {
				return found
			}
			return parts[1] + parts[2] + gone
		})
	}
	if has("@") {
		s = mail.ReplaceAllStringFunc(s, func(found string) string {
			if strings.HasPrefix(found, gone+"@") {
				return found // the host of a URL
			}
			return gone + "-EMAIL"
		})
	}
	if r.domains != nil {
		s = hostLike.ReplaceAllStringFunc(s, r.host)
	}
	return s
}

// prose is text for what programs and people have written freely: long random words are taken out, too.
func (r *redactor) prose(s string) string {
	return opaque.ReplaceAllStringFunc(r.text(s), func(word string) string {
		many := 1 // a path has few capital letters, random base64 has many
		if strings.Contains(word, "/") {
			many = len(word) / 5
		}
		if len(upper.FindAllString(word, many)) == many && len(lower.FindAllString(word, many)) == many && digit.MatchString(word) {
			return gone
		}
		return word
	})
}

// pseudonym keeps labels in front that begin with an underscore, as _acme-challenge does.
func (r *redactor) pseudonym(name string) string {
	prefix, rest := "", strings.ToLower(name)
	for strings.HasPrefix(rest, "_") && strings.Contains(rest, ".") {
		label, after, _ := strings.Cut(rest, ".")
		prefix, rest = prefix+label+".", after
	}
	if r.pseudonyms[rest] == "" {
		r.pseudonyms[rest] = fmt.Sprintf("host-%d.invalid", len(r.pseudonyms)+1)
	}
	return prefix + r.pseudonyms[rest]
}

// hide replaces host names that are below the domains of these names.
func (r *redactor) hide(names []string) {
	domains := map[string]bool{}
	for _, name := range names {
		labels := strings.Split(strings.Trim(strings.ToLower(name), "*."), ".")
		if len(labels) > 1 {
			domains[strings.Join(labels[len(labels)-2:], ".")] = true
		}
	}
	if len(domains) > 0 {
		r.domains, r.pseudonyms = domains, map[string]string{}
	}
}

// host takes the host name out of a word with dots: that of the last known domain in it, with all labels before.
func (r *redactor) host(word string) string {
	labels := strings.Split(word, ".")
	for i := len(labels) - 1; i > 0; i-- {
		left, right := r.domainIn(labels[i-1], labels[i])
		if left == "" {
			continue
		}
		name, before := left+"."+right, strings.TrimSuffix(strings.Join(labels[:i], "."), left)
		if !strings.HasSuffix(before, "-") { // the first label of the domain is whole
			name, before = before+name, ""
		}
		return before + r.pseudonym(name) + strings.TrimPrefix(strings.Join(labels[i:], "."), right)
	}
	return word
}

// maxLabel is how long a label of a DNS name can be (RFC 1035 §2.3.4).
const maxLabel = 63

// domainIn finds a known domain in two labels, the first of which may begin, and the second end, at a hyphen:
// tls-DOMAIN-1 is the name of a Secret.
func (r *redactor) domainIn(left, right string) (first, second string) {
	for from := max(0, len(left)-maxLabel); from < len(left); from++ {
		if from > 0 && left[from-1] != '-' {
			continue
		}
		for to := min(len(right), maxLabel); to > 0; to-- {
			if to < len(right) && right[to] != '-' {
				continue
			}
			if r.domains[strings.ToLower(left[from:]+"."+right[:to])] {
				return left[from:], right[:to]
			}
		}
	}
	return "", ""
}
