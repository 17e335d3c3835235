package http01

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/pki"
)

// Index has the answers of all HTTP-01 and TLS-ALPN-01 challenges in flight. Watches of Challenges and Orders feed it,
// in any order. It is safe for concurrent use.
//
// The Index trusts no Challenge alone: otherwise a user who may create Challenges in one namespace could answer for any
// host. A Challenge counts only if the scheduler has set it processing, or if it is parked: still presented, but not
// processing. And the status of its Order, which only the controller writes, has to list its URL, token and name.
type Index struct {
	mu         sync.RWMutex
	challenges map[objectKey]entry
	// byAnswer finds the challenges of a host and token: several where namespaces or forgers use the same.
	byAnswer map[answerKey]map[objectKey]struct{}
	orders   map[objectKey]order
	changed  chan struct{}
}

type objectKey struct{ namespace, name string }

// answerKey is what a CA asks for. A TLS handshake has no token (RFC 8737 §3).
type answerKey struct {
	kind        acmev1.ACMEChallengeType
	host, token string
}

// entry is the part of a Challenge that counts.
type entry struct {
	answer     answerKey
	listing    listing // its Order has to have it
	key        string
	owner      metav1.OwnerReference
	processing bool
}

// order is the part of an Order that counts: its identity and the challenges that its status lists.
type order struct {
	uid    string
	listed map[listing]struct{}
}

type listing struct {
	kind                   acmev1.ACMEChallengeType
	identifier, url, token string
}

// NewIndex makes an empty Index.
func NewIndex() *Index {
	return &Index{
		challenges: map[objectKey]entry{},
		byAnswer:   map[answerKey]map[objectKey]struct{}{},
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
		if x.byAnswer[e.answer] == nil {
			x.byAnswer[e.answer] = map[objectKey]struct{}{}
		}
		x.byAnswer[e.answer][key] = struct{}{}
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
			if kind := acmev1.ACMEChallengeType(strings.ToUpper(c.Type)); answerable(kind) {
				in.listed[listing{kind, authz.Identifier, c.URL, c.Token}] = struct{}{}
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

// Lookup returns the key authorization to answer at a host for a token. The host is as Host returns it.
func (x *Index) Lookup(host, token string) (string, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for key := range x.byAnswer[answerKey{acmev1.ChallengeTypeHTTP01, host, token}] {
		if e := x.challenges[key]; x.listed(key, e) {
			return e.key, true
		}
	}
	return "", false
}

// LookupServer returns the identifier and the key authorization of the TLS-ALPN-01 challenge for a handshake with a
// ServerName. If there are several, LookupServer prefers the one that the scheduler has in flight, at most one for each
// name (mission rule 3). The others are parked: among those, every replica chooses the same.
func (x *Index) LookupServer(name string) (identifier, keyAuthorization string, ok bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var best objectKey
	for key := range x.byAnswer[answerKey{kind: acmev1.ChallengeTypeTLSALPN01, host: Host(name)}] {
		if x.listed(key, x.challenges[key]) && (!ok || x.before(key, best)) {
			best, ok = key, true
		}
	}
	e := x.challenges[best]
	return e.listing.identifier, e.key, ok
}

// before reports whether a challenge is to be answered rather than another.
func (x *Index) before(a, b objectKey) bool {
	if inFlight := x.challenges[a].processing; inFlight != x.challenges[b].processing {
		return inFlight
	}
	return cmp.Or(strings.Compare(a.namespace, b.namespace), strings.Compare(a.name, b.name)) < 0
}

// listed reports whether the Order that owns a challenge lists it.
func (x *Index) listed(key objectKey, e entry) bool {
	o, ok := x.orders[objectKey{key.namespace, e.owner.Name}]
	if !ok || o.uid != string(e.owner.UID) {
		return false
	}
	_, ok = o.listed[e.listing]
	return ok
}

// Changed returns a channel that is closed when the answers next change.
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
	delete(x.byAnswer[e.answer], key)
	if len(x.byAnswer[e.answer]) == 0 {
		delete(x.byAnswer, e.answer)
	}
}

func (x *Index) wake() {
	close(x.changed)
	x.changed = make(chan struct{})
}

// entryOf returns the part of a Challenge that counts, and whether the Challenge, but for its Order, may be answered.
func entryOf(c *acmev1.Challenge) (entry, bool) {
	owner := metav1.GetControllerOf(c)
	inFlight := (c.Status.Processing || c.Status.Presented) && !c.Status.State.IsFinal()
	if !answerable(c.Spec.Type) || !inFlight || owner == nil {
		return entry{}, false
	}
	if owner.Kind != "Order" || owner.APIVersion != acmev1.SchemeGroupVersion().String() {
		return entry{}, false
	}
	// Only a token and a thumbprint (RFC 8555 §8.1) are served at the host: somebody may have written another text.
	thumbprint, ok := strings.CutPrefix(c.Spec.Key, c.Spec.Token+".")
	if !ok || !isBase64URL(c.Spec.Token) || !isBase64URL(thumbprint) {
		return entry{}, false
	}
	kept := metav1.OwnerReference{Name: owner.Name, UID: owner.UID}
	answer := answerKey{c.Spec.Type, Host(c.Spec.DNSName), c.Spec.Token}
	if c.Spec.Type == acmev1.ChallengeTypeTLSALPN01 {
		answer.host, answer.token = ServerName(c.Spec.DNSName), ""
	}
	return entry{
		answer: answer, listing: listing{c.Spec.Type, c.Spec.DNSName, c.Spec.URL, c.Spec.Token},
		key: c.Spec.Key, owner: kept, processing: c.Status.Processing,
	}, true
}

// answerable reports whether the Index is for challenges of a type.
func answerable(kind acmev1.ACMEChallengeType) bool {
	return kind == acmev1.ChallengeTypeHTTP01 || kind == acmev1.ChallengeTypeTLSALPN01
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
	return pki.DNSNameKey(s)
}

// ServerName is the server name in a TLS handshake for an identifier (RFC 8737 §3): its Host, or the name of an IP
// address in reverse DNS (RFC 8738 §6).
func ServerName(identifier string) string {
	host := Host(identifier)
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	zone := "in-addr.arpa"
	if ip.Is6() {
		zone = "ip6.arpa"
	}
	var name strings.Builder
	for _, b := range slices.Backward(ip.AsSlice()) {
		if ip.Is6() {
			fmt.Fprintf(&name, "%x.%x.", b&0xf, b>>4)
		} else {
			fmt.Fprintf(&name, "%d.", b)
		}
	}
	return name.String() + zone
}
