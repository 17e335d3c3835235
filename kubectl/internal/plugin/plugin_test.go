package plugin

import (
	"bytes"
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	root := New(Streams{In: strings.NewReader(""), Out: &out, ErrOut: &out})
	root.SetArgs([]string{"version"})
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out.String(), "kubectl chancery version ") {
		t.Errorf("version says %q", out.String())
	}
}
