package orders

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/kube/ownwrites"
	"chancery.dev/internal/kube/stub"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/challenge"
	"chancery.dev/internal/machine/order"
	"chancery.dev/internal/solver"
)

// TestUrgency: orders that were begun, renewals, and new orders, in this sequence.
func TestUrgency(t *testing.T) {
	t.Parallel()
	renewal := order.Action{Step: order.Create, NewOrder: order.NewOrder{Renewal: true}}
	fresh := order.Action{Step: order.Create}
	for _, begun := range []order.Step{
		order.Fetch, order.FetchAuthorizations, order.Finalize, order.Download, order.Deactivate,
	} {
		if a := (order.Action{Step: begun}); urgency(a) <= urgency(renewal) || urgency(renewal) <= urgency(fresh) {
			t.Errorf("%s has %d, a renewal %d, a new order %d", begun, urgency(a), urgency(renewal), urgency(fresh))
		}
	}
}

// TestLanesHaveShortNames: the engine keeps the name of a lane, whatever the size of a solver's configuration is. Each
// configuration has a lane of its own.
func TestLanesHaveShortNames(t *testing.T) {
	r := &challenges{Deps: &controller.Deps{}}
	lane := func(config string) string {
		c := &acmev1.Challenge{}
		c.Spec.Solver.DNS01 = &acmev1.DNS01Solver{Webhook: &acmev1.WebhookProvider{Config: &apiextensionsv1.JSON{Raw: []byte(`"` + config + `"`)}}}
		return r.laneOfSolver(c, challenge.Present).Name
	}
	large := strings.Repeat("a", 1<<20)
	if len(lane(large)) > 1000 {
		t.Errorf("the name has %d bytes", len(lane(large)))
	}
	if lane(large) == lane(large+"b") {
		t.Error("a lane is not told from another by the whole configuration")
	}
}

// failing is a solver that writes nothing, and names a zone or none.
type failing struct{ zone string }

func (f failing) Present(_ context.Context, t solver.Task) error {
	if f.zone != "" {
		t.InZone(f.zone)
	}
	return errors.New("no answer")
}

func (f failing) Check(ctx context.Context, t solver.Task) error { return f.Present(ctx, t) }

func (f failing) CleanUp(ctx context.Context, t solver.Task) error { return f.Present(ctx, t) }

// TestUntouched: a Present of a TXT record that ends before it has a zone has changed nothing, whatever type of
// challenge the record is for. Any other call may have changed something.
func TestUntouched(t *testing.T) {
	t.Parallel()
	for _, kind := range []acmev1.ACMEChallengeType{acmev1.ChallengeTypeHTTP01, acmev1.ChallengeTypeTLSALPN01, acmev1.ChallengeTypeDNS01, acmev1.ChallengeTypeDNSAccount01} {
		for _, zone := range []string{"", "example.com"} {
			for _, step := range []challenge.Step{challenge.Present, challenge.CleanUp} {
				r := &challenges{Deps: &controller.Deps{Solvers: map[acmev1.ACMEChallengeType]solver.Solver{kind: failing{zone}}}}
				c := &acmev1.Challenge{Spec: acmev1.ChallengeSpec{Type: kind}}
				record := kind == acmev1.ChallengeTypeDNS01 || kind == acmev1.ChallengeTypeDNSAccount01
				want := record && zone == "" && step == challenge.Present
				if o, err := r.callSolver(t.Context(), c, step, false); err == nil || o.Untouched != want {
					t.Errorf("%s of %s in zone %q: untouched %t, error %v", step, kind, zone, o.Untouched, err)
				}
			}
		}
	}
}

// careless is a solver that writes to what it is given.
type careless struct{ failing }

func (careless) Present(_ context.Context, t solver.Task) error {
	t.Challenge.Spec.Solver.HTTP01.GatewayHTTPRoute.ParentRefs[0].Name = "changed"
	return nil
}

