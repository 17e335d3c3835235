// Package tool finds the installed programs that tests need: openssl, keytool, named and others. It installs nothing:
// if a program is missing, the test is skipped, or fails in continuous integration. The package also writes small
// programs for tests to files. Only tests import the package.
package tool

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
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

// Script returns the path of a new program with that text.
func Script(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := WriteProgram(path, text); err != nil {
		t.Fatal(err)
	}
	return path
}

// WriteProgram writes a program. Meanwhile nobody forks: the child would have the file open for writing until it
// runs a program itself, and the kernel starts no program that is open for writing ("text file busy").
func WriteProgram(path, text string) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, []byte(text), 0o700)
}
