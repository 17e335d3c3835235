package ordering

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acmeflow"
	"chancery.dev/internal/attach"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/schedule"
)

const (
	// schedulerWrites is how many decisions are written at once.
	schedulerWrites = 8
	// schedulerWriteLimit bounds one write.
	schedulerWriteLimit = 15 * time.Second
)

// scheduler starts queued Challenges and parks those that wait while others could
// work (mission rules 2, 3 and 6). It is fed by the watch and by our own writes,
// decides through internal/schedule, and is the only writer of
// status.processing=true. On a replica that does not lead it only listens.
type scheduler struct {
	*controller.Deps

	listening toolscache.ResourceEventHandlerRegistration
	kick      chan struct{}
	settings  acmeflow.Settings

	mu    sync.Mutex
	index *schedule.Scheduler
	// leading is set once the index is loaded; before that, only known is kept.
	leading bool
	known   map[schedule.Key]observedChallenge
}

// observedChallenge is the newest that is known of a Challenge.
type observedChallenge struct {
	uid     types.UID
	version string
	facts   schedule.Challenge
}

func setupScheduler(ctx context.Context, d *controller.Deps, settings acmeflow.Settings, limits schedule.Options) (*scheduler, error) {
	s := &scheduler{
		Deps: d, kick: make(chan struct{}, 1), settings: settings,
		index: schedule.New(limits),
		known: map[schedule.Key]observedChallenge{},
	}
	informer, err := d.Manager.GetCache().GetInformer(ctx, &acmev1.Challenge{})
	if err != nil {
		return nil, err
	}
	if s.listening, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { s.observe(obj) },
		UpdateFunc: func(_, obj any) { s.observe(obj) },
		DeleteFunc: s.gone,
	}); err != nil {
		return nil, err
	}
	return s, d.Manager.Add(s)
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: two schedulers would
// exceed the cap.
func (s *scheduler) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable.
func (s *scheduler) Start(ctx context.Context) error {
	if !toolscache.WaitForCacheSync(ctx.Done(), s.listening.HasSynced) {
		return nil // the process ends
	}
	s.load()
	stop := func() {}
	defer func() { stop() }()
	s.nudge()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.kick:
		}
		s.mu.Lock()
		now := s.Now()
		pass := s.index.Next(now)
		s.mu.Unlock()
		s.write(ctx, pass.Decisions)
		stop()
		stop = func() {}
		if !pass.Wake.IsZero() {
			stop = s.AfterFunc(max(pass.Wake.Sub(now), time.Millisecond), s.nudge)
		}
	}
}

// load fills the index with what is known, oldest first.
func (s *scheduler) load() {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]schedule.Challenge, 0, len(s.known))
	for _, o := range s.known {
		all = append(all, o.facts)
	}
	s.index.Load(all)
	s.leading = true
}

// observe takes in a Challenge as a watch or a write of our own shows it.
func (s *scheduler) observe(obj any) {
	c, ok := obj.(*acmev1.Challenge)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.take(c)
}

// take notes what a Challenge is like now, unless something newer is known: a watch
// that lags behind our own writes would undo them.
func (s *scheduler) take(c *acmev1.Challenge) (current bool) {
	key := schedule.Key{Namespace: c.Namespace, Name: c.Name}
	old, had := s.known[key]
	if had && old.uid == c.UID {
		if order, err := resourceversion.CompareResourceVersion(c.ResourceVersion, old.version); err == nil && order < 0 {
			return false
		}
	}
	facts := schedule.Challenge{}
	if had && old.uid == c.UID {
		facts = old.facts
	}
	facts.Key, facts.DNSName, facts.Type = key, c.Spec.DNSName, string(c.Spec.Type)
	facts.Issuer = controller.IssuerKeyOf(c.Spec.IssuerRef, c.Namespace)
	facts.Class = routeClass(c)
	facts.Created = c.CreationTimestamp.Time
	facts.Processing, facts.Presented = c.Status.Processing, c.Status.Presented
	facts.Final = c.Status.State.IsFinal() || c.DeletionTimestamp != nil || s.settings.Refuses(c) != ""
	s.set(observedChallenge{c.UID, c.ResourceVersion, facts})
	return true
}

// routeClass names who serves the route of a Challenge; empty if it has none. An Ingress that
// is edited in place is a class of its own: whose it is is not in the Challenge.
func routeClass(c *acmev1.Challenge) string {
	http := c.Spec.Solver.HTTP01
	switch {
	case http == nil:
		return ""
	case http.GatewayHTTPRoute != nil && len(http.GatewayHTTPRoute.ParentRefs) > 0:
		kind, place := attach.Target(http.GatewayHTTPRoute.ParentRefs[0], c.Namespace)
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

func (s *scheduler) set(o observedChallenge) {
	s.known[o.facts.Key] = o
	if s.leading {
		s.index.Set(o.facts)
		s.nudge()
	}
}

func (s *scheduler) gone(obj any) {
	if last, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	c, ok := obj.(*acmev1.Challenge)
	if !ok {
		return
	}
	key := schedule.Key{Namespace: c.Namespace, Name: c.Name}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[key].uid == c.UID {
		delete(s.known, key)
		s.index.Remove(key)
		s.nudge()
	}
}

// decided takes in what has been decided about a Challenge, and what was written.
func (s *scheduler) decided(c *acmev1.Challenge, a acmeflow.ChallengeAction) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := schedule.Key{Namespace: c.Namespace, Name: c.Name}
	if _, had := s.known[key]; !had && c.DeletionTimestamp != nil {
		return // the watch has shown that it is gone
	}
	if !s.take(c) {
		return // decided on an older state: its next decision follows
	}
	o := s.known[key]
	o.facts.Yields, o.facts.Ready, o.facts.NotBefore = a.Yield, a.Ready, a.NotBefore
	s.set(o)
}

func (s *scheduler) nudge() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// write carries decisions out, and reports each one.
func (s *scheduler) write(ctx context.Context, decisions []schedule.Decision) {
	slots := make(chan struct{}, schedulerWrites)
	var wg sync.WaitGroup
	for _, d := range decisions {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, schedulerWriteLimit)
			defer cancel()
			written, err := s.apply(ctx, d)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.index.Applied(d.Key, err == nil)
			switch {
			case apierrors.IsNotFound(err):
				// A decision that came late has brought back what the watch had shown gone.
				delete(s.known, d.Key)
				s.index.Remove(d.Key)
			case written != nil:
				s.take(written)
			case err != nil && !apierrors.IsConflict(err):
				// Nobody else says it: a right may be missing.
				ctrl.LoggerFrom(ctx).Error(err, "cannot schedule a Challenge, trying again", "namespace", d.Namespace, "name", d.Name)
			}
			s.nudge()
		})
	}
	wg.Wait()
}

// apply writes one decision. It returns the Challenge as it is then.
func (s *scheduler) apply(ctx context.Context, d schedule.Decision) (*acmev1.Challenge, error) {
	c := &acmev1.Challenge{}
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: d.Namespace, Name: d.Name}, c); err != nil {
		return nil, err
	}
	changed := c.DeepCopy()
	if d.Outcome == schedule.Starting {
		if c.Status.State.IsFinal() || c.DeletionTimestamp != nil {
			return c, errTooLate
		}
		changed.Status = acmeflow.StartChallenge(c.Status)
	} else {
		changed.Status = acmeflow.ParkChallenge(c.Status)
	}
	if changed.Status.Processing == c.Status.Processing {
		return c, nil
	}
	if err := s.WriteStatus(ctx, c, changed); err != nil {
		return nil, err
	}
	return changed, nil
}
