package podrequests

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/machine/podrequest"
)

// Every replica signs by issuers that ask no server, and the one that leads signs at once. Another replica acts on a
// request that has no verdict after its patience: docs/decisions/0016-every-replica-signs.md says why.
const (
	leastPatience = 300 * time.Millisecond
	mostPatience  = 5 * time.Second
	// slower is how many times as long as the slowest request of the last minute a replica waits.
	slower = 3
)

// The reasons of the condition Issued: who has signed.
const (
	reasonIssued        = "Issued"
	reasonWithoutLeader = "IssuedWithoutLeader"
)

// leads reports whether this replica is the one that leads. A replica that has led and must not act any more makes no
// passes.
func leads(d *controller.Deps) bool {
	select {
	case <-d.Manager.Elected():
		return true
	default:
		return false
	}
}

// slowest is the key under which requests.seen keeps how long another replica took for the slowest request of the last
// minute.
type slowest struct{}

// saw notes how long the replica that leads took for a request that has a verdict now. If the API server is slow, or
// that replica has a lot to do, a second signature would come too late, and make both slower still. What others than
// the leader took does not count, since they had been waiting.
func (r *requests) saw(pcr *podCertificateRequest, took time.Duration) {
	if slices.ContainsFunc(pcr.Status.Conditions, func(c metav1.Condition) bool { return c.Reason == reasonWithoutLeader }) {
		return
	}
	if longest, is := r.seen.Get(slowest{}); !is || took > longest.(time.Duration) { //nolint:forcetypeassert // saw alone adds to it
		r.seen.Add(slowest{}, took, time.Minute)
	}
}

// patience is how long a replica that does not lead leaves a request to the one that leads.
func (r *requests) patience() time.Duration {
	longest, _ := r.seen.Get(slowest{})
	took, _ := longest.(time.Duration)
	return min(max(leastPatience, slower*took), mostPatience)
}

// leaves reports whether this replica leaves an action to the one that leads, and what it waits for then. It never
// denies a request, and tells nobody what one waits for: a replica of another version may know better. The replicas
// that do not lead spread their turns by chance, in [0,1): they would get in each other's way, and in that of the
// replica that leads, if all took the requests in one sequence. It asks no server to sign: then the server would have
// the same request from each. afar says that one signs, and m is what is remembered of the request.
func (r *requests) leaves(a podrequest.Action, afar bool, m *memory, chance float64) (plan engine.Plan, leaves bool) {
	if leads(r.Deps) {
		return engine.Plan{}, false
	}
	switch a.Step {
	case podrequest.StepWait, podrequest.StepDeny:
		m.first = time.Time{}
		return engine.Plan{Waits: engine.For{What: engine.WaitEvent, Detail: a.Message}}, true
	case podrequest.StepIgnore:
		return engine.Plan{}, false
	default:
	}
	now := r.Now()
	switch {
	case afar:
		return engine.Plan{Waits: engine.For{What: engine.WaitEvent, Detail: "the replica that leads asks the server to sign"}}, true
	case r.Fit != nil && !r.Fit():
		return engine.Plan{Waits: engine.For{What: engine.WaitTime, Detail: "the custom resource definitions were not found to be fit yet"}, Wake: now.Add(mostPatience)}, true
	case m.first.IsZero():
		m.first = now
		m.turn = now.Add(time.Duration((1 + chance) * float64(r.patience())))
	}
	return engine.Plan{Waits: engine.For{What: engine.WaitTime, Detail: "the replica that leads signs first"}, Wake: m.turn}, now.Before(m.turn)
}

// sameIssuer reports whether an issuer is as this replica has seen it. A replica that was stopped goes on with old
// caches before its watches tell what has changed. The lease ends what a replica does that has led; one that does not
// lead asks the API server, for the few requests that it signs.
func (r *requests) sameIssuer(ctx context.Context, issuer certmanagerv1.GenericIssuer) (bool, error) {
	now, is := issuer.DeepCopyObject().(client.Object)
	if leads(r.Deps) || !is {
		return true, nil
	}
	err := r.Manager.GetAPIReader().Get(ctx, client.ObjectKeyFromObject(issuer), now)
	return err == nil && now.GetResourceVersion() == issuer.GetResourceVersion(), client.IgnoreNotFound(err)
}

// leadersEvents emits the events of the replica that leads, and drops those of the others: all see the same.
type leadersEvents struct {
	record.EventRecorder

	of *controller.Deps
}

// Event implements record.EventRecorder. The engine calls no other method of it.
func (e leadersEvents) Event(about runtime.Object, kind, reason, message string) {
	if leads(e.of) {
		e.EventRecorder.Event(about, kind, reason, message)
	}
}
