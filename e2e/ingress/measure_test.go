package ingress_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/rig"
)

// milestone is a moment in the life of a Challenge.
type milestone string

const (
	// started: a watch shows that the scheduler has set it processing.
	started milestone = "started"
	// known: the responder answers.
	known milestone = "answered by the responder"
	// routed: a watch shows its path in an Ingress or HTTPRoute.
	routed milestone = "routed"
	// answered: it is answered through Traefik, as seen by us or by the CA.
	answered milestone = "answered through Traefik"
)

// stopwatch notes when Challenges come to their milestones.
type stopwatch struct {
	client *http.Client

	mu sync.Mutex
	// at is by token.
	at map[string]map[milestone]time.Time
	// routes counts what the watch of routes shows.
	routes map[apiwatch.EventType]int
}

// note notes a milestone, and whether it is the first time.
func (s *stopwatch) note(token string, m milestone) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at[token] == nil {
		s.at[token] = map[milestone]time.Time{}
	}
	if _, had := s.at[token][m]; had {
		return false
	}
	s.at[token][m] = time.Now()
	return true
}

func (s *stopwatch) has(token string, m milestone) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, had := s.at[token][m]
	return had
}

// between returns how long each Challenge took from one milestone to another, sorted.
func (s *stopwatch) between(from, to milestone) []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []time.Duration
	for _, at := range s.at {
		if begun, done := at[from], at[to]; !begun.IsZero() && !done.IsZero() {
			all = append(all, max(0, done.Sub(begun)))
		}
	}
	slices.Sort(all)
	return all
}

// ask asks at an address for the answer to a Challenge until it comes, or the
// Challenge is over.
func (s *stopwatch) ask(ctx context.Context, c *acmev1.Challenge, address string, m milestone) {
	for began := time.Now(); time.Since(began) < rig.Patience && !s.has(c.Spec.Token, m); time.Sleep(100 * time.Millisecond) { //nolint:forbidigo // a measurement that must not be the load
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/.well-known/acme-challenge/"+c.Spec.Token, http.NoBody)
		if err != nil {
			return
		}
		req.Host = c.Spec.DNSName
		resp, err := s.client.Do(req)
		if err != nil {
			continue
		}
		_, _ = io.Copy(io.Discard, resp.Body) // or the connection is not used again
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			s.note(c.Spec.Token, m)
		}
	}
}

// measure watches Challenges start and asks for their answers. The connections are
// kept, and nothing else is asked, for the measurement must not be the load. routes is
// a list of what leads to the responder.
func (w *world) measure(t *testing.T, routes client.ObjectList) (stop func() *stopwatch) {
	t.Helper()
	s := &stopwatch{
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 200}, Timeout: 5 * time.Second},
		at:     map[string]map[milestone]time.Time{}, routes: map[apiwatch.EventType]int{},
	}
	c, err := client.NewWithWatch(w.Admin, client.Options{Scheme: w.client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	var watches []apiwatch.Interface
	for _, list := range []client.ObjectList{&acmev1.ChallengeList{}, routes} {
		watch, err := c.Watch(t.Context(), list, client.InNamespace(w.Namespace))
		if err != nil {
			t.Fatal(err)
		}
		watches = append(watches, watch)
	}
	var asking sync.WaitGroup
	asking.Go(func() {
		for event := range watches[0].ResultChan() {
			challenge, ok := event.Object.(*acmev1.Challenge)
			switch {
			case !ok:
			case challenge.Status.State == acmev1.Valid: // the CA was faster
				s.note(challenge.Spec.Token, known)
				s.note(challenge.Spec.Token, answered)
			case challenge.Status.Processing && s.note(challenge.Spec.Token, started):
				asking.Go(func() { s.ask(t.Context(), challenge, net.JoinHostPort(responder1, "8089"), known) })
				asking.Go(func() { s.ask(t.Context(), challenge, plainAddress, answered) })
			}
		}
	})
	asking.Go(func() {
		for event := range watches[1].ResultChan() {
			for _, token := range tokensOf(event.Object) {
				s.note(token, routed)
			}
			s.mu.Lock()
			s.routes[event.Type]++
			s.mu.Unlock()
		}
	})
	return func() *stopwatch {
		for _, watch := range watches {
			watch.Stop()
		}
		asking.Wait()
		return s
	}
}

// log logs percentiles, and reports Challenges that were not seen.
func (s *stopwatch) log(t *testing.T, from, to milestone, challenges int) {
	t.Helper()
	took := s.between(from, to)
	if len(took) != challenges {
		t.Errorf("%d of %d Challenges were seen from %s to %s", len(took), challenges, from, to)
		return
	}
	t.Logf("from %s to %s: p50 %s, p99 %s", from, to,
		took[len(took)/2].Round(time.Millisecond), took[len(took)*99/100].Round(time.Millisecond))
}

// tokensOf returns the tokens that an Ingress or HTTPRoute has paths for.
func tokensOf(route runtime.Object) []string {
	var paths []string
	switch route := route.(type) {
	case *networkingv1.Ingress:
		for _, rule := range route.Spec.Rules {
			if rule.HTTP == nil {
				continue
			}
			for _, path := range rule.HTTP.Paths {
				paths = append(paths, path.Path)
			}
		}
	case *gwapiv1.HTTPRoute:
		for _, rule := range route.Spec.Rules {
			for _, match := range rule.Matches {
				paths = append(paths, *match.Path.Value)
			}
		}
	}
	var tokens []string
	for _, path := range paths {
		if token, ok := strings.CutPrefix(path, "/.well-known/acme-challenge/"); ok {
			tokens = append(tokens, token)
		}
	}
	return tokens
}
