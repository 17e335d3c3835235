package signer

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestKept(t *testing.T) {
	var k Kept[int]
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
