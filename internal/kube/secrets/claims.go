package secrets

import (
	"container/heap"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
)

// Claims knows, from a watch, which Certificates name each Secret, the oldest first. If ten thousand Certificates name
// the same Secret, a pass over one of them compares it with the oldest only, not with all.
type Claims struct {
	mu sync.Mutex
	// secrets has the queue for each Secret, and known the claim of each Certificate, by their names.
	secrets map[types.NamespacedName]*queue
	known   map[types.NamespacedName]*claim
}

// claim is that of one Certificate, and its place in a queue.
type claim struct {
	crt   *certmanagerv1.Certificate
	place int
}

// NewClaims returns Claims without Certificates.
func NewClaims() *Claims {
	return &Claims{secrets: map[types.NamespacedName]*queue{}, known: map[types.NamespacedName]*claim{}}
}

func secretOf(crt *certmanagerv1.Certificate) types.NamespacedName {
	return types.NamespacedName{Namespace: crt.Namespace, Name: crt.Spec.SecretName}
}

// Note takes in a Certificate that is new or has changed. One that is being deleted claims nothing.
func (c *Claims) Note(crt *certmanagerv1.Certificate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := client.ObjectKeyFromObject(crt)
	c.drop(name)
	if crt.DeletionTimestamp != nil {
		return
	}
	secret, claim := secretOf(crt), &claim{crt: crt}
	if c.secrets[secret] == nil {
		c.secrets[secret] = &queue{}
	}
	heap.Push(c.secrets[secret], claim)
	c.known[name] = claim
}

// Forget drops a Certificate that is gone.
func (c *Claims) Forget(name types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(name)
}

func (c *Claims) drop(name types.NamespacedName) {
	claim, known := c.known[name]
	if !known {
		return
	}
	secret := secretOf(claim.crt)
	heap.Remove(c.secrets[secret], claim.place)
	if c.secrets[secret].Len() == 0 {
		delete(c.secrets, secret)
	}
	delete(c.known, name)
}

// PossibleOwners returns the Certificates that may own the Secret of a Certificate: the Certificate itself, the oldest
// that names the Secret, and the Certificate called named if it names the Secret, too.
func (c *Claims) PossibleOwners(crt *certmanagerv1.Certificate, named string) []*certmanagerv1.Certificate {
	return append([]*certmanagerv1.Certificate{crt}, c.Holders(secretOf(crt), named)...)
}

// Holders returns the Certificates that may own a Secret: the oldest that names the Secret, and the Certificate called
// named if it names the Secret, too.
func (c *Claims) Holders(secret types.NamespacedName, named string) (out []*certmanagerv1.Certificate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q := c.secrets[secret]; q != nil {
		out = append(out, (*q)[0].crt)
	}
	if other := c.known[types.NamespacedName{Namespace: secret.Namespace, Name: named}]; other != nil && secretOf(other.crt) == secret {
		out = append(out, other.crt)
	}
	return out
}

// queue is a heap.Interface: the oldest Certificate first, or of those that are as old, the first by name.
type queue []*claim

// Len implements heap.Interface.
func (q *queue) Len() int { return len(*q) }

// Less implements heap.Interface.
func (q *queue) Less(i, j int) bool {
	a, b := (*q)[i].crt, (*q)[j].crt
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Name < b.Name
}

// Swap implements heap.Interface.
func (q *queue) Swap(i, j int) {
	(*q)[i], (*q)[j] = (*q)[j], (*q)[i]
	(*q)[i].place, (*q)[j].place = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	c := x.(*claim) //nolint:forcetypeassert // Note pushes nothing else
	c.place = len(*q)
	*q = append(*q, c)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(*q) - 1
	c := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return c
}
