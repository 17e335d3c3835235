package dns01_test

import (
	"context"
	"slices"
	"testing"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/solver"
	"chancery.dev/internal/solver/dns01"
)

// The labels of two accounts.
const (
	accountLabel = "ujmmovf2vn55tgye"
	otherLabel   = "vkbgbqfhr6yv2asd"
)

// labelled is a DNS-ACCOUNT-01 challenge for a name.
func (w *world) labelled(name, value, label string) solver.Task {
	task := w.task(name, value)
	task.Challenge.Spec.Type, task.Challenge.Spec.AccountLabel = acmev1.ChallengeTypeDNSAccount01, label
	task.Challenge.Spec.Solver.DNS01.AccountLabel = true
	return task
}

func (w *world) holds(t *testing.T, want ...string) {
	t.Helper()
	if left := w.dns.TXT(); !slices.Equal(left, want) {
		t.Errorf("DNS holds %q, want %q", left, want)
	}
}

// Two accounts and DNS-01 prove one name side by side, each at a name of its own, and each takes away
// its own record only.
func TestAccountLabel(t *testing.T) {
	w := newWorld(t, nil)
	const name = "_acme-challenge.www.example.test."
	one, two, plain := w.labelled("www.example.test", "same", accountLabel), w.labelled("www.example.test", "same", otherLabel), w.task("www.example.test", "same")
	w.notYet(t, one, "TXT _"+accountLabel+"."+name, "NXDOMAIN")
	w.mustPresent(t, two)
	w.mustPresent(t, plain)
	w.notYet(t, one, "2 of 2") // what the others show is not its own
	w.mustPresent(t, one)
	w.holds(t, name+" same", "_"+accountLabel+"."+name+" same", "_"+otherLabel+"."+name+" same")
	for _, task := range []solver.Task{one, two, plain} {
		w.passes(t, task)
	}
	for _, task := range []solver.Task{one, plain} {
		if err := w.solver.CleanUp(t.Context(), task); err != nil {
			t.Fatal(err)
		}
	}
	w.holds(t, "_"+otherLabel+"."+name+" same")
	w.passes(t, two)
}

// A CNAME at the labelled name is followed like one at the plain name, which leads elsewhere.
func TestAccountLabelCNAME(t *testing.T) {
	w := newWorld(t, nil)
	task := w.labelled("alias.example.test", "value", accountLabel)
	task.Challenge.Spec.Solver.DNS01.CNAMEStrategy = acmev1.CNAMEStrategyFollow
	w.mustPresent(t, task)
	w.holds(t, "labelled.delegated.test. value")
	w.passes(t, task)
	task.Challenge.Spec.Solver.DNS01.CNAMEStrategy = "" // the self check follows in any case
	w.passes(t, task)
	task.Challenge.Spec.Solver.DNS01.CNAMEStrategy = acmev1.CNAMEStrategyFollow
	if err := w.solver.CleanUp(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	w.holds(t)
}

// A provider is told the labelled name, and the domain as ever: by that it finds its account.
func TestProvidersAreToldTheLabelledName(t *testing.T) {
	w := newWorld(t, nil)
	var got capture
	s := dns01.New(w.resolver, func(context.Context, dns01.Use) (dns01.Provider, error) { return &got, nil })
	task := w.labelled("x.sub.example.test", "value", accountLabel)
	for _, call := range []func(context.Context, solver.Task) error{s.Present, s.CleanUp} {
		got.record = dns01.Record{}
		err := call(t.Context(), task)
		if r := got.record; err != nil || r.Domain != "x.sub.example.test" || r.FQDN != "_"+accountLabel+"._acme-challenge.x.sub.example.test." || r.Zone != "sub.example.test." {
			t.Errorf("told %+v, %v", r, err)
		}
	}
}
