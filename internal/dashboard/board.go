package dashboard

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/clientside/explain"
	"chancery.dev/internal/clientside/inventory"
	"chancery.dev/internal/machine/podrequest"
)

// stale is after how long words are made anew without a change, since they say how far times are.
const stale = 10 * time.Second

// board holds what was read last. The objects are never changed, only replaced.
type board struct {
	// cluster is the name of the kubeconfig's context; empty if there is none.
	cluster, namespace string

	mu      sync.Mutex
	objects []metav1.Object
	unread  map[string]bool
	problem string
	// seen is when the objects were known to be as they are in the cluster.
	seen time.Time
	// last is what was made of the objects; nil after a change.
	last *picture
}

// put takes what was read.
func (b *board) put(i *inventory.Inventory, changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = time.Now()
	if b.problem != "" || changed {
		b.problem, b.last = "", nil
	}
	if changed {
		b.objects, b.unread = i.Objects(), maps.Clone(i.Unread())
	}
}

// fail makes the page say since when nothing could be read.
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
	world        *explain.Cluster
	certificates map[types.NamespacedName]*certmanagerv1.Certificate
	reports      []explain.Report
	healths      map[explain.Health]int
	issuers      []issuerRow
	queue        []challengeRow
	// requests is how many requests of Pods there are, and pods are those in trouble, by cause and issuer.
	requests int
	pods     []*group
}

// readyState is the state of an issuer that can issue.
const readyState = "ready"

// issuerRow is an issuer with its certificates.
type issuerRow struct {
	explain.IssuerRow

	// Healths count the Certificates that name the issuer, by their health.
	Healths map[explain.Health]int
	// Pods is how many requests of Pods name the issuer, and PodsFailing how many of these are in trouble.
	Pods, PodsFailing int
}

// Title is the issuer's name for people.
func (r issuerRow) Title() string { return explain.Name(r.Kind, r.Namespace, r.Name) }

// Failing is how many of the Certificates are in trouble.
func (r issuerRow) Failing() int {
	n := 0
	for health, count := range r.Healths {
		if health.IsTrouble() {
			n += count
		}
	}
	return n
}

// Mark is the state of the issuer and of its CA in a word or two, and Health the colour for it.
func (r issuerRow) Mark() string {
	switch {
	case r.State == "":
		return "not read"
	case r.State == readyState && r.Cause != "": // the class is that of its CA
		return r.Class
	default:
		return r.State
	}
}

// Health is the best health that a certificate of the issuer can have.
func (r issuerRow) Health() explain.Health {
	switch {
	case r.State == "":
		return explain.Issuing
	case r.State != readyState:
		return explain.Failing
	case r.Class == explain.ClassCAExpired:
		return explain.Expired
	case r.Cause != "":
		return explain.Late
	default:
		return explain.Healthy
	}
}

// Found is the search that finds the issuer's Certificates; empty if no search can.
func (r issuerRow) Found() string {
	return explain.IssuerSearch(explain.Node{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name})
}

// challengeRow is a Challenge under way, and who waits for it.
type challengeRow struct {
	explain.Node

	// Certificate waits for the Challenge; without a name if the Order was not made for one.
	Certificate types.NamespacedName
	Order       string
	Issuer      string
	Since       string
	// Fails says that something is in the way.
	Fails bool
	made  time.Time
	place explain.Place
}

// picture is what is known, in words of now or of a few seconds ago, and when that was known to be so.
func (b *board) picture(now time.Time) (p *picture, seen time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last == nil || now.Sub(b.last.at) > stale {
		b.last = newPicture(b.objects, b.unread, now)
		b.last.problem = b.problem
	}
	return b.last, b.seen
}

