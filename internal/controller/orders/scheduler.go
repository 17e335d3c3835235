package orders

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/kube/informers"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/challenge"
	"chancery.dev/internal/machine/listeners"
	"chancery.dev/internal/machine/propagation"
	"chancery.dev/internal/machine/schedule"
)

const (
	// schedulerWrites is how many decisions are written at once.
	schedulerWrites = 8
	// schedulerWriteLimit bounds one write.
	schedulerWriteLimit = 15 * time.Second
)

// errNotStarted says that a Challenge must not be started: it has ended, or is about to, or has no issuer.
var errNotStarted = errors.New("the challenge must not be started")

// scheduler starts queued Challenges and parks those that wait while others could work (mission rules 2, 3 and 6). The
// watch and our own writes only say that a Challenge has changed. What the Challenge is like is read from the client,
// which knows our own writes before the watch shows them. internal/machine/schedule decides. The scheduler is the only
// writer of status.processing=true. On a replica that does not lead, it only listens.
type scheduler struct {
	*controller.Deps

	listening toolscache.ResourceEventHandlerRegistration
	kick      chan struct{}
	settings  acmeflow.Settings
	// mayNotStart says why a Challenge must not be started; empty if it may be.
	mayNotStart func(ctx context.Context, c *acmev1.Challenge) (string, error)

	mu    sync.Mutex
	queue *schedule.Scheduler
	// credentialChanged are the Challenges that have a changed credential which has not been tried.
	credentialChanged map[schedule.Key]bool
	// settleTimes says how long after a self check the CAs see what it has seen.
	settleTimes propagation.Ledger
}

func newScheduler(d *controller.Deps, settings acmeflow.Settings, limits schedule.Options) *scheduler {
	return &scheduler{
		Deps: d, kick: make(chan struct{}, 1), settings: settings, queue: schedule.New(limits), credentialChanged: map[schedule.Key]bool{},
	}
}

// listen makes the watch tell the scheduler of changes.
func (s *scheduler) listen(ctx context.Context) error {
	informer, err := s.Manager.GetCache().GetInformer(ctx, &acmev1.Challenge{})
	if err != nil {
		return err
	}
	s.listening, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { s.seen(ctx, obj, false) },
		UpdateFunc: func(_, obj any) { s.seen(ctx, obj, false) },
		DeleteFunc: func(obj any) { s.seen(ctx, obj, true) },
	})
	return err
}

// waits lists who waits for a slot.
func (s *scheduler) waits() (out []engine.Wait) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue.Waiting(func(c schedule.Challenge, why schedule.Outcome, until time.Time) {
		detail := map[schedule.Outcome]string{
			schedule.Delayed:       "there is nothing to do before then",
			schedule.NameBusy:      "another Challenge for the same DNS name and type is in flight, is being validated, or goes first",
			schedule.IssuerFull:    "as many Challenges of its issuer are in flight as may be",
			schedule.ClassFull:     "as many Challenges of its ingress class or Gateway are in flight as may be",
			schedule.NamespaceFull: "as many Challenges of its namespace are in flight, or are being validated, as may be",
			schedule.Full:          "as many Challenges are in flight as may be",
		}[why]
		out = append(out, engine.Wait{
			Kind: acmev1.ChallengeKind, Namespace: c.Namespace, Name: c.Name, Since: c.Created, Until: until,
			For: engine.For{What: engine.WaitSlot, Detail: detail},
		})
	})
	return out
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: two schedulers would
// exceed the cap.
func (s *scheduler) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable. A change has a pass at once; all that change while the scheduler rests after a
// pass share the next one.
func (s *scheduler) Start(ctx context.Context) error {
	if !toolscache.WaitForCacheSync(ctx.Done(), s.listening.HasSynced) {
		return nil // the process ends
	}
	var writes sync.WaitGroup
	defer writes.Wait()
	slots := make(chan struct{}, schedulerWrites)
	for ctx.Err() == nil && s.Engine.Await(ctx) == nil {
		pass, rest := s.pass(ctx)
		for _, d := range pass.Decisions {
			slots <- struct{}{}
			writes.Go(func() {
				defer func() { <-slots }()
				s.write(ctx, d)
			})
		}
		rested := make(chan struct{})
		stop := s.AfterFunc(rest, func() { close(rested) })
		await(ctx, rested)
		stop()
		if !pass.Wake.IsZero() {
			stop = s.AfterFunc(max(pass.Wake.Sub(s.Now()), 0), s.wakeUp)
		}
		await(ctx, s.kick)
		stop()
	}
	return nil
}

