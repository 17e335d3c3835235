package stories_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/rig"
)

// TestStepEvents: with the setting, an issuance has the events that cert-manager's has (spec, appendix B), by each way;
// without it, only those about results.
func TestStepEvents(t *testing.T) {
	t.Parallel()
	type reasons = map[string]string // by kind, sorted
	direct := reasons{"Certificate": "Generated Issuing Requested", "CertificateRequest": "CertificateIssued cert-manager.io"}
	acme := reasons{
		"Certificate": direct["Certificate"], "CertificateRequest": "CertificateIssued OrderCreated OrderPending cert-manager.io",
		"Order": "Complete Created", "Challenge": "DomainVerified Presented Started",
	}
	short := reasons{"Certificate": "Issuing"}
	result := reasons{"Certificate": "Issuing", "CertificateRequest": "CertificateIssued", "Order": "Complete", "Challenge": "DomainVerified"}
	for steps, want := range map[bool]map[string]reasons{
		true:  {"self": direct, "signed": direct, "dns": acme, "web": acme},
		false: {"self": short, "signed": short, "dns": result, "web": result},
	} {
		t.Run(fmt.Sprint(steps), func(t *testing.T) {
			t.Parallel()
			w := newACMEWorld(t, nil)
			cfg := w.Config()
			cfg.StepEvents = steps
			withCA(t, w.World)
			w.Create(t, w.issuer())
			w.Run(t, cfg)
			awaitReady(t, w.World, "root")
			awaitIssuer(t, w.World, "ca")
			awaitIssuer(t, w.World, "acme")
			self := certificate(w.World, "self", "selfsigned", "self.example.com")
			self.Spec.CommonName = "self.example.com"
			signed := certificate(w.World, "signed", "ca", "signed.example.com")
			signed.Spec.Duration = &metav1.Duration{Duration: time.Hour} // else the CA ends first, and an event says so
			w.Create(t, self, signed,
				certificate(w.World, "dns", "acme", "dns.example.com"), certificate(w.World, "web", "acme", "web.http.example.com"))
			for name, of := range want {
				awaitReady(t, w.World, name)
				awaitReasons(t, w, name, of)
			}
		})
	}
}

// awaitReasons waits until the events about a Certificate, and about what was made for it, have these reasons by kind.
func awaitReasons(t *testing.T, w *acmeWorld, certificate string, want map[string]string) {
	t.Helper()
	rig.Eventually(t, "events about "+certificate, func(ctx context.Context) string {
		list := &corev1.EventList{}
		if err := w.Client.List(ctx, list, client.InNamespace(w.Namespace)); err != nil {
			return err.Error()
		}
		seen := map[string][]string{}
		for _, e := range list.Items {
			of := e.InvolvedObject
			if e.Reason == "IssuerNotReady" {
				continue // the watch of the issuers may be behind
			}
			if of.Name == certificate || strings.HasPrefix(of.Name, certificate+"-") {
				seen[of.Kind] = append(seen[of.Kind], e.Reason)
			}
		}
		for kind := range seen {
			slices.Sort(seen[kind])
			if got := strings.Join(slices.Compact(seen[kind]), " "); got != want[kind] {
				return fmt.Sprintf("%s has %q, want %q", kind, got, want[kind])
			}
		}
		if len(seen) != len(want) {
			return fmt.Sprintf("there are %v, want %v", seen, want)
		}
		return ""
	})
}