func newPicture(objects []metav1.Object, unread map[string]bool, now time.Time) *picture {
	p := &picture{
		at: now, unread: unread, world: explain.NewCluster(objects, unread, now),
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
		}
	}
	for _, row := range explain.IssuerRows(objects, now) {
		issuers[explain.Name(row.Kind, row.Namespace, row.Name)] = &issuerRow{IssuerRow: row, Healths: map[explain.Health]int{}}
	}
	p.healths = explain.Count(p.reports)
	for _, r := range p.reports {
		rowFor(issuers, r).Healths[r.Health]++
	}
	p.addPods(objects, issuers)
	for _, o := range objects {
		if c, is := o.(*acmev1.Challenge); is && !c.Status.State.IsFinal() {
			p.queue = append(p.queue, challengeOf(c, byUID, now))
		}
	}
	for _, row := range issuers {
		row.Certificates = 0
		for _, n := range row.Healths {
			row.Certificates += n
		}
		p.issuers = append(p.issuers, *row)
	}
	slices.SortFunc(p.issuers, func(x, y issuerRow) int {
		return cmp.Or(cmp.Compare(bit(x.Cause == ""), bit(y.Cause == "")), cmp.Compare(y.Failing()+y.PodsFailing, x.Failing()+x.PodsFailing), strings.Compare(x.Title(), y.Title()))
	})
	slices.SortFunc(p.queue, func(x, y challengeRow) int {
		return cmp.Or(cmp.Compare(x.place, y.place), x.made.Compare(y.made), strings.Compare(x.Name, y.Name))
	})
	return p
}

// rowFor is the row of the issuer that a certificate is asked of.
func rowFor(issuers map[string]*issuerRow, r explain.Report) *issuerRow {
	row := issuers[r.Issuer.Title()]
	if row == nil { // it does not exist, may not be read, or is of another controller
		row = &issuerRow{IssuerRow: explain.IssuerRow{Kind: r.Issuer.Kind, Namespace: r.Issuer.Namespace, Name: r.Issuer.Name, State: r.Issuer.State}}
		row.Healths = map[explain.Health]int{}
		issuers[r.Issuer.Title()] = row
	}
	if r.Class == string(cause.IssuerMissing) && r.Issuer.Outcome == explain.Failed.String() { // not by a Pod's event alone
		row.Trouble = r.Trouble
	}
	return row
}

// addPods counts the requests of Pods, and gathers those in trouble by cause and issuer.
func (p *picture) addPods(objects []metav1.Object, issuers map[string]*issuerRow) {
	warnings := map[corev1.ObjectReference]*corev1.Event{}
	for _, o := range objects {
		if e, is := o.(*corev1.Event); is {
			warnings[corev1.ObjectReference{Namespace: e.Namespace, UID: e.InvolvedObject.UID, FieldPath: e.InvolvedObject.FieldPath}] = e
		}
	}
	var failing []explain.Report
	for _, o := range objects {
		pcr, is := o.(*certificatesv1.PodCertificateRequest)
		if !is {
			continue
		}
		about := corev1.ObjectReference{Namespace: pcr.Namespace, UID: pcr.Spec.PodUID, FieldPath: podrequest.FieldPath(pcr.Spec.SignerName)}
		r := p.world.PodRequest(pcr, warnings[about])
		p.requests++
		if r.Cause != "" {
			failing = append(failing, r)
		}
		if r.Issuer.Namespace != "" && r.Issuer.Namespace != pcr.Namespace { // a stranger's, which the issuer refuses
			continue
		}
		row := rowFor(issuers, r)
		row.Pods++
		row.PodsFailing += bit(r.Cause != "")
	}
	for _, g := range explain.Groups(failing, p.at) {
		p.pods = append(p.pods, newGroup(g, p.at))
	}
}

func bit(is bool) int {
	if is {
		return 1
	}
	return 0
}

// challengeOf finds by the owners who waits for a Challenge.
func challengeOf(c *acmev1.Challenge, byUID map[types.UID]metav1.Object, now time.Time) challengeRow {
	ref := c.Spec.IssuerRef
	row := challengeRow{
		Node: explain.NodeOf(c), Issuer: explain.Name(ref.KindOrDefault(), ref.NamespaceFrom(c.Namespace), ref.Name),
		Since: duration.HumanDuration(now.Sub(c.CreationTimestamp.Time)), made: c.CreationTimestamp.Time,
		place: explain.PlaceOf(c), Fails: c.Status.FailureClass != "",
	}
	if row.place == explain.Parked && row.Reason == "" {
		row.Reason = "its proof to be seen"
	}
	if row.place == explain.Queued && row.Reason == "" {
		row.Reason = "a free slot"
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
