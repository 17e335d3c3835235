package signer

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// keptFor is how long something is kept that nobody uses: its issuer may be gone.
const keptFor = 24 * time.Hour

// Kept keeps one thing for each issuer between calls, such as the session that a login has opened. It saves logins, and
// nothing is lost with it. The zero value is ready.
type Kept[T any] struct {
	mu       sync.Mutex
	byIssuer map[types.UID]kept[T]
}

// kept is a thing, with what it was made of.
type kept[T any] struct {
	thing T
	of    string
	used  time.Time
}

// For returns what is kept for an issuer, if it is made of the same as is wanted now. Otherwise it keeps what fresh
// makes.
func (k *Kept[T]) For(issuer types.UID, of string, now time.Time, fresh func() (T, error)) (T, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	known, ok := k.byIssuer[issuer]
	if !ok || known.of != of {
		thing, err := fresh()
		if err != nil {
			return thing, err
		}
		for other, unused := range k.byIssuer {
			if now.Sub(unused.used) > keptFor {
				delete(k.byIssuer, other)
			}
		}
		known = kept[T]{thing: thing, of: of}
	}
	if k.byIssuer == nil {
		k.byIssuer = map[types.UID]kept[T]{}
	}
	known.used = now
	k.byIssuer[issuer] = known
	return known.thing, nil
}
