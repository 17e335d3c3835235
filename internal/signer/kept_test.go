package signer

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestKept(t *testing.T) {
	var k Kept[string, int]
	made := 0
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
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
		got, err := k.For(types.UID(step.issuer), step.of, now.Add(step.after), made3)
		if got != step.want || (err != nil) != step.fails || len(k.byIssuer) != step.kept {
			t.Errorf("%+v: %d, %v, %d are kept", step, got, err, len(k.byIssuer))
		}
	}
}

func TestKeptIsBounded(t *testing.T) {
	k := Kept[string, int]{Limit: 3}
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for i := range 10 {
		issuer := types.UID(fmt.Sprint(i))
		for range 2 {
			if got, err := k.For(issuer, "spec", now, func() (int, error) { return i, nil }); got != i || err != nil {
				t.Errorf("%d, %v", got, err)
			}
			if len(k.byIssuer) > 3 {
				t.Errorf("%d are kept, the limit is 3", len(k.byIssuer))
			}
		}
		if _, err := k.For(issuer, "spec", now, func() (int, error) { return 0, errors.New("made again") }); err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// What is slow to make for one issuer delays no other issuer, and one of two that are made at once is kept.
func TestKeptWaitsForNobody(t *testing.T) {
	var k Kept[string, string]
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	got, err := k.For("a", "spec", now, func() (string, error) {
		for _, issuer := range []types.UID{"b", "a"} {
			if got, err := k.For(issuer, "spec", now, func() (string, error) { return "fast", nil }); got != "fast" || err != nil {
				t.Errorf("%s: %s, %v", issuer, got, err)
			}
		}
		return "slow", nil
	})
	if got != "fast" || err != nil {
		t.Errorf("%s, %v", got, err)
	}
}
