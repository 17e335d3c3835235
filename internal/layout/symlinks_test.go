package layout_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestSymbolicLinks: each symbolic link leads somewhere. The chart has its manifests by one, and no gate makes a chart.
func TestSymbolicLinks(t *testing.T) {
	found := 0
	err := filepath.WalkDir(filepath.Join(root, "deploy"), func(file string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type()&fs.ModeSymlink != 0 {
			found++
			if _, err := os.Stat(file); err != nil {
				t.Errorf("a symbolic link leads nowhere: %v", err)
			}
		}
		return err
	})
	if err != nil || found == 0 {
		t.Errorf("found %d: %v", found, err)
	}
}
