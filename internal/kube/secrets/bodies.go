package secrets

import (
	"container/list"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"chancery.dev/internal/limits"
)

const (
	// bodyLife is how long a body is kept at most.
	bodyLife = time.Hour
	// bodyOverhead is how many bytes a Secret takes beside its data.
	bodyOverhead = 2 << 10
)

// bodies keeps Secrets whole: next private keys of issuances under way, and the credentials of issuers. Beyond
// limits.SecretBytes, what was used the longest ago is dropped, and is read again when it is needed. The zero value
// with a clock is ready.
type bodies struct {
	now func() time.Time

	mu     sync.Mutex
	byName map[types.NamespacedName]*list.Element // of kept
	// order is the order of use, the latest first.
	order list.List
	bytes int
}

// kept is a body that is kept.
type kept struct {
	name  types.NamespacedName
	body  *body
	bytes int
	until time.Time
}

// add keeps a body in place of the one before.
func (b *bodies) add(name types.NamespacedName, of *body) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop(name)
	if b.byName == nil {
		b.byName = map[types.NamespacedName]*list.Element{}
	}
	k := kept{name: name, body: of, bytes: bytesOf(of.secret), until: b.now().Add(bodyLife)}
	b.byName[name] = b.order.PushFront(k)
	for b.bytes += k.bytes; b.bytes > limits.SecretBytes; {
		last, _ := b.order.Back().Value.(kept)
		b.drop(last.name)
	}
}

// get returns the body that is kept by a name; nil if there is none.
func (b *bodies) get(name types.NamespacedName) *body {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, ok := b.byName[name]
	if !ok {
		return nil
	}
	k, _ := at.Value.(kept)
	if b.now().After(k.until) {
		b.drop(name)
		return nil
	}
	b.order.MoveToFront(at)
	return k.body
}

// remove drops what is kept by a name.
func (b *bodies) remove(name types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop(name)
}

// drop is called with the lock held.
func (b *bodies) drop(name types.NamespacedName) {
	at, ok := b.byName[name]
	if !ok {
		return
	}
	k, _ := b.order.Remove(at).(kept)
	b.bytes -= k.bytes
	delete(b.byName, name)
}

// bytesOf is how many bytes a Secret takes, about.
func bytesOf(secret *corev1.Secret) int {
	n := bodyOverhead
	for key, value := range secret.Data {
		n += len(key) + len(value)
	}
	for _, texts := range []map[string]string{secret.Annotations, secret.Labels} {
		for key, value := range texts {
			n += len(key) + len(value)
		}
	}
	return n
}
