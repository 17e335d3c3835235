package signer

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// keptFor is how long a thing is kept that nobody uses: its issuer may be gone.
const keptFor = 24 * time.Hour

// Kept keeps one thing for each issuer between calls, such as the session that a login has opened. Nothing is lost with
// it. The zero value is ready.
type Kept[Inputs comparable, T any] struct {
	// Limit bounds the things, if it is not 0. Beyond it, any other thing is dropped, and made again when it is needed.
	Limit int

	mu       sync.Mutex
	byIssuer map[types.UID]kept[Inputs, T]
}

// kept is a thing, with what it was made of.
type kept[Inputs comparable, T any] struct {
	thing T
	of    Inputs
	used  time.Time
}

// For returns what is kept for an issuer, if it was made of the same inputs. Otherwise it keeps what fresh makes.
func (k *Kept[Inputs, T]) For(issuer types.UID, of Inputs, now time.Time, fresh func() (T, error)) (T, error) {
	k.mu.Lock()
	known, ok := k.byIssuer[issuer]
	k.mu.Unlock()
	changed := !ok || known.of != of
	if changed {
		thing, err := fresh() // may take a while, which other issuers do not wait for
		if err != nil {
			return thing, err
		}
		known = kept[Inputs, T]{thing: thing, of: of}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if other, ok := k.byIssuer[issuer]; ok && other.of == of {
		known = other // another call was faster
	}
	if changed {
		delete(k.byIssuer, issuer)
		for old, unused := range k.byIssuer {
			if now.Sub(unused.used) > keptFor || k.Limit > 0 && len(k.byIssuer) >= k.Limit {
				delete(k.byIssuer, old)
			}
		}
	}
	if k.byIssuer == nil {
		k.byIssuer = map[types.UID]kept[Inputs, T]{}
	}
	known.used = now
	k.byIssuer[issuer] = known
	return known.thing, nil
}
