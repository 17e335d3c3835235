package ingress_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// The addresses of the test's own network namespace. An EndpointSlice takes no
// loopback addresses, and CAs ask port 80.
const (
	plainAddress  = "10.89.0.1" // Traefik
	secureAddress = "10.89.0.2" // Traefik that redirects to HTTPS
	responder1    = "10.89.0.11"
	responder2    = "10.89.0.12"
)

// inside marks the process that runs in the namespace.
const inside = "CHANCERY_E2E_NETNS"

// TestMain runs the tests in a network namespace of their own, which ends with them.
func TestMain(m *testing.M) {
	if os.Getenv(inside) != "" {
		if err := addresses(); err != nil {
			fmt.Fprintln(os.Stderr, "set up the network namespace:", err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	cmd := exec.Command(os.Args[0], os.Args[1:]...) //nolint:noctx // it ends with the test run
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// A control plane outside cannot be reached from inside: the tests start their own.
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "CHANCERY_TEST_KUBECONFIG=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "the tests in a network namespace of their own:", err)
		os.Exit(1)
	}
}

// addresses gives the namespace's loopback device the test's addresses: the kernel
// lets nothing out of it.
func addresses() error {
	commands := [][]string{{"link", "set", "lo", "up"}}
	for _, a := range []string{plainAddress, secureAddress, responder1, responder2} {
		commands = append(commands, []string{"addr", "add", a + "/32", "dev", "lo"})
	}
	for _, c := range commands {
		if out, err := exec.Command("ip", c...).CombinedOutput(); err != nil { //nolint:noctx,gosec // fixed commands
			return fmt.Errorf("ip %s (Debian: iproute2): %w: %s", strings.Join(c, " "), err, out)
		}
	}
	return nil
}
