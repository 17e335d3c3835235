package dashboard

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/explain"
	"chancery.dev/internal/inventory"
)

// choices is how many values a filter offers; others can be typed.
const choices = 50

// stale is after how long words are made anew without a change, since they say how far times are.
const stale = 10 * time.Second

// board holds what was read last. The objects are never changed, only replaced.
type board struct {
	namespace string

	mu      sync.Mutex
	objects []metav1.Object
	unread  map[string]bool
	problem string
	// last is what was made of the objects; nil after a change.
	last *picture
}

// put takes what was read.
func (b *board) put(i *inventory.Inventory, changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.problem != "" || changed {
		b.problem, b.last = "", nil
	}
	if changed {
		b.objects, b.unread = i.Objects(), maps.Clone(i.Unread())
	}
}

// fail has the page say since when nothing could be read.
func (b *board) fail(err error, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.problem == "" {
		b.problem, b.last = "Since "+now.UTC().Format(time.RFC3339)+" the API server cannot be read: "+err.Error(), nil
	}
}

// picture is all there is to show at a time.
type picture struct {
	at           time.Time
	problem      string
	unread       map[string]bool
	world        *explain.World
	certificates map[types.NamespacedName]*certmanagerv1.Certificate
	reports      []explain.Report
	issuers      []issuerRow
	queue        []challengeRow

	// Namespaces, Owners (issuers) and Causes are what a filter offers.
	Namespaces, Owners, Causes []choice
}

// choice is a value of a filter, and how many certificates have it.
type choice struct {
	Value string
	Count int
}

// issuerRow is an issuer with its certificates.
type issuerRow struct {
	explain.Node

	// Certificates name the issuer, Bad ones have a cause of trouble, and Challenges are under way for it.
	Certificates, Bad, Challenges int
}

// challengeRow is a Challenge under way, and who waits for it.
type challengeRow struct {
	explain.Node

	// Certificate waits for the Challenge; without a name if the Order was not made for one.
	Certificate types.NamespacedName
	Order       string
	Issuer      string
	Since       string
	made        time.Time
	place       explain.Place
}

// picture is what is known, in words of now or of a few seconds ago.
func (b *board) picture(now time.Time) *picture {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last == nil || now.Sub(b.last.at) > stale {
		b.last = newPicture(b.objects, b.unread, now)
		b.last.problem = b.problem
	}
	return b.last
}

func newPicture(objects []metav1.Object, unread map[string]bool, now time.Time) *picture {
	p := &picture{
		at: now, unread: unread, world: explain.NewWorld(objects, unread, now),
		certificates: map[types.NamespacedName]*certmanagerv1.Certificate{},
	}
	byUID := make(map[types.UID]metav1.Object, len(objects))
	issuers := map[string]*issuerRow{}
	for _, o := range objects {
		byUID[o.GetUID()] = o
		switch o := o.(type) {
		case *certmanagerv1.Certificate:
			p.certificates[types.NamespacedName{Namespace: o.Namespace, Name: o.Name}] = o
			p.reports = append(p.reports, p.world.Certificate(o))
		case certmanagerv1.GenericIssuer:
			n := explain.NodeOf(o)
			issuers[n.Title()] = &issuerRow{Node: n}
		}
	}
	p.Namespaces = countBy(p.reports, func(r explain.Report) string { return r.Namespace })
	p.Owners = countBy(p.reports, func(r explain.Report) string { return r.Issuer.Kind + "/" + r.Issuer.Name })
	p.Causes = countBy(p.reports, func(r explain.Report) string { return r.Class })
	for _, r := range p.reports {
		row := issuers[r.Issuer.Title()]
		if row == nil {
			row = &issuerRow{Node: r.Issuer}
			issuers[r.Issuer.Title()] = row
		}
		row.Certificates++
		if r.Cause != "" {
			row.Bad++
		}
	}
	for _, o := range objects {
		if c, is := o.(*acmev1.Challenge); is && !c.Status.State.IsFinal() {
			row := challengeOf(c, byUID, now)
			p.queue = append(p.queue, row)
			if i := issuers[row.Issuer]; i != nil {
				i.Challenges++
			}
		}
	}
	for _, row := range issuers {
		p.issuers = append(p.issuers, *row)
	}
	slices.SortFunc(p.issuers, func(x, y issuerRow) int {
		return cmp.Or(cmp.Compare(y.Bad, x.Bad), strings.Compare(x.Title(), y.Title()))
	})
	slices.SortFunc(p.queue, func(x, y challengeRow) int {
		return cmp.Or(cmp.Compare(x.place, y.place), x.made.Compare(y.made), strings.Compare(x.Name, y.Name))
	})
	return p
}

// challengeOf finds by the owners who waits for a Challenge.
func challengeOf(c *acmev1.Challenge, byUID map[types.UID]metav1.Object, now time.Time) challengeRow {
	ref := c.Spec.IssuerRef
	row := challengeRow{
		Node: explain.NodeOf(c), Issuer: explain.Name(ref.KindOrDefault(), ref.NamespaceFrom(c.Namespace), ref.Name),
		Since: duration.HumanDuration(now.Sub(c.CreationTimestamp.Time)), made: c.CreationTimestamp.Time,
		place: explain.PlaceOf(c),
	}
	if row.place == explain.Queued && row.Reason == "" {
		row.Reason = "a place among the Challenges in flight"
	}
	for o := metav1.Object(c); o != nil; {
		owner := metav1.GetControllerOfNoCopy(o)
		if owner == nil {
			break
		}
		o = byUID[owner.UID]
		switch o := o.(type) {
		case *acmev1.Order:
			row.Order = o.Name
		case *certmanagerv1.Certificate:
			row.Certificate = types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
		}
	}
	return row
}

// countBy counts the values that reports have, the most frequent first; the first of them are enough to choose from.
func countBy(reports []explain.Report, of func(explain.Report) string) (all []choice) {
	counts := map[string]int{}
	for _, r := range reports {
		counts[of(r)]++
	}
	for value, n := range counts {
		if value != "" {
			all = append(all, choice{value, n})
		}
	}
	slices.SortFunc(all, func(x, y choice) int {
		return cmp.Or(cmp.Compare(y.Count, x.Count), strings.Compare(x.Value, y.Value))
	})
	return all[:min(len(all), choices)]
}
