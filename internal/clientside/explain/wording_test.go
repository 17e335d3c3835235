package explain

import (
	"strings"
	"testing"
)

// TestWordingOf: what two Certificates are told counts as one message, or as two.
func TestWordingOf(t *testing.T) {
	t.Parallel()
	of := func(namespace, name, host, cause string) Report {
		r := Report{Node: Node{Namespace: namespace, Name: name, State: "failed"}, Secret: name + "-tls", Names: []string{host}}
		r.Cause, r.subject = strings.NewReplacer("HOST", strings.TrimPrefix(host, "*."), "NAME", name, "SPACE", namespace).Replace(cause), host
		return r
	}
	long := strings.Repeat("x", 60) + ".example.com"
	for name, c := range map[string]struct {
		x, y Report
		same bool
	}{
		"hosts":               {of("shop", "a", "a.example.com", "HOST: no route to HOST."), of("bank", "b", long, "HOST: no route to HOST."), true},
		"a port and a path":   {of("shop", "a", "a.example.com", "http://HOST:80/x"), of("shop", "b", "b.example.com", "http://HOST:80/x"), true},
		"a wildcard":          {of("shop", "a", "*.a.example.com", "_acme-challenge.HOST: no TXT"), of("shop", "b", "*.b.example.org", "_acme-challenge.HOST: no TXT"), true},
		"capitals":            {of("shop", "a", "WWW.example.com", "www.example.com: no"), of("shop", "b", "b.example.com", "b.example.com: no"), true},
		"a time":              {of("shop", "a", "h", "not before 2026-01-02T03:04:05Z"), of("shop", "a", "h", "not before 2026-02-03 14:15:16 UTC"), false},
		"the same kind of it": {of("shop", "a", "h", "not before 2026-01-02T03:04:05Z"), of("shop", "a", "h", "not before 2027-01-02T03:04:05Z"), true},
		"a token":             {of("shop", "a", "a.b", "http://HOST/.well-known/acme-challenge/LoqXcYV8q5ONbJQxbmR7SCTNo3tiAXDfowyjxAjEuX0: 404"), of("shop", "b", "c.d", "http://HOST/.well-known/acme-challenge/evaGxfADs6pSRb2LAv9IZf17Dt3juxGJ-PCt92wr-oA: 404"), true},
		"objects":             {of("shop", "a", "h", "CertificateRequest NAME-1, Secret SPACE/NAME-tls"), of("bank", "b", "h", "CertificateRequest NAME-7, Secret SPACE/NAME-tls"), true},
		"an answer":           {of("shop", "404", "h", "answers 404"), of("shop", "502", "h", "answers 502"), false},
		"a namespace":         {of("no", "a", "h", "no route"), of("shop", "b", "h", "no route"), true},
		"after many names":    {of("shop", "a", "a.example.com", strings.Repeat("HOST ", 20)+"no route"), of("shop", "b", long, strings.Repeat("HOST ", 20)+"no route"), true},
		"other words":         {of("shop", "a", "h", "no route"), of("shop", "b", "h", "connection refused"), false},
		"other servers":       {of("shop", "a", "h", "192.0.2.53:53 refuses it"), of("shop", "b", "h", "192.0.2.54:53 refuses it"), false},
		"no cause":            {of("shop", "a", "h", ""), of("shop", "b", "h", ""), true},
	} {
		if x, y := wordingOf(c.x), wordingOf(c.y); (x == y) != c.same {
			t.Errorf("%s: %q and %q", name, x, y)
		}
	}
}
