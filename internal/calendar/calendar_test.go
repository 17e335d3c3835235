package calendar_test

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"chancery.dev/internal/calendar"
	"chancery.dev/internal/rig/golden"
)

// TestPage: the table of docs/ca-calendar.md is that of the code.
func TestPage(t *testing.T) {
	t.Parallel()
	const page, begin, end = "../../docs/ca-calendar.md", "<!-- begin -->\n", "<!-- end -->\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatal("the page has no place for the table")
	}
	golden.Check(t, "../"+page, before+begin+table()+end+after)
}

func table() string {
	last, clients := strings.Builder{}, strings.Builder{}
	last.WriteString("| CA | profile | from | a certificate lasts | a validation counts for | announced in |\n|---|---|---|---|---|---|\n")
	clients.WriteString("\n| CA | profile | no certificates for clients | announced in |\n|---|---|---|---|\n")
	from := func(at time.Time, always string) string {
		if at.IsZero() {
			return always
		}
		return at.Format(time.DateOnly)
	}
	for _, ca := range calendar.CAs() {
		for _, p := range ca.Profiles {
			name := cmp.Or(p.Name, "all")
			for _, terms := range p.Terms {
				reuse := ""
				if terms.Reuse > 0 {
					reuse = long(terms.Reuse)
				}
				fmt.Fprintf(&last, "| %s | %s | %s | %s | %s | %s |\n", ca.Name, name, from(terms.From, "so far"), long(terms.Lifetime), reuse, terms.Source)
			}
			fmt.Fprintf(&clients, "| %s | %s | %s | %s |\n", ca.Name, name, from(p.ServersOnly, "always"), p.Source)
		}
	}
	return last.String() + clients.String()
}

func long(d time.Duration) string {
	if d < 48*time.Hour || d%(24*time.Hour) != 0 {
		return fmt.Sprintf("%d hours", d/time.Hour)
	}
	return fmt.Sprintf("%d days", d/(24*time.Hour))
}

// TestTable: dates are in order, each has a source, and a CA is found by its directory.
func TestTable(t *testing.T) {
	t.Parallel()
	for _, ca := range calendar.CAs() {
		found, ok := calendar.Of("https://" + ca.Host + "/directory")
		if p, listed := found.Profile(""); !ok || found.Name != ca.Name || !listed || p.Name != ca.Profiles[0].Name {
			t.Errorf("%s is found as %s", ca.Name, found.Name)
		}
		for _, p := range ca.Profiles {
			last := time.Time{}
			for i, terms := range p.Terms {
				if i > 0 && !terms.From.After(last) || terms.Source == "" || terms.Lifetime <= 0 || p.Source == "" {
					t.Errorf("%s %s: %+v", ca.Name, p.Name, terms)
				}
				last = terms.From
			}
		}
	}
	for _, other := range []string{"https://acme.example.com/directory", "https://acme-staging-v02.api.letsencrypt.org/directory", "https://step-ca/acme/acme/directory", "::", ""} {
		if ca, ok := calendar.Of(other); ok {
			t.Errorf("%q is taken for %s", other, ca.Name)
		}
	}
}
