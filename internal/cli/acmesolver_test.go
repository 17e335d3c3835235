package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/port"
)

// TestACMESolver: chancery answers a challenge if it is started with cert-manager's arguments alone, as the pod of a
// Challenge does, and by its subcommand.
func TestACMESolver(t *testing.T) {
	for _, prefix := range [][]string{nil, {"acmesolver"}} {
		address, err := port.Free(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		cmd := New()
		cmd.SetArgs(append(prefix, fmt.Sprintf("--listen-port=%d", address.Port()), "--domain=www.example.com", "--token=token", "--key=token.key"))
		go func() { done <- cmd.ExecuteContext(ctx) }()
		if got := ask(t, address.String()); got != "token.key" {
			t.Errorf("%v: %q", prefix, got)
		}
		stop()
		if err := <-done; err != nil {
			t.Errorf("%v: %v", prefix, err)
		}
	}
	for want, args := range map[string][]string{
		"--domain, --token and --key must be given": {"--domain=www.example.com"},
		`unknown command "controler"`:               {"controler"},
	} {
		cmd := New()
		cmd.SetArgs(args)
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", args, err)
		}
	}
	cmd, help := New(), &bytes.Buffer{}
	cmd.SetOut(help)
	cmd.SetArgs(nil)
	if err := cmd.ExecuteContext(t.Context()); err != nil || !strings.Contains(help.String(), "controller") {
		t.Errorf("without arguments: %v, %s", err, help)
	}
}

// ask asks for the challenge once somebody listens.
func ask(t *testing.T, address string) string {
	t.Helper()
	rig.Eventually(t, "somebody listens", func(ctx context.Context) string {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return err.Error()
		}
		_ = conn.Close()
		return ""
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/.well-known/acme-challenge/token", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "www.example.com"
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
