package signer

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/bounds"
)

func issuerOf(namespace, uid string) certmanagerv1.GenericIssuer {
	return &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, UID: types.UID(uid)}}
}

func inputs(text string) (out Inputs) {
	copy(out[:], text)
	return out
}

var start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func TestKept(t *testing.T) {
	var dropped []int
	k := Kept[int]{Drop: func(n int) { dropped = append(dropped, n) }}
	made := 0
	made3 := func() (int, error) {
		if made == 3 {
			return 0, errors.New("no")
		}
		made++
		return made, nil
	}
	for _, step := range []struct {
		issuer, of string
		after      time.Duration
		want       int
		fails      bool
		kept       int
	}{
		{"a", "spec 1", 0, 1, false, 1},
		{"a", "spec 1", time.Hour, 1, false, 1},
		{"b", "spec 1", time.Hour, 2, false, 2},
		{"a", "spec 1", 25 * time.Hour, 1, false, 2}, // used, so it stays
		{"a", "spec 2", 26 * time.Hour, 3, false, 1}, // b has not been used for a day
		{"b", "spec 1", 26 * time.Hour, 0, true, 1},  // what cannot be made is not kept
		{"a", "spec 2", 26 * time.Hour, 3, false, 1},
	} {
		got, err := k.For(issuerOf("ns", step.issuer), inputs(step.of), start.Add(step.after), made3)
		if got != step.want || (err != nil) != step.fails || len(k.byIssuer) != step.kept {
			t.Errorf("%+v: %d, %v, %d are kept", step, got, err, len(k.byIssuer))
		}
	}
	if !slices.Equal(dropped, []int{1, 2}) {
		t.Errorf("%v were dropped", dropped)
	}
}

// TestKeptIsBounded: whoever makes Issuers chooses how many there are and how large they are. What is kept has bounds
// in number and bytes, for each namespace and in all; what was used the longest ago goes first, one namespace takes
// nothing from another before the bound of all, and what is kept for an Issuer goes with it.
func TestKeptIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		// sizes of the things of so many Issuers in each namespace, in this order.
		namespaces []string
		issuers    int
		size       int
		// kept is how many are kept of each namespace.
		kept map[string]int
	}{
		"many small ones of one namespace":  {[]string{"a"}, 1000, 0, map[string]int{"a": keptByNamespace.things}},
		"many large ones of one namespace":  {[]string{"a"}, 100, 1 << 20, map[string]int{"a": 4}},
		"one that is larger than all":       {[]string{"a"}, 1, 5 << 20, map[string]int{}},
		"beside those of another namespace": {[]string{"quiet", "a"}, 3, 1 << 20, map[string]int{"quiet": 3, "a": 3}},
		"many namespaces": {
			[]string{"a", "b", "c", "d", "e", "f"}, 4, 1 << 20, map[string]int{"c": 4, "d": 4, "e": 4, "f": 4}},
		"a full namespace beside full ones drops its own": {
			[]string{"a", "b", "c", "d"}, 5, 1 << 20, map[string]int{"a": 4, "b": 4, "c": 4, "d": 4}},
		"ClusterIssuers have the bound of all": {[]string{""}, 2000, 0, map[string]int{"": keptInAll.things}},
	} {
		t.Run(name, func(t *testing.T) {
			dropped := 0
			k, now := Kept[int]{Size: func(int) int { return c.size }, Drop: func(int) { dropped++ }}, start
			for _, namespace := range c.namespaces {
				for i := range c.issuers {
					now = now.Add(time.Second)
					got, err := k.For(issuerOf(namespace, fmt.Sprint(namespace, i)), inputs("spec"), now, func() (int, error) { return i, nil })
					if got != i || err != nil {
						t.Fatalf("%d, %v", got, err)
					}
				}
			}
			kept := map[string]int{}
			for _, one := range k.byIssuer {
				kept[one.namespace]++
				if c.kept[one.namespace] < c.issuers && one.thing < c.issuers-c.kept[one.namespace] {
					t.Errorf("%d of namespace %s is kept, which was used before others", one.thing, one.namespace)
				}
			}
			if !maps.Equal(kept, c.kept) || dropped != len(c.namespaces)*c.issuers-len(k.byIssuer) {
				t.Errorf("%v are kept, %d were dropped", kept, dropped)
			}
			for uid := range maps.Clone(k.byIssuer) {
				k.Forget(uid)
			}
			if len(k.byIssuer) != 0 || dropped != len(c.namespaces)*c.issuers {
				t.Errorf("%d are kept of Issuers that are gone, %d were dropped", len(k.byIssuer), dropped)
			}
		})
	}
}

