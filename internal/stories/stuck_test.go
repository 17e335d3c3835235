package stories_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig"
)

// eventFor waits for an event about an object of that name which says all the words.
func eventFor(t *testing.T, w *rig.World, namespace, name string, words ...string) {
	t.Helper()
	rig.Eventually(t, "an event about "+name, func(ctx context.Context) string {
		events := &corev1.EventList{}
		if err := w.Client.List(ctx, events, client.InNamespace(namespace)); err != nil {
			return err.Error()
		}
		for _, e := range events.Items {
			said := e.InvolvedObject.Name == name
			for _, word := range words {
				said = said && strings.Contains(e.Reason+" "+e.Message, word)
			}
			if said {
				return ""
			}
		}
		return fmt.Sprintf("none of %d events says %q", len(events.Items), words)
	})
}

// TestNothingWaitsInSilence: requests that cannot go on say why where the user looks.
func TestNothingWaitsInSilence(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	w.Run(t, w.Config())
	t.Run("a signer name without a namespace", func(t *testing.T) {
		csr := w.SigningRequest(t, "nodots", "issuers.cert-manager.io/"+w.ClusterName("nodots"))
		w.Create(t, csr)
		csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test",
		}}
		if err := w.Client.SubResource("approval").Update(t.Context(), csr); err != nil {
			t.Fatal(err)
		}
		eventFor(t, w, "default", csr.Name, "IssuerNotFound")
	})
	t.Run("an external issuer that we may not approve", func(t *testing.T) {
		crt := certificate(w, "external", "x", "external.example.com")
		crt.Spec.IssuerRef = cmmeta.IssuerReference{Name: "nope", Kind: "Foo", Group: "foo.example.com"}
		w.Create(t, crt)
		eventFor(t, w, w.Namespace, "external-1", "ApprovalForbidden", `Foo "nope"`)
	})
	t.Run("a Secret in the way of the next key", func(t *testing.T) {
		withCA(t, w)
		crt := certificate(w, "blocked", "ca", "blocked.example.com")
		crt.Annotations = map[string]string{certmanagerv1.IssueTemporaryAnnotation: "true"} // the short way needs no such Secret
		w.Create(t, crt)
		crt = awaitReady(t, w, "blocked")
		w.Create(t, &corev1.Secret{ObjectMeta: named("in-the-way")})
		changed, name := crt.DeepCopy(), "in-the-way"
		changed.Status.NextPrivateKeySecretName = &name
		changed.Status.Conditions = append(changed.Status.Conditions, certmanagerv1.CertificateCondition{
			Type: certmanagerv1.CertificateConditionIssuing, Status: cmmeta.ConditionTrue, Reason: "ManuallyTriggered",
		})
		if err := w.Client.Status().Patch(t.Context(), changed, client.MergeFrom(crt)); err != nil {
			t.Fatal(err)
		}
		rig.Eventually(t, "the condition says so", func(ctx context.Context) string {
			c := condition(w, "blocked", certmanagerv1.CertificateConditionIssuing)(ctx)
			if c == nil || !strings.Contains(c.Message, "in-the-way") {
				return fmt.Sprintf("%+v", c)
			}
			return ""
		})
	})
}
