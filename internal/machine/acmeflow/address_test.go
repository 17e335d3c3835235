package acmeflow_test

import (
	"fmt"
	"testing"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/machine/order"
)

// TestTheAddressIsWritten: the first write has the address of the order. Of one authorization it has what the
// Challenge is made of, too; of several it comes before they are read.
func TestTheAddressIsWritten(t *testing.T) {
	for names, want := range map[int]order.Step{1: order.CreateChallenges, 2: order.FetchAuthorizations} {
		w := newWalk(t, 1, []string{"a.example.com", "b.example.com"}[:names]...)
		w.refuses = func(s acmev1.OrderStatus) bool {
			read := len(s.Authorizations) > 0 && s.Authorizations[0].Identifier != ""
			if s.URL == "" || len(s.Authorizations) != names || read != (names == 1) {
				t.Errorf("%d names: the first write is %+v", names, s)
			}
			return false
		}
		for w.order.Status.URL == "" {
			w.stepOrder()
		}
		w.refuses = nil
		equal(t, w.history[len(w.history)-1], fmt.Sprintf("%s order: %s; write state=\"pending\" reason=\"\"", w.now.Format(time.TimeOnly), want))
	}
}

// TestTheAddressAlone: where the API server refuses something in the status, the address is stored all the same, and
// nothing is done that the rest of the status was for. Then no restart costs an order.
func TestTheAddressAlone(t *testing.T) {
	for names := 1; names <= 2; names++ {
		w := newWalk(t, 1, []string{"a.example.com", "b.example.com"}[:names]...)
		w.calm = start.Add(5 * time.Minute)
		w.refuses = func(s acmev1.OrderStatus) bool { return w.now.Before(w.calm) && len(s.Authorizations) > 0 }
		w.death = 0.2
		w.run()
		equal(t, w.order.Status.State, acmev1.Valid)
		if w.orders > 2 || w.orders != 1+w.lost {
			t.Errorf("%d names: %d orders at the CA, %d lost\n%s", names, w.orders, w.lost, w.told())
		}
	}
}

// TestRestartsWhileWritesAreRefused: from each of the Order's writes on, the API server takes none for minutes, in
// which the process dies again and again. The first process may have ordered, and so may one of which a write was
// taken; no other does.
func TestRestartsWhileWritesAreRefused(t *testing.T) {
	for names := 1; names <= 2; names++ {
		for from := range names + 1 {
			for seed := range int64(10) {
				w := newWalk(t, seed, []string{"a.example.com", "b.example.com"}[:names]...)
				w.death, w.calm = 0.2, start.Add(2*time.Minute)
				written, refused, deaths := 0, 0, 0
				w.refuses = func(acmev1.OrderStatus) bool {
					if written < from || !w.now.Before(w.calm) {
						written++
						return false
					}
					refused++
					return true
				}
				w.run()
				for _, said := range w.history {
					if said == "the process dies" {
						deaths++
					}
				}
				equal(t, w.order.Status.State, acmev1.Valid)
				if w.lost > 1+min(from, 1) || w.orders != 1+w.lost || deaths < 5 || refused < 5 {
					t.Errorf("%d names, refused from write %d on: %d orders at the CA, %d deaths, %d writes refused\n%s",
						names, from+1, w.orders, deaths, refused, w.told())
				}
			}
		}
	}
}
