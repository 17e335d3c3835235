package injection_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/rig"
)

// TestOldCAsAreDroppedOnDemand: each injectable keeps a CA that has left its source for the time that its annotation
// says, and drops it then; without the annotation it keeps the CA.
func TestOldCAsAreDroppedOnDemand(t *testing.T) {
	t.Parallel()
	for _, i := range injectables() {
		t.Run(i.kind, func(t *testing.T) {
			t.Parallel()
			w := rig.NewWorld(t)
			inject(t, w, config(w))
			u := i.new(t, w, certmanagerv1.InjectCAFromSecretAnnotation+": "+w.Namespace+"/ca", certmanagerv1.DropOldCAsAfterAnnotation+": 1h")
			create(t, w, u)
			first, second := newCA(t, "first", 3*time.Hour), newCA(t, "second", 3*time.Hour)
			secret := secretWith("ca", first)
			w.Create(t, secret)
			i.await(t, w, u, first)
			secret.Data["ca.crt"] = second
			if err := w.Client.Update(t.Context(), secret); err != nil {
				t.Fatal(err)
			}
			i.await(t, w, u, slices.Concat(first, second))
			rig.Eventually(t, "it is written down what has left", func(ctx context.Context) string {
				if err := w.Client.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
					return err.Error()
				}
				if u.GetAnnotations()[certmanagerv1.OldCAsAnnotation] == "" {
					return "nothing is"
				}
				return ""
			})
			// The time is over as soon as it is shorter: it has begun when the CA left.
			annotate := func(after string) {
				t.Helper()
				patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"`+certmanagerv1.DropOldCAsAfterAnnotation+`":`+after+`}}}`))
				if err := w.Client.Patch(t.Context(), u, patch); err != nil {
					t.Fatal(err)
				}
			}
			annotate(`"1ns"`)
			i.await(t, w, u, second)
			annotate(`null`)
			secret.Data["ca.crt"] = first
			if err := w.Client.Update(t.Context(), secret); err != nil {
				t.Fatal(err)
			}
			i.await(t, w, u, slices.Concat(second, first))
		})
	}
}
