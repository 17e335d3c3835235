// Package vault runs a real Vault for tests, and tests Vault issuers with it.
//
// The variable CHANCERY_VAULT_BIN names the binary of Vault. `make e2e` builds this binary. Vault runs in dev mode,
// listens on the loopback interface, keeps its data in memory, and ends with its test. The tests configure Vault over
// HTTP, as an operator does.
package vault

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"chancery.dev/internal/rig"
)

// rootToken is the operator's.
const rootToken = "root"

// Server is a running Vault.
type Server struct {
	// Address is where Vault listens in the clear, TLSAddress where it listens with a
	// certificate of CA, which is PEM.
	Address, TLSAddress string
	CA                  []byte

	t         testing.TB
	unsealKey string
	log       string
}

// Start runs a Vault that trusts clients as an operator configures it to.
func Start(t testing.TB) *Server {
	t.Helper()
	binary := os.Getenv("CHANCERY_VAULT_BIN")
	if binary == "" {
		t.Fatal("no Vault for this test: run make e2e, or build it and set CHANCERY_VAULT_BIN to bin/vault")
	}
	dir := t.TempDir()
	s := &Server{t: t, log: filepath.Join(dir, "log")}
	plain, secure := rig.FreeAddress(t).String(), rig.FreeAddress(t).String()
	s.Address, s.TLSAddress = "http://"+plain, "https://"+secure
	s.CA = writeServerPair(t, dir)
	config := filepath.Join(dir, "vault.hcl") // clustering would take the next port as well
	text := fmt.Sprintf("disable_mlock = true\ndisable_clustering = true\nlistener \"tcp\" {\n  address = %q\n  tls_cert_file = %q\n  tls_key_file = %q\n}\n",
		secure, filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(s.log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, binary, "server", "-dev", "-dev-no-store-token", "-dev-root-token-id="+rootToken,
		"-dev-listen-address="+plain, "-dev-plugin-dir="+binary+"-plugins", "-config="+config)
	cmd.Env = append(os.Environ(), "HOME="+dir, "TMPDIR="+dir)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		_ = log.Close()
		if t.Failed() {
			t.Logf("Vault's last words:\n%s", tail(s.log))
		}
	})
	s.await()
	return s
}

// await waits until Vault is ready and has said its unseal key.
func (s *Server) await() {
	s.t.Helper()
	said := regexp.MustCompile(`Unseal Key: (\S+)`)
	rig.Eventually(s.t, "Vault is ready", func(ctx context.Context) string {
		text, err := os.ReadFile(s.log)
		if err != nil {
			return err.Error()
		}
		key := said.FindSubmatch(text)
		if key == nil {
			return "it has not said its unseal key:\n" + tail(s.log)
		}
		s.unsealKey = string(key[1])
		if _, err := s.try(ctx, http.MethodGet, "sys/health", nil); err != nil {
			return err.Error()
		}
		return ""
	})
}

func tail(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4000):])
}

// Do asks Vault for something as its operator, and returns the answer's data.
func (s *Server) Do(method, path string, body map[string]any) map[string]any {
	s.t.Helper()
	data, err := s.try(s.t.Context(), method, path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	return data
}

// Put writes to Vault as its operator.
func (s *Server) Put(path string, body map[string]any) map[string]any {
	s.t.Helper()
	return s.Do(http.MethodPost, path, body)
}

func (s *Server) try(ctx context.Context, method, path string, body map[string]any) (map[string]any, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, method, s.Address+"/v1/"+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	r.Header.Set("X-Vault-Token", rootToken)
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return nil, fmt.Errorf("%s %s: %d %s", method, path, resp.StatusCode, answer)
	}
	var reply struct {
		Data map[string]any `json:"data"`
		Auth map[string]any `json:"auth"`
	}
	if len(bytes.TrimSpace(answer)) > 0 {
		if err := json.Unmarshal(answer, &reply); err != nil {
			return nil, fmt.Errorf("%s %s: %w", method, path, err)
		}
	}
	if reply.Auth != nil {
		return reply.Auth, nil
	}
	return reply.Data, nil
}

// Seal seals Vault.
func (s *Server) Seal() {
	s.t.Helper()
	s.Put("sys/seal", nil)
}

// Unseal unseals Vault, and waits until it is in order.
func (s *Server) Unseal() {
	s.t.Helper()
	s.Put("sys/unseal", map[string]any{"key": s.unsealKey})
	rig.Eventually(s.t, "Vault is unsealed", func(ctx context.Context) string {
		if _, err := s.try(ctx, http.MethodGet, "sys/health", nil); err != nil {
			return err.Error()
		}
		return ""
	})
}

// MountPKI mounts a root at pki, and at pki_int an intermediate CA with a role "web"
// that signs nearly everything and a role "narrow" that signs little. It returns the
// root.
func (s *Server) MountPKI() (root []byte) {
	s.t.Helper()
	for _, mount := range []string{"pki", "pki_int"} {
		s.Put("sys/mounts/"+mount, map[string]any{"type": "pki", "config": map[string]any{"max_lease_ttl": "87600h"}})
	}
	made := s.Put("pki/root/generate/internal", map[string]any{"common_name": "e2e root", "ttl": "87600h", "key_type": "ec"})
	request := s.Put("pki_int/intermediate/generate/internal", map[string]any{"common_name": "e2e intermediate", "key_type": "ec"})
	signed := s.Put("pki/root/sign-intermediate", map[string]any{"csr": request["csr"], "format": "pem_bundle", "ttl": "43800h"})
	s.Put("pki_int/intermediate/set-signed", map[string]any{"certificate": signed["certificate"]})
	s.Put("pki_int/roles/web", map[string]any{
		"allow_any_name": true, "enforce_hostnames": false, "allow_ip_sans": true, "allowed_uri_sans": "*", "require_cn": false,
		"key_type": "any", "max_ttl": "8760h",
	})
	s.Put("pki_int/roles/narrow", map[string]any{"allowed_domains": "example.org", "allow_subdomains": true, "key_type": "any"})
	s.Put("sys/policies/acl/sign", map[string]any{"policy": `path "pki_int/sign/*" { capabilities = ["update"] }`})
	text, _ := made["certificate"].(string)
	return []byte(strings.TrimSpace(text) + "\n")
}

// Token makes a token with policies.
func (s *Server) Token(policies ...string) string {
	s.t.Helper()
	token, _ := s.Put("auth/token/create", map[string]any{"policies": policies, "no_parent": true})["client_token"].(string)
	return token
}

// Accessors counts the tokens that are good.
func (s *Server) Accessors(ctx context.Context) (int, error) {
	data, err := s.try(ctx, "LIST", "auth/token/accessors", nil)
	keys, _ := data["keys"].([]any)
	return len(keys), err
}
