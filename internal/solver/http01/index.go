package http01

import (
	"net"
	"net/netip"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
)

// Lookup is where the Responder finds its answers.
type Lookup interface {
	// Lookup returns the key authorization to answer at a host for a token. The host
	// is as Host returns it.
	Lookup(host, token string) (keyAuthorization string, ok bool)
	// Changed returns a channel that is closed when the answers next change.
	Changed() <-chan struct{}
}

// Index knows the answers of all HTTP-01 challenges in flight. It is fed by
// watches of Challenges and Orders, in any order, and is safe for concurrent use.
//
// It trusts no Challenge by itself: whoever may create one in some namespace could
// otherwise answer for any host. A Challenge counts only if the scheduler has set
// it processing (or it was, and is presented since: a parked one), and the Order
// that owns it lists its URL, token and name in its status, which only the
// controller writes.
type Index struct {
	mu         sync.RWMutex
	challenges map[objectKey]entry
	// byToken finds the challenges of a host and token: several where namespaces or
	// forgers use the same.
	byToken map[answerKey]map[objectKey]struct{}
	orders  map[objectKey]order
	changed chan struct{}
}

var _ Lookup = (*Index)(nil)

type objectKey struct{ namespace, name string }

type answerKey struct{ host, token string }

// entry is what counts of a Challenge.
type entry struct {
	answer  answerKey
	url     string
	dnsName string
	key     string
	owner   metav1.OwnerReference
}

// order is what counts of an Order: its identity and the challenges that its status
// lists.
type order struct {
	uid    string
	listed map[listing]struct{}
}

type listing struct{ identifier, url, token string }

// NewIndex makes an empty Index.
func NewIndex() *Index {
	return &Index{
		challenges: map[objectKey]entry{},
		byToken:    map[answerKey]map[objectKey]struct{}{},
		orders:     map[objectKey]order{},
		changed:    make(chan struct{}),
	}
}

// UpsertChallenge takes in a Challenge as it is now.
func (x *Index) UpsertChallenge(c *acmev1.Challenge) {
	key := objectKey{c.Namespace, c.Name}
	e, ok := entryOf(c)
	x.mu.Lock()
	defer x.mu.Unlock()
	old, had := x.challenges[key]
	if had == ok && old == e {
		return
	}
	x.forget(key)
	if ok {
		x.challenges[key] = e
		if x.byToken[e.answer] == nil {
			x.byToken[e.answer] = map[objectKey]struct{}{}
		}
		x.byToken[e.answer][key] = struct{}{}
	}
	x.wake()
}

// DeleteChallenge forgets a Challenge.
func (x *Index) DeleteChallenge(namespace, name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.forget(objectKey{namespace, name})
	x.wake()
}

// UpsertOrder takes in an Order as it is now.
func (x *Index) UpsertOrder(o *acmev1.Order) {
	in := order{uid: string(o.UID), listed: map[listing]struct{}{}}
	for _, authz := range o.Status.Authorizations {
		for _, c := range authz.Challenges {
			if strings.EqualFold(c.Type, "http-01") {
				in.listed[listing{authz.Identifier, c.URL, c.Token}] = struct{}{}
			}
		}
	}
	if o.Status.State.IsFinal() {
		clear(in.listed)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.orders[objectKey{o.Namespace, o.Name}] = in
	x.wake()
}

// DeleteOrder forgets an Order; what it listed is answered no more.
func (x *Index) DeleteOrder(namespace, name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.orders, objectKey{namespace, name})
	x.wake()
}

// Lookup implements the interface Lookup.
func (x *Index) Lookup(host, token string) (string, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for key := range x.byToken[answerKey{host, token}] {
		e := x.challenges[key]
		o, ok := x.orders[objectKey{key.namespace, e.owner.Name}]
		if !ok || o.uid != string(e.owner.UID) {
			continue
		}
		if _, ok := o.listed[listing{e.dnsName, e.url, token}]; ok {
			return e.key, true
		}
	}
	return "", false
}

// Changed implements the interface Lookup.
func (x *Index) Changed() <-chan struct{} {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.changed
}

func (x *Index) forget(key objectKey) {
	e, ok := x.challenges[key]
	if !ok {
		return
	}
	delete(x.challenges, key)
	delete(x.byToken[e.answer], key)
	if len(x.byToken[e.answer]) == 0 {
		delete(x.byToken, e.answer)
	}
}

func (x *Index) wake() {
	close(x.changed)
	x.changed = make(chan struct{})
}

// entryOf returns what counts of a Challenge, and whether it may be answered as far
// as it says itself.
func entryOf(c *acmev1.Challenge) (entry, bool) {
	owner := metav1.GetControllerOf(c)
	inFlight := (c.Status.Processing || c.Status.Presented) && !c.Status.State.IsFinal()
	if c.Spec.Type != acmev1.ChallengeTypeHTTP01 || !inFlight || owner == nil {
		return entry{}, false
	}
	if owner.Kind != "Order" || owner.APIVersion != acmev1.SchemeGroupVersion().String() {
		return entry{}, false
	}
	// A key authorization is the token and a thumbprint (RFC 8555 §8.1), whatever else
	// somebody would like to see served at the host.
	thumbprint, ok := strings.CutPrefix(c.Spec.Key, c.Spec.Token+".")
	if !ok || !isBase64URL(c.Spec.Token) || !isBase64URL(thumbprint) {
		return entry{}, false
	}
	kept := metav1.OwnerReference{Name: owner.Name, UID: owner.UID}
	return entry{
		answer: answerKey{Host(c.Spec.DNSName), c.Spec.Token},
		url:    c.Spec.URL, dnsName: c.Spec.DNSName, key: c.Spec.Key, owner: kept,
	}, true
}

// isBase64URL reports whether s is made of the base64url alphabet (RFC 8555 §8.3).
func isBase64URL(s string) bool {
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' {
			return false
		}
	}
	return s != ""
}

// Host returns the canonical form of a Host header or an identifier: in lower case,
// without port, trailing dot and brackets; IP addresses in their shortest form.
func Host(s string) string {
	if _, err := netip.ParseAddr(s); err != nil {
		if host, _, err := net.SplitHostPort(s); err == nil {
			s = host
		}
	}
	s = strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")
	if ip, err := netip.ParseAddr(s); err == nil {
		return ip.Unmap().String()
	}
	return strings.ToLower(strings.TrimSuffix(s, "."))
}
