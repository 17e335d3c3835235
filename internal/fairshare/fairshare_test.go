package fairshare

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestStartOrder: who has a place, and when, while others hold theirs.
func TestStartOrder(t *testing.T) {
	// hang is longer than the test, and work is how long the others hold their places.
	const hang, work = time.Hour, time.Second
	for name, c := range map[string]struct {
		total int
		// come are namespaces, in this order, each with the number of its takers; those of "noisy" hang.
		come []string
		// want are those that have had a place after ten seconds, each with the second.
		want string
	}{
		"one namespace has half": {16, []string{"noisy 1000"}, "noisy@0 noisy@0 noisy@0 noisy@0 noisy@0 noisy@0 noisy@0 noisy@0"},
		"another one has half of the rest at once": {
			8, []string{"noisy 1000", "quiet 3"}, "noisy@0 noisy@0 noisy@0 noisy@0 quiet@0 quiet@0 quiet@1",
		},
		"the last place goes to the next one":       {2, []string{"noisy 1000", "quiet 2"}, "noisy@0 quiet@0 quiet@1"},
		"namespaces take turns":                     {1, []string{"one 3", "two 2", "three 1"}, "one@0 one@1 two@2 three@3 one@4 two@5"},
		"where nobody else comes, all have a place": {2, []string{"one 3"}, "one@0 one@1 one@2"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, began := New(c.total), time.Now()
				var got []string
				ctx, cancel := context.WithCancel(t.Context())
				for _, takers := range c.come {
					var namespace string
					var count int
					if _, err := fmt.Sscan(takers, &namespace, &count); err != nil {
						t.Fatal(err)
					}
					for range count {
						go func() {
							if p.Take(ctx, namespace, nil) != nil {
								return
							}
							p.mu.Lock()
							got = append(got, fmt.Sprintf("%s@%d", namespace, int(time.Since(began).Seconds())))
							p.mu.Unlock()
							held := work
							if namespace == "noisy" {
								held = hang
							}
							time.Sleep(held)
							p.Free(namespace)
						}()
						synctest.Wait()
					}
				}
				time.Sleep(10 * time.Second)
				want := strings.Fields(c.want)
				p.mu.Lock()
				got = slices.Clone(got)
				p.mu.Unlock()
				slices.SortStableFunc(got, func(a, b string) int { return strings.Compare(a[strings.Index(a, "@"):], b[strings.Index(b, "@"):]) })
				if !slices.Equal(got, want) {
					t.Errorf("%q, want %q", got, want)
				}
				cancel()
				time.Sleep(hang)
				if p.Taken() != 0 || p.Waiting() != 0 || len(p.held) != 0 {
					t.Errorf("%d places stay taken, %d wait", p.Taken(), p.Waiting())
				}
			})
		})
	}
}

// TestWaitThatEnds: who gives up leaves nothing behind, and who is told to make room is told before the wait.
func TestWaitThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(1)
		if !p.Try("one") || p.Try("two") {
			t.Fatal("the one place was not given once")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		told := false
		err := p.Take(ctx, "two", func() { told = p.Waits("two") && p.Wanted("one") })
		if err == nil || !told || p.Waits("two") || p.Wanted("one") {
			t.Errorf("%v, told %t, still in line %t", err, told, p.Waits("two"))
		}
		if err := p.Take(t.Context(), "two", func() { p.Free("one") }); err != nil || p.Try("one") {
			t.Errorf("%v: the place that was made was not taken", err)
		}
	})
}
