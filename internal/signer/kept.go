package signer

import (
	"crypto/sha256"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/limits"
)

// keptFor is how long a thing is kept that nobody uses.
const keptFor = 24 * time.Hour

// amount is how many things are kept, and how many bytes of them.
type amount struct{ things, bytes int }

// and is as many things and one more, which takes so many bytes.
func (b amount) and(bytes int) amount { return amount{b.things + 1, b.bytes + bytes} }

// above reports whether there is more of either than most.
func (b amount) above(most amount) bool { return b.things > most.things || b.bytes > most.bytes }

var (
	// keptInAll bounds what is kept by one Kept, keptByNamespace what of it is kept for the Issuers of one namespace.
	keptInAll       = amount{limits.Sessions, limits.SessionBytes}
	keptByNamespace = amount{limits.NamespaceSessions, limits.NamespaceSessionBytes}
)

// Inputs is a digest of all that a thing is made of.
type Inputs [sha256.Size]byte

// Kept keeps one thing for each issuer between calls, such as the session of a login. Nothing is lost if a thing is
// dropped: Kept drops, above a bound, the thing that was used the longest ago. The zero value is ready.
type Kept[T any] struct {
	// Size returns how many bytes a thing takes beyond the bytes of every thing; nil means none. A thing may grow, so
	// Kept asks Size at each call, while calls with the thing may be under way. Size MUST be quick.
	Size func(T) int
	// Drop is called with a thing that is kept no longer, while calls with the thing may be under way; may be nil. It
	// MUST be quick.
	Drop func(T)

	mu       sync.Mutex
	byIssuer map[types.UID]kept[T]
}

// kept is a thing, with what it was made of.
type kept[T any] struct {
	thing     T
	of        Inputs
	namespace string
	used      time.Time
}

// For returns what is kept for an issuer, if it was made of the same inputs. Otherwise it keeps what fresh makes.
func (k *Kept[T]) For(issuer certmanagerv1.GenericIssuer, of Inputs, now time.Time, fresh func() (T, error)) (T, error) {
	uid := issuer.GetUID()
	k.mu.Lock()
	known, ok := k.byIssuer[uid]
	k.mu.Unlock()
	if !ok || known.of != of {
		thing, err := fresh() // may take a while, which other issuers do not wait for
		if err != nil {
			return thing, err
		}
		known = kept[T]{thing: thing, of: of, namespace: issuer.GetNamespace()}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	other, ok := k.byIssuer[uid]
	same := ok && other.of == of
	if same {
		known = other // another call was faster
	}
	known.used = now
	if !same {
		k.drop(uid)
	}
	if k.byIssuer == nil {
		k.byIssuer = map[types.UID]kept[T]{}
	}
	k.byIssuer[uid] = known
	k.trim(now)
	return known.thing, nil
}

// Forget drops what is kept for an issuer that is gone.
func (k *Kept[T]) Forget(issuer types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.drop(issuer)
}

// trim drops what nobody has used for long, and what is beyond the bounds: those of each namespace first, so that a
// namespace that is full takes nothing from another. It is called with the lock held.
func (k *Kept[T]) trim(now time.Time) {
	namespaces, all := map[string]amount{}, amount{}
	for uid, known := range k.byIssuer {
		if now.Sub(known.used) > keptFor {
			k.drop(uid)
			continue
		}
		namespaces[known.namespace] = namespaces[known.namespace].and(k.size(known))
		all = all.and(k.size(known))
	}
	for namespace, has := range namespaces {
		if namespace != "" && has.above(keptByNamespace) {
			k.hold(keptByNamespace, func(known kept[T]) bool { return known.namespace == namespace })
		}
	}
	if all.above(keptInAll) {
		k.hold(keptInAll, func(kept[T]) bool { return true })
	}
}

// hold drops the things that were used the longest ago, of those that count, until they are within the bounds.
func (k *Kept[T]) hold(most amount, counts func(kept[T]) bool) {
	var uids []types.UID
	for uid, known := range k.byIssuer {
		if counts(known) {
			uids = append(uids, uid)
		}
	}
	// From the one that was used last: what has no room beside those that stay goes.
	slices.SortFunc(uids, func(a, b types.UID) int { return k.byIssuer[b].used.Compare(k.byIssuer[a].used) })
	has := amount{}
	for _, uid := range uids {
		if with := has.and(k.size(k.byIssuer[uid])); with.above(most) {
			k.drop(uid)
		} else {
			has = with
		}
	}
}

func (k *Kept[T]) size(of kept[T]) int {
	if k.Size == nil {
		return 0
	}
	return k.Size(of.thing)
}

// drop is called with the lock held.
func (k *Kept[T]) drop(uid types.UID) {
	known, ok := k.byIssuer[uid]
	delete(k.byIssuer, uid)
	if ok && k.Drop != nil {
		k.Drop(known.thing)
	}
}
