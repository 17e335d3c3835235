package demo

import (
	"context"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
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
	if s := explain.Describe(object); explain.KindOf(object) != "" && b.said[object.GetUID()] != s.Words() {
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
	if pod, is := object.(*corev1.Pod); is {
		for _, v := range b.volumes(pod) {
			if v.Request != nil && explain.Describe(v.Request).Outcome == explain.Failed {
				s = explain.Describe(v.Request)
			}
		}
	}
	return standing{outcome: s.Outcome, words: s.Words()}
}

// volumes are those of a Pod that get certificates, with what is known of each. The caller holds mu.
func (b *board) volumes(pod *corev1.Pod) []explain.PodVolume {
	var requests []*certificatesv1.PodCertificateRequest
	var events []*corev1.Event
	for _, o := range b.objects {
		switch o := o.(type) {
		case *certificatesv1.PodCertificateRequest:
			requests = append(requests, o)
		case *corev1.Event:
			events = append(events, o)
		}
	}
	return explain.PodVolumes(pod, requests, events)
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

// cluster is all that is known, to explain targets by.
func (b *board) cluster() *explain.Cluster {
	b.mu.Lock()
	defer b.mu.Unlock()
	objects := make([]metav1.Object, 0, len(b.objects))
	for _, o := range b.objects {
		objects = append(objects, o)
	}
	return explain.NewCluster(objects, nil, b.now())
}

// report explains a target; false if it does not exist.
func (b *board) report(cluster *explain.Cluster, t target) (explain.Report, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch o := b.find(t.kind, t.NamespacedName).(type) {
	case *certmanagerv1.Certificate:
		return cluster.Certificate(o), true
	case *certificatesv1.CertificateSigningRequest:
		return cluster.SigningRequest(o), true
	case *corev1.Pod:
		var r explain.Report
		for _, v := range b.volumes(o) { // the last one in trouble
			if of := cluster.Pod(v); r.Cause == "" || of.Cause != "" {
				r = of
			}
		}
		return r, true
	default:
		return explain.Report{}, false
	}
}

// below are objects and what was made for them, a line for each: its name and its words.
func below(nodes []explain.Node, indent string) (lines [][2]string) {
	for _, n := range nodes {
		words := n.State
		if reason := n.OwnReason(); reason != "" {
			words += ": " + reason
		}
		lines = append(lines, [2]string{indent + n.Title(), words})
		lines = append(lines, below(n.Children, indent+"  ")...)
	}
	return lines
}

// reasons is why a target is not issued: the cause, what helps, and each object from the issuer down to the Challenge.
func (b *board) reasons(t target) []string {
	r, there := b.report(b.cluster(), t)
	if !there {
		return []string{t.String() + " does not exist"}
	}
	lines := []string{r.StateAndCause(b.now())}
	for _, advice := range r.Advice(b.now()) {
		lines = append(lines, advice.Label+": "+advice.Text)
	}
	for _, object := range below(r.Chain(), "  ") {
		lines = append(lines, object[0]+": "+object[1])
	}
	return lines
}
