package orders_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig/dnsserver"
)

// TestTheCauseTravelsUp: what a self check asked and got is said by the Order, the request and the Certificate, not
// only by the Challenge. To go on waiting for the same costs no write, and once the certificate is there nobody says
// it any more.
func TestTheCauseTravelsUp(t *testing.T) {
	t.Parallel()
	w := newSwift(t, nil)
	w.dns.SetMode(0, dnsserver.NXDomain)
	i := w.start(t, &issuance{name: "web", change: withoutARI})
	count := &mortal{}
	rc := w.connection()
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper { count.next = next; return count })
	w.RunAs(t, w.cfg, rc)
	var chain []string
	within(t, "Order, request and Certificate say what the self check misses", func(ctx context.Context) string {
		chain = i.said(ctx)
		for _, said := range chain {
			if !strings.Contains(said, "NXDOMAIN") || !strings.Contains(said, i.names[0]) {
				return strings.Join(chain, "\n")
			}
		}
		return ""
	})
	if !strings.Contains(chain[0], "SelfCheck") {
		t.Errorf("the class is missing: %s", chain[0])
	}
	before, ahead := len(count.writes()), w.clock.Ahead()
	within(t, "time passes", func(context.Context) string {
		if w.clock.Ahead() < ahead+25*time.Minute {
			return w.clock.String()
		}
		return ""
	})
	// The solver presents the record again every five minutes, which writes nothing.
	if n := len(count.writes()) - before; n > 0 {
		count.mu.Lock()
		defer count.mu.Unlock()
		t.Errorf("waiting for the same cost %d writes: %v", n, count.seen[before:])
	}
	w.dns.SetMode(0, dnsserver.Normal)
	i.settle(t)
	for _, said := range i.said(t.Context()) {
		if strings.Contains(said, "NXDOMAIN") {
			t.Errorf("it is still said that %s", said)
		}
	}
}

// said is what the Order, the request and the Certificate of an issuance say.
func (i *issuance) said(ctx context.Context) []string {
	order, request, certificate := "no Order", "no request", "no Certificate"
	orders, requests, crt := &acmev1.OrderList{}, &certmanagerv1.CertificateRequestList{}, &certmanagerv1.Certificate{}
	for _, list := range []client.ObjectList{orders, requests} {
		if err := i.Client.List(ctx, list, client.InNamespace(i.Namespace)); err != nil {
			return []string{err.Error()}
		}
	}
	if err := i.Get(ctx, i.name, crt); err != nil {
		return []string{err.Error()}
	}
	for _, o := range orders.Items {
		order = fmt.Sprintf("Order: %s, class %q, %s", o.Status.State, o.Status.FailureClass, o.Status.Reason)
	}
	for _, r := range requests.Items {
		if c := certmanagerv1.FindCertificateRequestCondition(r.Status.Conditions, certmanagerv1.CertificateRequestConditionReady); c != nil {
			request = "CertificateRequest: " + c.Message
		}
	}
	if c := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionIssuing); c != nil && c.Status == cmmeta.ConditionTrue {
		certificate = "Certificate: " + c.Message
	}
	return []string{order, request, certificate}
}
