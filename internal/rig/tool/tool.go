// Package tool finds the programs outside the project that tests look for: openssl, keytool, named and others.
// It is imported by tests alone.
package tool

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Path returns the path of a program. Where the program is missing it skips the test, and in continuous
// integration it fails the test.
func Path(t testing.TB, name string) string {
	t.Helper()
	path, err := Find(name)
	switch {
	case err != nil && Required():
		t.Fatalf("%v: .ci/run has to install it", err)
	case err != nil:
		t.Skip("SKIPPED: ", err)
	}
	return path
}

// Find returns the path of a program, which may be in the directories for administrators too: not every user
// has them on the PATH.
func Find(name string) (string, error) {
	for _, candidate := range []string{name, filepath.Join("/usr/sbin", name), filepath.Join("/sbin", name)} {
		if path, err := exec.LookPath(candidate); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("the program %s is not installed", name)
}

// Required reports whether a missing program is a failure: in continuous integration, where CI is set.
func Required() bool { return os.Getenv("CI") != "" }