// TestKeptToTheNumber: as many things and bytes are kept as the bounds say, and the oldest one goes for one more.
func TestKeptToTheNumber(t *testing.T) {
	keeps := func(namespace string, sizes []int) limits.Outcome {
		k, now := Kept[int]{Size: func(size int) int { return size }}, start
		for i, size := range sizes {
			now = now.Add(time.Second)
			if _, err := k.For(issuerOf(namespace, fmt.Sprint(i)), inputs("spec"), now, func() (int, error) { return size, nil }); err != nil {
				t.Fatal(err)
			}
		}
		if _, first := k.byIssuer["0"]; !first && len(k.byIssuer) == len(sizes)-1 {
			return limits.Dropped
		}
		return bounds.Without(len(sizes), len(k.byIssuer))
	}
	bounds.Holds(t, "sessions", func(n int) limits.Outcome { return keeps("", make([]int, n)) })
	bounds.Holds(t, "bytes of sessions", func(n int) limits.Outcome { return keeps("", []int{1, 1, n - 2}) })
	bounds.Holds(t, "sessions of a namespace", func(n int) limits.Outcome { return keeps("a", make([]int, n)) })
	bounds.Holds(t, "bytes of a namespace's sessions", func(n int) limits.Outcome { return keeps("a", []int{1, 1, n - 2}) })
}

// TestKeptGrows: what a thing takes that has grown since it was made counts, also if nobody uses it any more.
func TestKeptGrows(t *testing.T) {
	k := Kept[*int]{Size: func(size *int) int { return *size }}
	use := func(namespace, uid string, after time.Duration) *int {
		size, err := k.For(issuerOf(namespace, uid), inputs("spec"), start.Add(after), func() (*int, error) { return new(int), nil })
		if err != nil {
			t.Fatal(err)
		}
		return size
	}
	first, second := use("a", "first", 0), use("a", "second", time.Minute)
	*first, *second = keptByNamespace.bytes/2, keptByNamespace.bytes/2
	use("b", "other", time.Hour)
	if len(k.byIssuer) != 3 {
		t.Errorf("%d are kept, want all", len(k.byIssuer))
	}
	*second++
	use("b", "other", 2*time.Hour)
	if use("a", "second", 3*time.Hour) != second || use("a", "first", 4*time.Hour) == first {
		t.Error("of a namespace beyond its bound, not the one is dropped that was used the longest ago")
	}
	*use("a", "large", 5*time.Hour) = keptByNamespace.bytes + 1
	if use("b", "other", 6*time.Hour); len(k.byIssuer) != 3 {
		t.Errorf("%d are kept: one that has no room took others with it", len(k.byIssuer))
	}
}

// What is slow to make for one issuer delays no other issuer, and one of two that are made at once is kept.
func TestKeptWaitsForNobody(t *testing.T) {
	var k Kept[string]
	got, err := k.For(issuerOf("ns", "a"), inputs("spec"), start, func() (string, error) {
		for _, issuer := range []string{"b", "a"} {
			if got, err := k.For(issuerOf("ns", issuer), inputs("spec"), start, func() (string, error) { return "fast", nil }); got != "fast" || err != nil {
				t.Errorf("%s: %s, %v", issuer, got, err)
			}
		}
		return "slow", nil
	})
	if got != "fast" || err != nil {
		t.Errorf("%s, %v", got, err)
	}
}
