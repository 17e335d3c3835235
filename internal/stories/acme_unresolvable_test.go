package stories_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/rig"
)

// TestNameThatDoesNotResolve: the Challenge says which name could not be found, and
// amending the Certificate is enough to go on. The old Challenge goes at once, although its
// clean-up cannot find the zone either: where there is none, nothing is left behind.
func TestNameThatDoesNotResolve(t *testing.T) {
	t.Parallel()
	w := newACMEWorld(t, nil)
	w.Run(t, w.Config())
	w.Create(t, w.issuer(), certificate(w.World, "web", "acme", "a.nowhere.test"))
	rig.Eventually(t, "the Challenge says what is wrong", func(ctx context.Context) string {
		challenges := &acmev1.ChallengeList{}
		if err := w.Client.List(ctx, challenges, client.InNamespace(w.Namespace)); err != nil {
			return err.Error()
		}
		for _, c := range challenges.Items {
			if strings.Contains(c.Status.Reason, "nowhere.test") {
				return ""
			}
		}
		return fmt.Sprintf("%d Challenges, none says it", len(challenges.Items))
	})
	crt := &certmanagerv1.Certificate{}
	if err := w.Get(t.Context(), "web", crt); err != nil {
		t.Fatal(err)
	}
	amended := crt.DeepCopy()
	amended.Spec.DNSNames = []string{"a.example.com"}
	if err := w.Client.Patch(t.Context(), amended, client.MergeFrom(crt)); err != nil {
		t.Fatal(err)
	}
	awaitReady(t, w.World, "web")
	rig.Eventually(t, "no record and no Challenge is left", func(ctx context.Context) string {
		challenges := &acmev1.ChallengeList{}
		if err := w.Client.List(ctx, challenges, client.InNamespace(w.Namespace)); err != nil {
			return err.Error()
		}
		left := strings.Join(w.dns.TXT(), ", ")
		for _, c := range challenges.Items {
			left += fmt.Sprintf(" Challenge %s for %s, deleted at %v, with %v: %s %q", c.Name, c.Spec.DNSName, c.DeletionTimestamp, c.Finalizers, c.Status.State, c.Status.Reason)
		}
		return left
	})
}
