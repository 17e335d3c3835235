package stories_test

import (
	"encoding/base64"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/tool"
)

// TestDeployedSecretOfACME: the script that writes certificates into files has nothing to write for ca.crt, which an
// ACME issuer leaves out, and puts the private key into no other file than its own, and prints it nowhere.
func TestDeployedSecretOfACME(t *testing.T) {
	t.Parallel()
	kubectl, err := tool.Find("kubectl")
	if err != nil {
		t.Skip("SKIPPED: this machine has no kubectl")
	}
	w := newACMEWorld(t, nil)
	w.Run(t, w.Config())
	w.Create(t, w.issuer(), certificate(w.World, "web", "acme", "web.example.com"))
	awaitReady(t, w.World, "web")
	secret := &corev1.Secret{}
	if err := w.Get(t.Context(), "web", secret); err != nil {
		t.Fatal(err)
	}
	if len(secret.Data["ca.crt"]) > 0 || len(secret.Data["tls.key"]) == 0 {
		t.Fatalf("the Secret of an ACME issuer has %d entries", len(secret.Data))
	}
	script, err := filepath.Abs("../../deploy/deploy-certificate")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	run := exec.CommandContext(t.Context(), script, "web", "tls", "true")
	run.Dir = dir
	run.Env = []string{"PATH=" + filepath.Dir(kubectl) + ":/usr/bin:/bin", "HOME=" + dir, "KUBECONFIG=" + rig.Kubeconfig(t, w.Admin, w.Namespace)}
	said, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	// A line from the middle of the key, as it is, and what base64 of the file and of the Secret's entry have of it.
	lines := strings.Split(string(secret.Data["tls.key"]), "\n")
	body, encoded := lines[1], base64.StdEncoding.EncodeToString(secret.Data["tls.key"])[40:100]
	holds := func(text []byte) bool {
		return strings.Contains(string(text), body) || strings.Contains(string(text), encoded)
	}
	if holds(said) {
		t.Error("the script prints the private key")
	}
	keys := 0
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		switch {
		case !holds(text):
		case filepath.Base(path) != "tls.key":
			t.Errorf("the private key is in %s", path)
		default:
			keys++
		}
		if info, err := entry.Info(); err == nil && info.Mode().Perm()&0o077 != 0 && strings.HasPrefix(filepath.Base(path), "tls.") {
			t.Errorf("others may read %s: %s", path, info.Mode())
		}
		return err
	})
	if err != nil || keys != 1 {
		t.Errorf("%d files have the private key, %v", keys, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "tls", "ca.crt")); !os.IsNotExist(err) {
		t.Errorf("ca.crt: %v", err)
	}
}