func await(ctx context.Context, event <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-event:
	}
}

func (s *scheduler) wakeUp() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// locked does something with what is known. A panic, which is a bug over one Challenge, must not end the process.
func (s *scheduler) locked(ctx context.Context, do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := fault.Contained(func() error { do(); return nil }); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot schedule Challenges")
	}
}

// pass decides, and says how long to rest.
func (s *scheduler) pass(ctx context.Context) (pass schedule.Pass, rest time.Duration) {
	s.locked(ctx, func() {
		rest = s.queue.Rest()
		pass = s.queue.Next(s.Now())
	})
	return pass, rest
}

// seen takes in that the watch shows a Challenge, or that a Challenge is gone.
func (s *scheduler) seen(ctx context.Context, obj any, gone bool) {
	c, ok := informers.LastOf[*acmev1.Challenge](obj)
	if !ok {
		return
	}
	if gone {
		s.Client.Observe(c, true) // else our last write would still be read
	}
	s.locked(ctx, func() { s.look(ctx, client.ObjectKeyFromObject(c)) })
}

// gone takes in that a Challenge is gone: the API server may say so before the watch does.
func (s *scheduler) gone(ctx context.Context, key schedule.Key) {
	s.locked(ctx, func() {
		s.look(ctx, key)
		delete(s.credentialChanged, key)
	})
}

// setCredentialChanged notes Challenges that have a changed credential.
func (s *scheduler) setCredentialChanged(ctx context.Context, all []reconcile.Request) {
	s.locked(ctx, func() {
		for _, req := range all {
			s.credentialChanged[req.NamespacedName] = true
		}
	})
}

// takeCredentialChanged reports, once, whether a Challenge has a changed credential.
func (s *scheduler) takeCredentialChanged(ctx context.Context, key schedule.Key) (is bool) {
	s.locked(ctx, func() {
		is = s.credentialChanged[key]
		delete(s.credentialChanged, key)
	})
	return is
}

// look takes in what a Challenge is like now. It is nil if the Challenge is gone.
func (s *scheduler) look(ctx context.Context, key schedule.Key) *acmev1.Challenge {
	c := &acmev1.Challenge{}
	if err := s.Client.Get(ctx, key, c); err != nil {
		if apierrors.IsNotFound(err) && s.queue.Remove(key) {
			s.wakeUp()
		}
		return nil // there is no other error but that the process ends
	}
	known, _ := s.queue.Challenge(key)
	facts := schedule.Challenge{
		Key: key, UID: c.UID, DNSName: c.Spec.DNSName, Type: string(c.Spec.Type),
		Issuer: controller.IssuerKeyOf(c.Spec.IssuerRef, c.Namespace), Class: routeClass(c), Created: c.CreationTimestamp.Time,
		Processing: c.Status.Processing, Presented: c.Status.Presented,
		Final: c.Status.State.IsFinal() || c.DeletionTimestamp != nil || s.settings.Refuses(c) != "",
	}
	if known.UID == c.UID {
		facts.Yields, facts.Ready, facts.NotBefore, facts.HoldsUntil = known.Yields, known.Ready, known.NotBefore, known.HoldsUntil
	}
	if held := challenge.NameHeldUntil(c.Status); !held.IsZero() {
		facts.HoldsUntil = held
	}
	switch {
	case !engine.IsIgnored(c):
		s.set(facts)
	case facts.Processing:
		facts.Yields = true
		s.set(facts)
	case facts.Presented && !facts.HoldsUntil.IsZero(): // its name is busy all the same
		facts.Ready = false
		s.set(facts)
	case s.queue.Remove(key):
		s.wakeUp()
	}
	return c
}

func (s *scheduler) set(facts schedule.Challenge) {
	if s.queue.Set(facts) {
		s.wakeUp()
	}
}

// decided takes in what has been decided about a Challenge. What was decided on an older state does not count: the next
// decision follows.
func (s *scheduler) decided(ctx context.Context, c *acmev1.Challenge, a challenge.Action) {
	s.locked(ctx, func() {
		key := client.ObjectKeyFromObject(c)
		if now := s.look(ctx, key); now == nil || now.UID != c.UID || now.ResourceVersion != c.ResourceVersion {
			return
		}
		facts, _ := s.queue.Challenge(key)
		facts.Yields, facts.Ready, facts.NotBefore, facts.HoldsUntil = a.Yield, a.Ready, a.NotBefore, a.HoldsUntil
		s.set(facts)
	})
}

