package stories_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/pebble"
)

// failedAgain waits until the second request of a Certificate has failed for good, and is not the one before.
func (w *watched) failedAgain(t *testing.T, name string, before types.UID) (now types.UID) {
	t.Helper()
	rig.Eventually(t, "another request of "+name+" has failed", func(ctx context.Context) (why string) {
		now, why = w.hasFailedAgain(ctx, name, before)
		return why
	})
	return now
}

// someFailedAgain waits until requests of Certificates have failed again, one at least, and takes these out. The
// requests that have failed before are given by the names of the Certificates.
func (w *watched) someFailedAgain(t *testing.T, before map[string]types.UID) {
	t.Helper()
	rig.Eventually(t, "some request has failed again", func(ctx context.Context) (why string) {
		left := len(before)
		for name, uid := range maps.Clone(before) {
			if _, why = w.hasFailedAgain(ctx, name, uid); why == "" {
				delete(before, name)
			}
		}
		if left == 0 || len(before) < left {
			return ""
		}
		return why
	})
}

// hasFailedAgain reports the second request of a Certificate, and why it is not another one that has failed for good.
func (w *watched) hasFailedAgain(ctx context.Context, name string, before types.UID) (types.UID, string) {
	r, crt := &certmanagerv1.CertificateRequest{}, &certmanagerv1.Certificate{}
	if err := errors.Join(w.Get(ctx, name+"-2", r), w.Get(ctx, name, crt)); err != nil {
		return "", err.Error()
	}
	class := certmanagerv1.FindCertificateRequestCondition(r.Status.Conditions, certmanagerv1.CertificateRequestConditionFailureClass)
	issuing := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionIssuing)
	if r.UID == before || class == nil || class.Reason != string(fault.ClassPermanent) || issuing == nil || issuing.Status != cmmeta.ConditionFalse {
		return "", fmt.Sprintf("request %s: %+v, Issuing %+v", r.UID, r.Status.Conditions, issuing)
	}
	return r.UID, ""
}

func (w *watched) deleteSecret(t *testing.T, name string) {
	t.Helper()
	if err := w.Client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}}); err != nil {
		t.Fatal(err)
	}
}

// TestNothingFailsForGood has a CA refuse the names of two Certificates. Each is tried again at once when its Secret is
// deleted, and when somebody asks for it by hand; a day later without that, by another process. While the CA wants to
// be left alone, no wish of a user reaches the CA.
func TestNothingFailsForGood(t *testing.T) {
	t.Parallel()
	var problem atomic.Value
	var sent atomic.Int32
	problem.Store("")
	w := newWatched(t, func(o *pebble.Options) {
		count := o.Wrap
		o.NonceRejectPercent = 0
		o.Wrap = func(next http.Handler) http.Handler {
			return count(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				kind := problem.Load().(string)
				if kind == "" || !strings.Contains(r.URL.Path, "order-plz") {
					next.ServeHTTP(rw, r)
					return
				}
				sent.Add(1)
				rw.Header().Set("Content-Type", "application/problem+json")
				status := http.StatusForbidden
				if kind == "rateLimited" {
					rw.Header().Set("Retry-After", "3600")
					status = http.StatusTooManyRequests
				}
				rw.WriteHeader(status)
				_, _ = fmt.Fprintf(rw, `{"type":"urn:ietf:params:acme:error:%s","detail":"not now"}`, kind)
			}))
		}
	})
	w.cfg.Now = time.Now
	stop := w.run(t)
	w.withIssuer(t, w.dnsSolver())
	failed := map[string]types.UID{}
	for _, name := range []string{"one", "two"} {
		w.Create(t, certificate(w.World, name, "acme", name+".example.com"))
	}
	for _, name := range []string{"one", "two"} {
		awaitReady(t, w.World, name)
	}
	problem.Store("rejectedIdentifier")
	for _, name := range []string{"one", "two"} {
		crt := &certmanagerv1.Certificate{}
		if err := w.Get(t.Context(), name, crt); err != nil {
			t.Fatal(err)
		}
		amended := crt.DeepCopy()
		amended.Spec.DNSNames = append(amended.Spec.DNSNames, "www."+name+".example.com")
		if err := w.Client.Patch(t.Context(), amended, client.MergeFrom(crt)); err != nil {
			t.Fatal(err)
		}
		failed[name] = w.failedAgain(t, name, "")
	}
	w.deleteSecret(t, "one")
	failed["one"] = w.failedAgain(t, "one", failed["one"])
	w.trigger(t, "two")
	failed["two"] = w.failedAgain(t, "two", failed["two"])
	// A process sends one such order in 19 hours while the CA takes no others of the account, and each is tried again
	// after 19.2 hours at the earliest.
	for _, later := range []time.Duration{30 * time.Hour, 49*time.Hour + 5*time.Minute} {
		if len(failed) == 0 {
			break // both orders were under way at once: a third try would be in the way of what follows
		}
		stop()
		w.cfg.Now = func() time.Time { return time.Now().Add(later) }
		stop = w.run(t)
		w.someFailedAgain(t, failed)
	}
	if len(failed) != 0 {
		t.Errorf("not tried again: %v", failed)
	}
	problem.Store("rateLimited")
	sent.Store(0)
	w.deleteSecret(t, "two")
	w.orderSays(t, "two", "not now; retrying at 20")
	w.trigger(t, "one")
	w.orderSays(t, "one", "not sent, because the ACME server has refused other orders of this account")
	if n := sent.Load(); n != 1 {
		t.Errorf("%d orders were sent to a CA that wants to be left alone, want the one that was told so", n)
	}
}

// trigger asks for a certificate as cmctl renew does.
func (w *watched) trigger(t *testing.T, name string) {
	t.Helper()
	crt := &certmanagerv1.Certificate{}
	if err := w.Get(t.Context(), name, crt); err != nil {
		t.Fatal(err)
	}
	changed := crt.DeepCopy()
	certmanagerv1.SetCertificateCondition(changed, certmanagerv1.CertificateCondition{
		Type: certmanagerv1.CertificateConditionIssuing, Status: cmmeta.ConditionTrue, Reason: certmanagerv1.CertificateReasonManuallyTriggered,
	}, w.cfg.Now())
	if err := w.Client.Status().Patch(t.Context(), changed, client.MergeFrom(crt)); err != nil {
		t.Fatal(err)
	}
}

// orderSays waits until an Order for the names of a Certificate says a text.
func (w *watched) orderSays(t *testing.T, name, what string) {
	t.Helper()
	rig.Eventually(t, "an Order of "+name+" says "+what, func(context.Context) string {
		said := ""
		for _, o := range w.orders(t) {
			if strings.HasPrefix(o.Name, name+"-2-") && strings.Contains(o.Status.Reason, what) {
				return ""
			}
			said += fmt.Sprintf("%s: %s %s\n", o.Name, o.Status.State, o.Status.Reason)
		}
		return said
	})
}
