package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"chancery.dev/internal/rig"
)

// TestTimersAreBundled: the kernel may let the timers of all threads of a controller go off late, those
// included that Go has made before main, and the process keeps its id.
func TestTimersAreBundled(t *testing.T) {
	t.Parallel()
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Args = []string{"chancery", "controller", "--kubeconfig", writeKubeconfig(t, &rest.Config{Host: "http://" + silent.Addr().String()})}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	rig.Eventually(t, "all threads have the slack", func(context.Context) string {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", cmd.Process.Pid))
		if err != nil || len(threads) < 3 {
			return fmt.Sprintf("threads %v, error %v", threads, err)
		}
		for _, thread := range threads {
			slack, err := os.ReadFile(filepath.Join("/proc", filepath.Base(thread), "timerslack_ns"))
			if errors.Is(err, fs.ErrPermission) {
				t.Skip("the slack of another process may not be read: ", err)
			}
			if got := strings.TrimSpace(string(slack)); err != nil || got != "3000000" {
				return fmt.Sprintf("%s of %d threads: %q ns, error %v", thread, len(threads), got, err)
			}
		}
		return ""
	})
}
