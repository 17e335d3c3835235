package orders

import (
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

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/kube/ownwrites"
	"chancery.dev/internal/kube/stub"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/machine/acmeflow"
)

// TestUrgency: orders that were begun, renewals, and new orders, in this sequence.
func TestUrgency(t *testing.T) {
	t.Parallel()
	renewal := acmeflow.OrderAction{Step: acmeflow.OrderCreate, NewOrder: acmeflow.NewOrder{Renewal: true}}
	fresh := acmeflow.OrderAction{Step: acmeflow.OrderCreate}
	for _, begun := range []acmeflow.OrderStep{
		acmeflow.OrderFetch, acmeflow.OrderFetchAuthorizations, acmeflow.OrderFinalize, acmeflow.OrderDownload, acmeflow.OrderDeactivate,
	} {
		if a := (acmeflow.OrderAction{Step: begun}); urgency(a) <= urgency(renewal) || urgency(renewal) <= urgency(fresh) {
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
		return r.laneOfSolver(c, acmeflow.ChallengePresent).Name
	}
	large := strings.Repeat("a", 1<<20)
	if len(lane(large)) > 1000 {
		t.Errorf("the name has %d bytes", len(lane(large)))
	}
	if lane(large) == lane(large+"b") {
		t.Error("a lane is not told from another by the whole configuration")
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