// write carries a decision out, and reports what came of it.
func (s *scheduler) write(ctx context.Context, d schedule.Decision) {
	limited, cancel := context.WithTimeout(ctx, schedulerWriteLimit)
	defer cancel()
	err := fault.Contained(func() error { return s.apply(limited, d) })
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && !errors.Is(err, errNotStarted) {
		// Nobody else says it: a right may be missing.
		ctrl.LoggerFrom(ctx).Error(err, "cannot schedule a Challenge, trying again", "namespace", d.Namespace, "name", d.Name)
	}
	s.locked(ctx, func() {
		s.look(ctx, d.Key)
		if answered(err) && !(d.Again && apierrors.IsConflict(err)) { // the earlier write may be what came first
			s.queue.Answered(d.Key, err == nil)
		} else {
			s.queue.Lost(d.Key)
		}
		s.wakeUp()
	})
}

// answered reports whether it is known that a write was done, or that it was not. After a time-out, or with the error
// of a server that is in trouble, it is not.
func answered(err error) bool {
	var status apierrors.APIStatus
	if err == nil || errors.Is(err, errNotStarted) {
		return true
	}
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusRequestTimeout
}

// apply writes a decision. If the answer to an earlier write of the decision was lost (Decision.Again), apply first
// reads the Challenge from the API server. If the earlier write arrives later still, the API server refuses it: each
// write names the version of the Challenge that it is for.
func (s *scheduler) apply(ctx context.Context, d schedule.Decision) error {
	c := &acmev1.Challenge{}
	read := s.Client.Get
	if d.Again {
		read = func(ctx context.Context, key client.ObjectKey, c client.Object) error {
			return s.Client.Live(ctx, s.Manager.GetAPIReader(), key, c)
		}
	}
	if err := read(ctx, d.Key, c); err != nil {
		return err
	}
	changed := c.DeepCopy()
	if d.Outcome == schedule.Starting {
		switch why, err := s.mayNotStart(ctx, c); {
		case err != nil:
			return err
		case why != "":
			return errNotStarted // its reconciler ends it, or holds it until there is an issuer
		}
		changed.Status = challenge.Start(c.Status)
	} else {
		changed.Status = challenge.Park(c.Status, s.holdsUntil(ctx, d.Key))
	}
	switch {
	case changed.Status.Processing == c.Status.Processing:
		return nil
	case d.Outcome == schedule.Starting && (c.Status.State.IsFinal() || c.DeletionTimestamp != nil):
		return errNotStarted
	default:
		err := s.Engine.WriteStatus(ctx, c, changed)
		if err == nil && d.Outcome == schedule.Starting && s.Engine.Traces() {
			s.Engine.Ended(changed, engine.Step{
				Issuance: issuanceOfChallenge(ctx, s.Deps, c), Name: "queued", Start: c.CreationTimestamp.Time,
			})
		}
		if err == nil && d.Outcome == schedule.Starting && s.Settings.StepEvents {
			engine.Emit(s.Events(challengesComponent), c, engine.Event{
				Reason: acmev1.ChallengeReasonStarted, Message: "Challenge scheduled for processing",
			})
		}
		return err
	}
}

// holdsUntil is until when a Challenge holds its name.
func (s *scheduler) holdsUntil(ctx context.Context, key schedule.Key) (until time.Time) {
	s.locked(ctx, func() {
		known, _ := s.queue.Challenge(key)
		until = known.HoldsUntil
	})
	return until
}

// routeClass names who serves the route of a Challenge; empty if it has none. An Ingress that
// is edited in place is a class of its own: whose it is is not in the Challenge.
func routeClass(c *acmev1.Challenge) string {
	http := c.Spec.Solver.HTTP01
	switch {
	case http == nil:
		return ""
	case http.GatewayHTTPRoute != nil && len(http.GatewayHTTPRoute.ParentRefs) > 0:
		kind, place := listeners.Target(http.GatewayHTTPRoute.ParentRefs[0], c.Namespace)
		return fmt.Sprintf("%s %s", kind, place)
	case http.Ingress == nil:
		return ""
	case http.Ingress.Name != "":
		return fmt.Sprintf("Ingress %s/%s", c.Namespace, http.Ingress.Name)
	case http.Ingress.IngressClassName != nil:
		return "class " + *http.Ingress.IngressClassName
	case http.Ingress.Class != nil:
		return "class " + *http.Ingress.Class
	default:
		return "the default class"
	}
}
