package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
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
	slacks := func() (string, error) {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", cmd.Process.Pid))
		if err != nil {
			return "", err
		}
		var all []string
		for _, thread := range threads {
			slack, err := os.ReadFile(filepath.Join("/proc", filepath.Base(thread), "timerslack_ns"))
			if err != nil {
				return "", err
			}
			all = append(all, strings.TrimSpace(string(slack)))
		}
		return strings.Join(all, " "), nil
	}
	var got string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		got, err = slacks()
		switch {
		case errors.Is(err, fs.ErrPermission):
			t.Skip("the slack of another process may not be read: ", err)
		case err != nil:
			continue // a thread has ended meanwhile
		case strings.Count(got, " ") >= 2 && strings.Trim(strings.ReplaceAll(got, strconv.Itoa(1_000_000), ""), " ") == "":
			return
		}
	}
	t.Errorf("the threads of the controller have slacks of %q ns (%v)", got, err)
}
