package ordering

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acmeflow"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/flight"
)

// TestNothingIsKeptOfWhatIsDone: a Challenge from which a person takes the finalizer while
// a call is under way is done at once, and nobody asks for the outcome of that call.
func TestNothingIsKeptOfWhatIsDone(t *testing.T) {
	r := &challenges{Deps: &controller.Deps{}, crew: newCrew(t.Context())} // its source has not started
	c := &acmev1.Challenge{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "1"}}
	m, _ := r.memories.Of(client.ObjectKeyFromObject(c), c.UID)
	landed := make(chan struct{})
	t.Cleanup(func() { close(landed) })
	r.solve.Ask(flight.Call{
		Key: flight.Key{Object: c.UID, Call: acmeflow.ChallengePresent.String()},
		Run: func(context.Context) (any, error) { <-landed; return nil, nil },
	})
	if r.solve.InAir() != 1 {
		t.Fatal("there is no call")
	}
	if err := r.do(t.Context(), c, acmeIssuer{}, m, acmeflow.ChallengeDone); err != nil {
		t.Fatal(err)
	}
	if n := r.solve.InAir(); n != 0 {
		t.Errorf("%d calls are kept", n)
	}
	if uid := r.memories.Drop(client.ObjectKeyFromObject(c)); uid != "" {
		t.Errorf("what was known of %s is kept", uid)
	}
}
