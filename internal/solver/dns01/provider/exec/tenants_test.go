package exec_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"chancery.dev/internal/solver/dns01/provider/exec"
)

// TestSilentProgramsOfOneTenant: programs that never answer take half of the places, and what works for another tenant
// is not ended for them.
func TestSilentProgramsOfOneTenant(t *testing.T) {
	w := newWorld(t, "well", func(o *exec.Options) { o.MaxProcesses = 4 })
	provider := func(tenant string, credential int) *exec.Provider {
		c := config("any")
		c.Tenant, c.Identity = tenant, fmt.Sprint(tenant, credential)
		return w.provider(t, c)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for n := range 10 {
		p := provider("noisy", n)
		go func() { _ = p.Present(ctx, record(silent)) }() // it does not come back
	}
	w.await(t, "two programs are silent, and others wait", func() bool { return w.count("present") == 2 && w.pool.Waits("noisy") })
	for range 3 {
		if err := provider("quiet", 1).Present(t.Context(), record("value")); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.count("configure"); n != 3 {
		t.Errorf("%d processes were started, want 3", n)
	}
	if err := provider("quiet", 2).Present(t.Context(), record("value")); err != nil { // takes the place of the one before
		t.Fatal(err)
	}
	if n := w.pool.Places(); n != 3 {
		t.Errorf("%d places are taken, want 3", n)
	}
}

// TestTenantsTakeTurns: a tenant whose requests with a shared credential take long does not keep another tenant's from
// having its turn.
func TestTenantsTakeTurns(t *testing.T) {
	w := newWorld(t, "gate", nil)
	present := func(tenant, value string) chan error {
		c, done := config("any"), make(chan error, 1)
		c.Tenant = tenant
		p := w.provider(t, c)
		go func() { done <- p.Present(t.Context(), record(value)) }()
		return done
	}
	all := []chan error{present("noisy", "first")}
	w.await(t, "the program works", func() bool { return w.count("present") == 1 })
	for n := range 5 {
		all = append(all, present("noisy", fmt.Sprint("noisy-", n)))
	}
	w.await(t, "others wait", func() bool { return w.pool.Queued() == 5 })
	all = append(all, present("quiet", "quiet"))
	w.await(t, "the other tenant waits", func() bool { return w.pool.Queued() == 6 })
	if err := os.WriteFile(filepath.Join(w.dir, "open"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, done := range all {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	var order []string
	for _, note := range w.notes() {
		if words := strings.Fields(note); words[0] == "present" {
			order = append(order, words[2])
		}
	}
	if i := slices.Index(order, "quiet"); i > 2 {
		t.Errorf("the other tenant's request was number %d of %q", i, order)
	}
}
