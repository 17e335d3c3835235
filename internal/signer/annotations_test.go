package signer

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestAnnotationsListsAll: the annotations that adapters read in calls, and no others, are in the list. One that is not
// in the list could change without the call being made again.
func TestAnnotationsListsAll(t *testing.T) {
	listed, read := map[string]bool{}, map[string]bool{}
	annotationsIn(t, "annotations.go", listed)
	dirs, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		if !dir.IsDir() || slices.Contains([]string{"ca", "selfsigned", "contract", "conformance"}, dir.Name()) {
			continue // they make no calls, or are for tests
		}
		files, err := filepath.Glob(filepath.Join(dir.Name(), "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				annotationsIn(t, file, read)
			}
		}
	}
	for _, other := range []string{
		"AccountKeyRotationAnnotation", "CertificateNameAnnotation", "IssuerNameAnnotation", "IssuerKindAnnotation", "IssuerGroupAnnotation", // of Secrets
		"ProfileAnnotation", "ProcessAnnotation", // of Orders
	} {
		if !read[other] {
			t.Errorf("nobody reads %s any more", other)
		}
		delete(read, other)
	}
	if len(read) == 0 || !maps.Equal(listed, read) {
		t.Errorf("adapters read %q, listed are %q", slices.Sorted(maps.Keys(read)), slices.Sorted(maps.Keys(listed)))
	}
}

// annotationsIn notes the constants of annotations that a file names.
func annotationsIn(t *testing.T, file string, found map[string]bool) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok || !strings.HasSuffix(s.Sel.Name, "Annotation") || s.Sel.Name == "SetMetaDataAnnotation" {
			return true
		}
		if _, ok := s.X.(*ast.Ident); ok {
			found[s.Sel.Name] = true
		}
		return true
	})
}
