package demo

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/clientside/explain"
)

// board holds what is known of all objects, as the watches tell it. It is safe for concurrent use.
type board struct {
	targets []target
	now     func() time.Time
	changed chan struct{} // holds one token while there is news

	mu      sync.Mutex
	began   time.Time
	objects map[types.UID]client.Object
	said    map[types.UID]string
	news    []news
	settled map[target]time.Duration
}

// news is a change of what an object says.
type news struct {
	at            time.Duration // since the start
	object, words string
}

// standing is where a target stands, in words too.
type standing struct {
	outcome explain.Outcome
	words   string
	took    time.Duration // until it settled, or until now
}

func newBoard(targets []target, now func() time.Time) *board {
	return &board{
		targets: targets, now: now, changed: make(chan struct{}, 1),
		objects: map[types.UID]client.Object{}, said: map[types.UID]string{}, settled: map[target]time.Duration{},
	}
}

// start begins to count the time, and to collect news: what came before is old.
func (b *board) start() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.began, b.news = b.now(), nil
}

// seen takes an object from a watch.
func (b *board) seen(v any) {
	object, ok := v.(client.Object)
	if !ok {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.objects[object.GetUID()] = object
	if s := explain.Describe(object); b.said[object.GetUID()] != s.Words() {
		b.said[object.GetUID()] = s.Words()
		b.news = append(b.news, news{at: b.elapsed(), object: s.Name, words: s.Words()})
	}
	for _, t := range b.targets {
		if _, ok := b.settled[t]; !ok && b.look(t).outcome != explain.Waiting {
			b.settled[t] = b.elapsed()
		}
	}
	b.ring()
}

// gone takes the deletion of an object from a watch.
func (b *board) gone(v any) {
	if last, ok := v.(toolscache.DeletedFinalStateUnknown); ok {
		v = last.Obj
	}
	object, ok := v.(client.Object)
	if !ok {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.objects, object.GetUID())
	b.ring()
}

func (b *board) ring() {
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// elapsed is the time since start. The caller holds mu.
func (b *board) elapsed() time.Duration {
	if b.began.IsZero() {
		return 0
	}
	return b.now().Sub(b.began)
}

// takeNews returns the news since it was last called.
func (b *board) takeNews() []news {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.news
	b.news = nil
	return n
}

// standing tells where a target stands.
func (b *board) standing(t target) standing {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.look(t)
	s.took = b.elapsed()
	if took, ok := b.settled[t]; ok {
		s.took = took
	}
	return s
}

// lastSettled is when the last target settled, since the start.
func (b *board) lastSettled() (last time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, took := range b.settled {
		last = max(last, took)
	}
	return last
}

// look is standing without the time. The caller holds mu.
func (b *board) look(t target) standing {
	object := b.find(t.kind, t.NamespacedName)
	if object == nil {
		return standing{words: "not there yet"}
	}
	s := explain.Describe(object)
	return standing{outcome: s.Outcome, words: s.Words()}
}

// find returns the object of a kind and name, or nil. The caller holds mu.
func (b *board) find(kind string, name types.NamespacedName) client.Object {
	for _, o := range b.objects {
		if explain.KindOf(o) == kind && client.ObjectKeyFromObject(o) == name {
			return o
		}
	}
	return nil
}

// ownedBy returns what an object owns, the latest first. The caller holds mu.
func (b *board) ownedBy(uid types.UID) []client.Object {
	var owned []client.Object
	for _, o := range b.objects {
		if slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == uid }) {
			owned = append(owned, o)
		}
	}
	slices.SortFunc(owned, func(x, y client.Object) int {
		if c := y.GetCreationTimestamp().Compare(x.GetCreationTimestamp().Time); c != 0 {
			return c
		}
		return strings.Compare(explain.Describe(x).Name, explain.Describe(y).Name)
	})
	return owned
}

// awaitIssuer waits until the issuer that a signer name names is ready, or patience or ctx ends.
func (b *board) awaitIssuer(ctx context.Context, signerName string, patience time.Duration) {
	kind, namespace, name := explain.SignerOf(signerName)
	ready := func(context.Context) (bool, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		issuer := b.find(kind, types.NamespacedName{Namespace: namespace, Name: name})
		return issuer != nil && explain.Describe(issuer).Outcome == explain.Issued, nil
	}
	// Whether it became ready shows in what happens to the request.
	_ = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, patience, true, ready)
}

// branch is one object below a target: its Order, or a Challenge of that.
type branch struct {
	depth int
	explain.Description
}

// branches are the request of a target, its Order and its Challenges, as far as they exist.
func (b *board) branches(t target) []branch {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lockedBranches(t)
}

// lockedBranches is branches for a caller that holds mu.
func (b *board) lockedBranches(t target) []branch {
	object := b.find(t.kind, t.NamespacedName)
	if object == nil {
		return nil
	}
	var out []branch
	var walk func(client.Object, int)
	walk = func(o client.Object, depth int) {
		for _, child := range b.ownedBy(o.GetUID()) {
			out = append(out, branch{depth: depth, Description: explain.Describe(child)})
			walk(child, depth+1)
		}
	}
	walk(object, 1)
	return out
}

// reasons is why a target is not issued: each object from the Certificate down to the Challenge in its own words, and
// the issuer.
func (b *board) reasons(t target) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	object := b.find(t.kind, t.NamespacedName)
	if object == nil {
		return []string{t.String() + " does not exist"}
	}
	lines := []string{explain.Describe(object).String()}
	for _, below := range b.lockedBranches(t) {
		lines = append(lines, strings.Repeat("  ", below.depth)+below.String())
	}
	return append(lines, b.issuerLine(object))
}

// issuerLine says how the issuer stands that signs for an object. The caller holds mu.
func (b *board) issuerLine(object client.Object) string {
	kind, name := issuerOf(object)
	issuer := b.find(kind, name)
	if issuer == nil {
		return kind + " " + name.Name + ": does not exist"
	}
	return explain.Describe(issuer).String()
}

// issuerOf returns the issuer that is asked to sign.
func issuerOf(object client.Object) (kind string, name types.NamespacedName) {
	switch o := object.(type) {
	case *certmanagerv1.Certificate:
		name = types.NamespacedName{Namespace: o.Namespace, Name: o.Spec.IssuerRef.Name}
		kind = o.Spec.IssuerRef.KindOrDefault()
		if kind == cmmeta.ClusterIssuerKind {
			name.Namespace = ""
		}
		return kind, name
	case *certificatesv1.CertificateSigningRequest:
		kind, name.Namespace, name.Name = explain.SignerOf(o.Spec.SignerName)
		return kind, name
	default:
		return "", name
	}
}