// TestSolversGetACopy: the cache keeps equal solvers once, so that what a solver writes would be read for others.
func TestSolversGetACopy(t *testing.T) {
	t.Parallel()
	r := &challenges{Deps: &controller.Deps{Solvers: map[acmev1.ACMEChallengeType]solver.Solver{acmev1.ChallengeTypeHTTP01: careless{}}}}
	c := &acmev1.Challenge{Spec: acmev1.ChallengeSpec{Type: acmev1.ChallengeTypeHTTP01}}
	c.Spec.Solver.HTTP01 = &acmev1.HTTP01Solver{GatewayHTTPRoute: &acmev1.HTTP01GatewaySolver{ParentRefs: []gwapiv1.ParentReference{{Name: "edge"}}}}
	if _, err := r.callSolver(t.Context(), c, challenge.Present, false); err != nil {
		t.Fatal(err)
	}
	if name := c.Spec.Solver.HTTP01.GatewayHTTPRoute.ParentRefs[0].Name; name != "edge" {
		t.Errorf("the cache has %q", name)
	}
}

// TestNothingStartsWithoutItsIssuer: while there is no ClusterIssuer, a copy of a Challenge with a solver of its own
// must not be started either. Its clean-up would call that solver with the credentials of the ClusterIssuer.
func TestNothingStartsWithoutItsIssuer(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := errors.Join(acmev1.AddToScheme(scheme), certmanagerv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	order := &acmev1.Order{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "1"}}
	order.Spec.IssuerRef = cmmeta.IssuerReference{Kind: cmmeta.ClusterIssuerKind, Name: "acme"}
	order.Status.Authorizations = []acmev1.ACMEAuthorization{{URL: "https://ca/a", Identifier: "web.example.com", Challenges: []acmev1.ACMEChallenge{{URL: "https://ca/c", Token: "t", Type: "dns-01"}}}}
	c := &acmev1.Challenge{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-1"}, Spec: acmev1.ChallengeSpec{
		URL: "https://ca/c", AuthorizationURL: "https://ca/a", DNSName: "web.example.com", Type: acmev1.ChallengeTypeDNS01, Token: "t", IssuerRef: order.Spec.IssuerRef,
	}}
	c.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(order, acmev1.SchemeGroupVersion().WithKind(acmev1.OrderKind))}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(order).Build()
	r := &challenges{Deps: &controller.Deps{Now: time.Now, Client: ownwrites.New(api, time.Now), Manager: readsLive{api: api}}}
	if why := acmeflow.Untrusted(order, acmeflow.Issuer{Readiness: acmeflow.IssuerMissing}, c); why != "" {
		t.Fatalf("the test shows nothing: %s", why)
	}
	if why, err := r.mayNotStart(t.Context(), c); err != nil || why == "" {
		t.Errorf("it is started: %q, error %v", why, err)
	}
}

// readsLive is a Manager that has only the API server to read from.
type readsLive struct {
	ctrl.Manager

	api client.Reader
}

func (m readsLive) GetAPIReader() client.Reader { return m.api }

// TestFinalizersOfStubs: of a Challenge that is too large our finalizers are removed, and those of others stay. All
// stay of one that has its name since.
func TestFinalizersOfStubs(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := acmev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for live, want := range map[types.UID][]string{"1": {"example.com/other"}, "2": {"example.com/other", acmev1.ChallengeFinalizer}} {
		large := &acmev1.Challenge{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "1", Finalizers: []string{acmev1.ChallengeFinalizer}}}
		large.Spec.Key = strings.Repeat("a", limits.ObjectBytes)
		kept, err := stub.Bound(func(obj any) (any, error) { return obj, nil })(large)
		c, is := kept.(*acmev1.Challenge)
		if err != nil || !is || !stub.Is(c) {
			t.Fatalf("%T, error %v: the test shows nothing", kept, err)
		}
		api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&acmev1.Challenge{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "web", UID: live, Finalizers: []string{"example.com/other", acmev1.ChallengeFinalizer},
		}}).Build()
		r := &challenges{Deps: &controller.Deps{Now: time.Now, Client: ownwrites.New(api, time.Now), Manager: readsLive{api: api}}}
		if err := r.setFinalizers(t.Context(), c, false); err != nil {
			t.Error(err)
		}
		now := &acmev1.Challenge{}
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(c), now); err != nil || !slices.Equal(now.Finalizers, want) {
			t.Errorf("of the stub 1, the live Challenge %s has %q, error %v", live, now.Finalizers, err)
		}
	}
}
