package metrics

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/machine/podrequest"
)

// PodRequests counts the PodCertificateRequests that this process has finished, and knows those that wait. Whoever runs
// Pods chooses the names of signers: so an issuer is named only while it exists, and has counts only while it signs for
// Pods. Use
// NewPodRequests.
type PodRequests struct {
	mu       sync.Mutex
	waiting  map[types.UID]PodWait
	finished map[types.NamespacedName]map[string]int // by the issuer, and the reason of a denial; "" is issued
}

// PodWait says what a PodCertificateRequest waits for.
type PodWait struct {
	// Issuer is empty if there is none. A ClusterIssuer has no namespace.
	Issuer types.NamespacedName
	// Reason is one of podrequest.Waits; empty if there is nothing that somebody can correct.
	Reason string
	// Since is when the request was created.
	Since time.Time
}

// podSeries is what a sample is about.
type podSeries struct {
	issuer types.NamespacedName
	reason string
}

// NewPodRequests returns metrics that say nothing before they are told of an issuer or a request.
func NewPodRequests() *PodRequests {
	return &PodRequests{waiting: map[types.UID]PodWait{}, finished: map[types.NamespacedName]map[string]int{}}
}

// AddIssuer begins the counts of an issuer with 0, so that an alert sees the first denial, too. The empty name is for
// requests whose issuer does not exist.
func (m *PodRequests) AddIssuer(issuer types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.finished[issuer] != nil {
		return
	}
	m.finished[issuer] = map[string]int{"": 0}
	for _, reason := range podrequest.Denials() {
		m.finished[issuer][reason] = 0
	}
}

// RemoveIssuer drops the counts of an issuer.
func (m *PodRequests) RemoveIssuer(issuer types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.finished, issuer)
}

// Finished counts a request whose verdict this process has written. denied is the reason of a denial, and empty if a
// certificate was issued. An issuer that was not added, or was removed, counts as the one with the empty name.
func (m *PodRequests) Finished(issuer types.NamespacedName, denied string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.finished[issuer] == nil {
		issuer = types.NamespacedName{}
	}
	if results := m.finished[issuer]; results != nil {
		results[denied]++
	}
}

// Waits notes what a request waits for, until Gone.
func (m *PodRequests) Waits(request types.UID, wait PodWait) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting[request] = wait
}

// Gone forgets a request that does not wait any more.
func (m *PodRequests) Gone(request types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.waiting, request)
}

// known returns what there is to tell. A client may read slowly: so nothing is written while the lock is held.
func (m *PodRequests) known(now time.Time) (finished, waiting, oldest map[podSeries]float64) {
	finished, waiting, oldest = map[podSeries]float64{}, map[podSeries]float64{}, map[podSeries]float64{}
	m.mu.Lock()
	defer m.mu.Unlock()
	for issuer, results := range m.finished {
		for reason, count := range results {
			finished[podSeries{issuer, reason}] = float64(count)
		}
	}
	for _, wait := range m.waiting {
		series := podSeries{wait.Issuer, wait.Reason}
		waiting[series]++
		oldest[series] = max(oldest[series], now.Sub(wait.Since).Seconds())
	}
	return finished, waiting, oldest
}

// write writes the counts of this process, and, if it leads, what waits.
func (m *PodRequests) write(t *text, leads bool, now time.Time) {
	finished, waiting, oldest := m.known(now)
	if len(finished) == 0 {
		return // nobody signs for Pods
	}
	t.pods("chancery_pod_certificate_requests_total", counter, "PodCertificateRequests that this replica has finished, by the issuer, if it exists, the result, and the reason of a denial.", finished)
	if leads {
		t.pods("chancery_pod_certificate_requests_waiting", gauge, "How many PodCertificateRequests wait, by the issuer, if it exists, and the reason.", waiting)
		t.pods("chancery_pod_certificate_requests_oldest_seconds", gauge, "How long ago the oldest of the PodCertificateRequests was created that wait, in seconds.", oldest)
	}
}

// pods writes a family about issuers for Pods. Only that which counts has results.
func (t *text) pods(name, kind, help string, samples map[podSeries]float64) {
	t.family(name, kind, help)
	for _, series := range slices.SortedFunc(maps.Keys(samples), podSeries.compare) {
		of := ""
		switch {
		case series.issuer.Namespace != "":
			of = cmmeta.DefaultIssuerKind
		case series.issuer.Name != "":
			of = cmmeta.ClusterIssuerKind
		}
		t.begin()
		t.label("kind", of)
		t.label("namespace", series.issuer.Namespace)
		t.label("name", series.issuer.Name)
		switch {
		case kind == counter && series.reason == "":
			t.label("result", "issued")
		case kind == counter:
			t.label("result", "denied")
		}
		t.label("reason", series.reason)
		t.end(samples[series])
	}
}

func (s podSeries) compare(other podSeries) int {
	return cmp.Or(cmp.Compare(s.issuer.Namespace, other.issuer.Namespace), cmp.Compare(s.issuer.Name, other.issuer.Name), cmp.Compare(s.reason, other.reason))
}
