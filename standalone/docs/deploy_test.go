package docs_test

import (
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// webServer is a machine on which deploy/deploy-certificate runs. Its kubectl is the real one (TestMain), but it prints
// a Secret that is made of the files in the directory secret, and asks no API server (TestPagesRun has one).
type webServer struct {
	t   *testing.T
	dir string
}

func newWebServer(t *testing.T) *webServer {
	t.Helper()
	w := &webServer{t, t.TempDir()}
	self, err := os.Executable()
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Join(w.dir, "bin"), 0o700), os.MkdirAll(filepath.Join(w.dir, "real"), 0o700))
	}
	if err == nil {
		err = os.Symlink(self, filepath.Join(w.dir, "real", "kubectl"))
	}
	if err != nil {
		t.Fatal(err)
	}
	w.write("bin/kubectl", `#!/bin/sh
[ "$1 $2 $3 $4" = 'get secret www-tls -o' ] || exit 1
machine=${0%/bin/kubectl}
exec "$machine/real/kubectl" create secret generic "$3" --from-file="$machine/secret" --dry-run=client -o "$5"
`, 0o700)
	return w
}

func (w *webServer) write(name, text string, mode os.FileMode) {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		w.t.Fatal(err)
	}
}

// secret says what is in the Secret: certificate, key and CA. An entry of "" is not there.
func (w *webServer) secret(crt, key, ca string) {
	w.t.Helper()
	if err := os.RemoveAll(filepath.Join(w.dir, "secret")); err != nil {
		w.t.Fatal(err)
	}
	for name, text := range map[string]string{"tls.crt": crt, "tls.key": key, "ca.crt": ca} {
		if text != "" {
			w.write("secret/"+name, text, 0o600)
		}
	}
}

// deploy runs the script as cron does, in the machine's directory, with a command of the shell.
func (w *webServer) deploy(command string) (out string, ok bool) {
	w.t.Helper()
	script, err := filepath.Abs("../../deploy/deploy-certificate")
	if err != nil {
		w.t.Fatal(err)
	}
	run := exec.CommandContext(w.t.Context(), script, "www-tls", "tls/www", "sh", "-c", command)
	run.Dir, run.Env = w.dir, []string{"PATH=" + w.dir + "/bin:/usr/bin:/bin"}
	text, err := run.CombinedOutput()
	return string(text), err == nil
}

// has fails the test if a file does not have a text. A text of "" means that there is no such file.
func (w *webServer) has(name, text string) {
	w.t.Helper()
	got, err := os.ReadFile(filepath.Join(w.dir, name))
	if text == "" && !os.IsNotExist(err) || text != "" && string(got) != text {
		w.t.Errorf("%s: %q %v, want %q", name, got, err, text)
	}
}

// only fails the test if another file than the one named holds the key, as it is or in base64.
func (w *webServer) only(name, key string) {
	w.t.Helper()
	tls := filepath.Join(w.dir, "tls")
	err := filepath.WalkDir(tls, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || filepath.Base(path) == filepath.Base(name) {
			return err
		}
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), key) || strings.Contains(string(text), base64.StdEncoding.EncodeToString([]byte(key))) {
			w.t.Errorf("the private key is in %s", path)
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// versions returns how many versions are kept.
func (w *webServer) versions() int {
	all, err := filepath.Glob(filepath.Join(w.dir, "tls/www.versions/version.*"))
	if err != nil {
		w.t.Fatal(err)
	}
	return len(all)
}

// TestDeployCertificate: the files of a version belong together, and the command is owed until it has succeeded.
func TestDeployCertificate(t *testing.T) {
	w := newWebServer(t)
	if err := os.Mkdir(filepath.Join(w.dir, "tls"), 0o700); err != nil {
		t.Fatal(err)
	}
	const count = "echo ran >>runs; test ! -e broken"

	w.secret("", "key1", "")
	if out, ok := w.deploy(count); ok || !strings.Contains(out, "Secret www-tls has no tls.crt") {
		t.Errorf("a Secret without certificate: %v %s", ok, out)
	}
	w.has("runs", "")
	w.has("tls/www/tls.key", "")

	w.secret("crt1", "key1", "")
	if out, ok := w.deploy(count); !ok {
		t.Error(out)
	}
	w.has("tls/www/tls.crt", "crt1")
	w.has("tls/www/tls.key", "key1")
	w.has("tls/www/ca.crt", "")
	w.only("tls/www/tls.key", "key1") // an ACME issuer leaves ca.crt out
	if out, ok := w.deploy(count); !ok {
		t.Error(out)
	}
	w.has("runs", "ran\n")
	if info, err := os.Stat(filepath.Join(w.dir, "tls/www/tls.key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Error("who may read the key?", info.Mode(), err)
	}

	// The command fails with the new files: it is run again until it succeeds.
	w.secret("crt2", "key2", "ca2")
	w.write("broken", "", 0o600)
	for range 2 {
		if out, ok := w.deploy(count); ok || !strings.Contains(out, "the next call runs it again") {
			t.Errorf("a command that fails: %v %s", ok, out)
		}
		w.has("tls/www/tls.crt", "crt2")
		w.has("tls/www/ca.crt", "ca2")
	}
	if err := os.Remove(filepath.Join(w.dir, "broken")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if out, ok := w.deploy(count); !ok {
			t.Error(out)
		}
		w.has("runs", "ran\nran\nran\nran\n")
	}

	// What an interrupted call has left goes, and a key alone counts as a change.
	w.write("tls/www.versions/version.abcdef/tls.crt", "half", 0o600)
	w.secret("crt2", "key3", "ca2")
	if out, ok := w.deploy("true"); !ok {
		t.Error(out)
	}
	w.has("tls/www/tls.key", "key3")
	if w.versions() != 1 {
		t.Errorf("%d versions are kept, want 1", w.versions())
	}
}

// TestDeployCertificateKeepsDirectories: a directory that somebody else has made is not replaced.
func TestDeployCertificateKeepsDirectories(t *testing.T) {
	w := newWebServer(t)
	w.secret("crt1", "key1", "")
	w.write("tls/www/tls.crt", "mine", 0o600)
	if out, ok := w.deploy("true"); ok || !strings.Contains(out, "name another directory") {
		t.Errorf("%v %s", ok, out)
	}
	w.has("tls/www/tls.crt", "mine")
}
