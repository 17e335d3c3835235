package explain_test

import (
	"strings"
	"testing"

	"chancery.dev/internal/clientside/explain"
)

// FuzzSearch: a Certificate is found by its own name, the order of words does not matter, and one more word never
// finds more.
func FuzzSearch(f *testing.F) {
	f.Add("shop", "web", "*.shop.example", "state:ready www.shop.example")
	f.Add("a", "b", "İ.example", "issuer:ClusterIssuer/ca namespace:a")
	f.Fuzz(func(t *testing.T, namespace, name, host, typed string) {
		r := explain.Report{Node: explain.Node{Namespace: namespace, Name: name}, Names: []string{host}}
		whole := explain.NewSearch(typed)
		words := strings.Fields(typed)
		for i, word := range words {
			if whole.Takes(r) && !explain.NewSearch(word).Takes(r) {
				t.Errorf("%q takes what its word %q does not", typed, word)
			}
			words[i], words[0] = words[0], words[i]
		}
		if explain.NewSearch(strings.Join(words, " ")).Takes(r) != whole.Takes(r) {
			t.Errorf("the order of words matters: %q and %q", words, typed)
		}
		if own := namespace + "/" + name; len(strings.Fields(own)) == 1 && !strings.Contains(own, ":") && !explain.NewSearch(own).Takes(r) {
			t.Errorf("%q is not found by its name", own)
		}
	})
}
