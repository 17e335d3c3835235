// Package netns runs the tests of a package in a separate network namespace. It is for tests that need an address
// outside of the loopback network, or a port that another process on the machine may already use. No packet leaves the
// namespace. Only tests import the package.
package netns

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"chancery.dev/internal/rig/tool"
)

// inside marks the process that runs in the namespace.
const inside = "CHANCERY_TEST_NETNS"

// Tests is what testing.M does.
type Tests interface{ Run() int }

// Run runs the tests in a new network namespace, whose loopback device has the given
// addresses (IPv4 or IPv6) beside its own, and returns the exit code: it is the body of
// a TestMain. No control plane outside can be reached from inside, so the tests start
// their own. Where no namespace with these addresses can be made, it says so loudly and runs nothing. It
// needs the command ip (Debian: iproute2), whose absence is a failure in continuous
// integration, and either root or user namespaces.
func Run(tests Tests, addresses ...string) int {
	if os.Getenv(inside) != "" {
		return tests.Run()
	}
	ip, err := tool.Find("ip")
	if err != nil {
		code := skip(os.Stderr, err.Error())
		if tool.Required() {
			code = 1
		}
		return code
	}
	script := "set -e; " + ip + " link set lo up; "
	for _, a := range addresses {
		script += ip + " addr add " + a + " dev lo; "
	}
	if out, err := command(nil, "sh", "-c", script).CombinedOutput(); err != nil {
		return skip(os.Stderr, fmt.Sprintf("no network namespace with %s can be made: %v %s", strings.Join(addresses, ", "), err, out))
	}
	cmd := command(environment(), "sh", append([]string{"-c", script + `exec "$0" "$@"`}, os.Args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "the tests in a network namespace of their own:", err)
		return 1
	}
	return 0
}

func skip(w io.Writer, why string) int {
	fmt.Fprintln(w, "SKIPPED, all tests of this package:", why)
	return 0
}

// command is a command in a new network namespace, which ends with this process.
func command(env []string, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...) //nolint:noctx // it ends with the test run
	cmd.Env = env
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	return cmd
}

func environment() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "CHANCERY_TEST_KUBECONFIG=") && !strings.HasPrefix(v, "CHANCERY_TEST_SPARES=") {
			env = append(env, v)
		}
	}
	return append(env, inside+"=1")
}
