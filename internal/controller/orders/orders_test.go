package orders

import (
	"testing"

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
