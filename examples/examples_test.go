package examples_test

import (
	"io/fs"
	"strings"
	"testing"

	"chancery.dev/examples"
)

func TestExpand(t *testing.T) {
	got, err := examples.Expand("a: ${ONE}-${TWO}\n  # ${THREE} stays\nb: $ONE $${ONE}\n", map[string]string{"ONE": "1", "TWO": "2"})
	if want := "a: 1-2\n  # ${THREE} stays\nb: $ONE $1\n"; err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	_, err = examples.Expand("a: ${ONE} ${OTHER}\n", map[string]string{"ONE": "1"})
	if err == nil || !strings.Contains(err.Error(), "${OTHER}") || !strings.Contains(err.Error(), "ONE") {
		t.Errorf("a placeholder without a value: %v", err)
	}
}

// Each manifest opens by saying what it shows: that is what people find here.
func TestManifestsOpenWithAComment(t *testing.T) {
	names, err := examples.Names(examples.Files())
	if err != nil || len(names) < 8 || names[0] != "00-namespace.yaml" || names[2] != "demo/20-acme.yaml" {
		t.Fatal(names, err)
	}
	for _, name := range names {
		text, err := fs.ReadFile(examples.Files(), name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(text), "# ") {
			t.Errorf("%s does not open with a comment", name)
		}
	}
}
