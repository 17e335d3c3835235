package browser

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"chancery.dev/internal/rig/tool"
)

// axe-core is what judges pages, and this is the checksum of its package.
const (
	axeVersion = "4.14.1"
	axeSum     = "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745"
)

// Axe is the script of axe-core, which finds what keeps people from using a page. npm gets it once, and it is kept
// among temporary files. Where npm is missing, or cannot get it, the test is skipped, and fails in continuous
// integration.
func Axe(t testing.TB) string {
	t.Helper()
	npm := tool.Path(t, "npm")
	kept := filepath.Join(os.TempDir(), "chancery-axe-core-"+axeVersion+".tgz")
	packed, err := os.ReadFile(kept)
	if err != nil || !right(packed) {
		dir := t.TempDir()
		cmd := exec.CommandContext(t.Context(), npm, "pack", "--silent", "--ignore-scripts", "axe-core@"+axeVersion)
		cmd.Dir = dir
		said, err := cmd.CombinedOutput()
		if err != nil && !tool.Required() {
			t.Skipf("SKIPPED: npm cannot get axe-core: %v: %s", err, said)
		}
		if packed, err = os.ReadFile(filepath.Join(dir, "axe-core-"+axeVersion+".tgz")); err != nil || !right(packed) {
			t.Fatalf("npm pack axe-core: %v, or another checksum than %s: %s", err, axeSum, said)
		}
		_ = os.WriteFile(kept, packed, 0o600) // without it, the next test gets the package again
	}
	script, err := unpack(packed, "package/axe.min.js")
	if err != nil {
		t.Fatal(err)
	}
	return script
}

func right(packed []byte) bool {
	sum := sha256.Sum256(packed)
	return hex.EncodeToString(sum[:]) == axeSum
}

func unpack(packed []byte, name string) (string, error) {
	plain, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return "", err
	}
	files := tar.NewReader(plain)
	for {
		header, err := files.Next()
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		if header.Name == name {
			text, err := io.ReadAll(files)
			return string(text), err
		}
	}
}

// Violations are what axe-core finds on the page, each with the first element that has it.
func (b *Browser) Violations(axe string) (found []string) {
	b.t.Helper()
	b.Eval(axe+"\n;0", nil)
	b.Eval(`axe.run().then(r => r.violations.map(v => v.id + ": " + v.help + ": " + v.nodes[0].html + " " + v.nodes[0].failureSummary))`, &found)
	return found
}
