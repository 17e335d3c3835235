package caa

import "testing"

func TestCut(t *testing.T) {
	for parameter, want := range map[string]struct {
		tag, value string
		ok         bool
	}{
		"policy=wildcard":     {"policy", "wildcard", true},
		" PoLicy\t= a=b ":     {"policy", "a=b", true},
		"policy=":             {"policy", "", true},
		"policy":              {"policy", "", false},
		"=wildcard":           {"", "wildcard", false},
		"-policy=wildcard":    {"-policy", "wildcard", false},
		"persist_until=5":     {"persist_until", "5", false},
		"p\u00f6licy=a":       {"p\u00f6licy", "a", false},
		"validation-methods=": {"validation-methods", "", true},
	} {
		if tag, value, ok := Cut(parameter); tag != want.tag || value != want.value || ok != want.ok {
			t.Errorf("%q: %q, %q, %v, want %+v", parameter, tag, value, ok, want)
		}
	}
	for value, want := range map[string]bool{"": true, "https://ca.example/acct/1;x": true, "a b": false, "a\tb": false, "\u00fc": false, "\x7f": false} {
		if IsValue(value) != want {
			t.Errorf("%q is a value: %v", value, !want)
		}
	}
}
