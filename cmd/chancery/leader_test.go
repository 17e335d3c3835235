package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"

	"chancery.dev/internal/rig"
)

// TestStoppedLeader: a process that leads, is stopped past its lease, as with its machine, and goes on, ends: the other
// one keeps the lease, and hands the lease over when it ends itself.
func TestStoppedLeader(t *testing.T) {
	t.Parallel() // it mostly waits
	w := rig.NewWorld(t)
	kubeconfig := writeKubeconfig(t, w.Admin)
	holder := func(ctx context.Context) string {
		lease := &coordinationv1.Lease{}
		if err := w.Get(ctx, "cert-manager-controller", lease); err != nil || lease.Spec.HolderIdentity == nil {
			return ""
		}
		return *lease.Spec.HolderIdentity
	}
	leads := func(not string) (name string) {
		rig.Eventually(t, "another one leads", func(ctx context.Context) string {
			if name = holder(ctx); name == "" || name == not {
				return fmt.Sprintf("the lease is held by %q", name)
			}
			return ""
		})
		return name
	}
	stopped := startController(t, w, kubeconfig, "12s", "9s", "2s")
	first := leads("")
	stopped.signal(t, syscall.SIGSTOP)
	following := startController(t, w, kubeconfig, "12s", "9s", "2s")
	second := leads(first)
	stopped.signal(t, syscall.SIGCONT)
	err := stopped.Wait()
	if said := stopped.said.String(); err == nil || !strings.Contains(said, "lost the lease "+w.Namespace+"/cert-manager-controller to another process") {
		t.Errorf("the stopped one ended with %v: %s", err, said)
	}
	if now := holder(t.Context()); now != second {
		t.Errorf("the lease is held by %q, and not by %q any more", now, second)
	}
	following.signal(t, syscall.SIGTERM)
	if err := following.Wait(); err != nil {
		t.Errorf("%v: %s", err, following.said.String())
	}
	if now := holder(t.Context()); now != "" {
		t.Errorf("the lease is still held by %q", now)
	}
}

// process is a controller that runs.
type process struct {
	*exec.Cmd
	said *bytes.Buffer
}

func (p process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// startController starts one with the times of the lease, and other flags.
func startController(t *testing.T, w *rig.World, kubeconfig, lease, deadline, retry string, flags ...string) process {
	t.Helper()
	p := process{exec.Command("chancery", append([]string{"controller", "--kubeconfig", kubeconfig, "--namespace", w.Namespace,
		"--leader-election-namespace", w.Namespace, "--leader-election-lease-duration", lease, "--leader-election-renew-deadline", deadline,
		"--leader-election-retry-period", retry, "--metrics-listen-address", "0", "--internal-healthz-listen-address", "0"}, flags...)...), &bytes.Buffer{}}
	p.Stderr = p.said
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill() }) // it has ended, or the test has failed
	return p
}
