package catalog

import (
	_ "embed"
	"slices"
	"strings"
	"testing"
)

// v4 lists the providers that chancery-dns had with version 4.35.2 of lego: the names of one, then its variables.
//
//go:embed testdata/lego-v4.txt
var v4 string

// TestNamesOfVersion4: each name and variable that a solver could have with version 4 of lego works, or the error says
// what to write.
func TestNamesOfVersion4(t *testing.T) {
	all, err := Entries()
	if err != nil {
		t.Fatal(err)
	}
	var refused []string
	seen := 0
	for line := range strings.Lines(v4) {
		names, variables, _ := strings.Cut(strings.TrimSpace(line), " ")
		for name := range strings.SplitSeq(names, ",") {
			seen++
			e, err := Find(name)
			if err != nil {
				refused = append(refused, name)
				saysWhatToWrite(t, name, err, all)
				continue
			}
			for _, variable := range strings.Fields(variables) {
				if err := e.Check(map[string]string{variable: "x"}); err != nil && !strings.Contains(err.Error(), "no longer read: remove it") {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
	if want := []string{"brandit", "cloudxns", "dnspod", "googledomains", "iij", "iwantmyname"}; !slices.Equal(refused, want) {
		t.Errorf("refused: %q, want only %q", refused, want)
	}
	if seen < 195 {
		t.Errorf("only %d names were tried", seen)
	}
}

// saysWhatToWrite holds err to name a provider of all and its variables, or to say that the service has closed.
func saysWhatToWrite(t *testing.T, name string, err error, all []Entry) {
	t.Helper()
	_, text, found := strings.Cut(err.Error(), "write ")
	provider, with, hasVariables := strings.Cut(text, ", with ")
	switch {
	case strings.Contains(err.Error(), "its service has closed"):
	case !found || !hasVariables:
		t.Errorf("%s: %v does not say what to write", name, err)
	default:
		i := slices.IndexFunc(all, func(e Entry) bool { return e.Name == provider })
		if i < 0 {
			t.Fatalf("%s: %v names %q, which is not there", name, err, provider)
		}
		for variable := range strings.SplitSeq(with, " and ") {
			if _, is := all[i].Credentials[variable]; !is {
				t.Errorf("%s: %v names %s, which %s does not have", name, err, variable, provider)
			}
		}
	}
}
