package orders_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/slow"
)

// write is a request that changes something at the API server: what it is, and how many
// of its kind there were up to it.
type write struct {
	kind string
	nth  int
}

// writeOf returns the kind of a request: method, resource and subresource. Events are
// none: they say what happened, and nothing follows from them.
func writeOf(r *http.Request) (kind string, ok bool) {
	if r.Method == http.MethodGet {
		return "", false
	}
	_, path, found := strings.Cut(r.URL.Path, "/namespaces/")
	if found {
		_, path, _ = strings.Cut(path, "/")
	} else {
		path = r.URL.Path
	}
	parts := strings.Split(path, "/")
	if parts[0] == "events" {
		return "", false
	}
	kind = r.Method + " " + parts[0]
	if len(parts) > 2 {
		kind += "/" + parts[2]
	}
	return kind, true
}

// mortal is the connection of a process that dies at one write: right before it is sent,
// or right after it has been carried out. The zero write is never reached.
type mortal struct {
	next   http.RoundTripper
	at     write
	before bool
	die    func()

	mu   sync.Mutex
	seen []write
	// carriedOut are the writes that the API server has answered without an error. A write that was on its way when the
	// process died may be one or not.
	carriedOut []write
	dead       bool
}

var errDied = errors.New("the process has died")

// RoundTrip implements http.RoundTripper.
func (m *mortal) RoundTrip(r *http.Request) (*http.Response, error) {
	m.mu.Lock()
	if m.dead {
		m.mu.Unlock()
		return nil, errDied
	}
	kind, isWrite := writeOf(r)
	last := false
	w := write{kind, 1}
	if isWrite {
		for _, s := range m.seen {
			if s.kind == kind {
				w.nth++
			}
		}
		m.seen = append(m.seen, w)
		last = w == m.at
	}
	m.dead = last && m.before
	m.mu.Unlock()
	if last {
		defer m.die()
	}
	if last && m.before {
		return nil, errDied
	}
	response, err := m.next.RoundTrip(r)
	m.mu.Lock()
	defer m.mu.Unlock()
	if isWrite && err == nil && response.StatusCode < http.StatusBadRequest {
		m.carriedOut = append(m.carriedOut, w)
	}
	if !last {
		return response, err
	}
	m.dead = true
	if err == nil {
		_ = response.Body.Close()
	}
	return nil, errDied
}

// count is how many writes there were.
func (m *mortal) writes() []write {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.seen)
}

// life is what a process did until it died or the issuance had settled.
type life struct {
	writes, carriedOut []write
	died               bool
}

// live runs controllers until they die or the issuance has settled.
func (i *issuance) live(t *testing.T, at write, before bool) life {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	m := &mortal{at: at, before: before, die: cancel}
	rc := i.connection()
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper { m.next = next; return m })
	dead := rig.RunToDeath(ctx, t, cancel, i.cfg, rc)
	within(t, i.name+" is issued, or the controllers die", func(context.Context) string {
		if ctx.Err() != nil {
			return ""
		}
		return i.unsettled(t.Context())
	})
	dead()
	m.mu.Lock()
	defer m.mu.Unlock()
	return life{slices.Clone(m.seen), slices.Clone(m.carriedOut), m.dead}
}

// TestCrashAtEveryACMEWrite kills the controllers right before and right after each write
// of an issuance, the setting up of its issuer included. What starts after them finishes
// it with one request and one Order, and leaves nothing. The rows are the writes of an
// issuance that was recorded.
func TestCrashAtEveryACMEWrite(t *testing.T) {
	t.Parallel()
	for name, issue := range map[string]func(*swift) *issuance{
		"DNS-01":  func(*swift) *issuance { return &issuance{name: "web"} },
		"HTTP-01": func(*swift) *issuance { return &issuance{name: "web", http01: true} },
		// Of an order of several authorizations the address is written before them.
		"two names": func(*swift) *issuance { return &issuance{name: "web", size: 2} },
		// The first order fails, and the one after it does not.
		"failing": func(w *swift) *issuance { return &issuance{name: "web", size: 2, plan: failing(w), orders: 2} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			record := newSwift(t, nil)
			writes := record.start(t, issue(record)).live(t, write{}, false).writes
			if len(writes) < 15 {
				t.Fatalf("an issuance has only %d writes: %v", len(writes), writes)
			}
			t.Logf("%d writes: %v", len(writes), writes)
			began := time.Now()
			t.Cleanup(func() { t.Logf("all rows took %s", time.Since(began).Round(time.Second)) })
			for n, at := range writes {
				if name == "failing" && at.nth > 1 && at.kind != "POST orders" {
					continue // how many there are is a matter of timing, and the other rows have them
				}
				if name == "two names" && at.kind != "PATCH orders/status" {
					continue // as of one name
				}
				for _, before := range []bool{true, false} {
					if !slow.Runs(slow.Crash) && !selected(name, n, at, before) {
						continue
					}
					t.Run(fmt.Sprintf("%s %d, before %v", at.kind, at.nth, before), func(t *testing.T) {
						t.Parallel()
						w := newSwift(t, nil)
						w.start(t, issue(w)).crash(t, at, before, writes)
					})
				}
			}
		})
	}
}

// selected is true for the rows that every run has time for: for DNS-01 the first write of each kind, right before or
// right after it in turn, and around the write of the address both; for the others what DNS-01 has not.
func selected(way string, n int, at write, before bool) bool {
	address := at == write{"PATCH orders/status", 1}
	switch way {
	case "DNS-01":
		return address || at.nth == 1 && before == (n%2 == 0)
	case "failing":
		return at == write{"POST orders", 2} && before
	default:
		return address && !before
	}
}

func (i *issuance) crash(t *testing.T, at write, before bool, record []write) {
	t.Helper()
	first := i.live(t, at, before)
	seen := first.writes
	if !first.died && at.nth > 1 {
		t.Logf("two writes became one this time: there were %v", seen)
	} else if !first.died {
		t.Errorf("the write never came; there were %v", seen)
	}
	for _, s := range seen {
		if !slices.ContainsFunc(record, func(r write) bool { return r.kind == s.kind }) {
			t.Errorf("the write %q is in no record, so that nothing crashes at it", s.kind)
		}
	}
	made := i.objects(t)
	i.RunAs(t, i.cfg, i.connection())
	i.settle(t) // at most one order more at the CA
	written := slices.Contains(first.carriedOut, write{"PATCH orders/status", 1})
	if n := i.proxy.Created(); written && i.orders == 0 && !i.http01 && n != 1 {
		t.Errorf("%d orders at the CA, although the address of the first one was stored", n)
	}
	for kind, uids := range i.objects(t) {
		for _, uid := range made[kind] {
			if !slices.Contains(uids, uid) {
				uids = append(uids, uid)
			}
		}
		// A CA that looks for the answer while the process is dead fails the order: one more.
		if len(uids) > max(i.orders, 1)+1 || !i.http01 && len(uids) > max(i.orders, 1) {
			t.Errorf("%d %s were made for %d orders", len(uids), kind, max(i.orders, 1))
		}
	}
}

// objects are the UIDs of what there is to be only one of.
func (i *issuance) objects(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	orders, requests := &acmev1.OrderList{}, &certmanagerv1.CertificateRequestList{}
	for _, list := range []client.ObjectList{orders, requests} {
		if err := i.Client.List(t.Context(), list, client.InNamespace(i.Namespace)); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range orders.Items {
		out["Orders"] = append(out["Orders"], string(o.UID))
	}
	for _, r := range requests.Items {
		out["CertificateRequests"] = append(out["CertificateRequests"], string(r.UID))
	}
	return out
}
