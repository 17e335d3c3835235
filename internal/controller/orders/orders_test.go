package orders

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/controller"
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
