package orders

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/machine/challenge"
	"chancery.dev/internal/solver"
)

// open is a Manager whose cache has one Challenge that answers, or none.
type open struct {
	ctrl.Manager

	cached openCache
}

func (o *open) GetCache() cache.Cache { return &o.cached }

type openCache struct {
	cache.Cache

	one bool
}

func (o *openCache) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	if list, ok := into.(*acmev1.ChallengeList); ok && o.one {
		list.Items = []acmev1.Challenge{{}}
	}
	return nil
}

// counted is a solver that counts its clean-ups.
type counted struct {
	solver.Solver

	n int
}

func (c *counted) CleanUp(context.Context, solver.Task) error { c.n++; return nil }

// TestACleanUpThatHasWaitedIsNotSent: another Challenge answers by the time that the call has its turn.
func TestACleanUpThatHasWaitedIsNotSent(t *testing.T) {
	m, cleaned := &open{}, &counted{}
	r := &challenges{Deps: &controller.Deps{
		Manager: m, Solvers: map[acmev1.ACMEChallengeType]solver.Solver{acmev1.ChallengeTypeDNS01: cleaned},
	}}
	now := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	c := &acmev1.Challenge{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", DeletionTimestamp: &now},
		Spec:       acmev1.ChallengeSpec{Type: acmev1.ChallengeTypeDNS01, AuthorizationURL: "ca/authz/1"},
	}
	call := r.call(c, nil, challenge.CleanUp, false)
	m.cached.one = true
	if _, err := call.Run(t.Context()); err == nil || cleaned.n != 0 {
		t.Errorf("%v after %d clean-ups", err, cleaned.n)
	}
	m.cached.one = false
	if _, err := call.Run(t.Context()); err != nil || cleaned.n != 1 {
		t.Errorf("%v after %d clean-ups", err, cleaned.n)
	}
}

// TestStubsAnswerForNoAuthorization: of a Challenge that is too large, the cache keeps no authorization.
func TestStubsAnswerForNoAuthorization(t *testing.T) {
	if got := openAuthorization(&acmev1.Challenge{}); len(got) > 0 {
		t.Errorf("indexed by %q", got)
	}
	now := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	r := &challenges{Deps: &controller.Deps{Manager: &open{cached: openCache{one: true}}}}
	if r.replaced(t.Context(), &acmev1.Challenge{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}}) {
		t.Error("a stub is held back by another one")
	}
}
