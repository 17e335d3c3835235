package app

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// A policy that the API server has not seen yet lets everything pass, and then refuses
// everything while it lacks the schema: only a request that was filled in says that it
// works.
func TestAdmitsWaitsForThePolicy(t *testing.T) {
	notYet := errors.New("not found. There can be a delay between when CustomResourceDefinitions are created and when they are available")
	const unfilled, refused, filled = "unfilled", "refused", "filled"
	for _, c := range []struct {
		fills   bool
		answers []string
	}{
		{true, []string{unfilled, unfilled, refused, refused, filled}},
		{true, []string{refused, filled}},
		{false, []string{refused, unfilled}},
	} {
		asked := 0
		api := interceptor.NewClient(nil, interceptor.Funcs{
			Create: func(_ context.Context, _ client.WithWatch, obj client.Object, _ ...client.CreateOption) error {
				answer := c.answers[min(asked, len(c.answers)-1)]
				asked++
				switch answer {
				case refused:
					return notYet
				case filled:
					return unstructured.SetNestedField(obj.(*unstructured.Unstructured).Object, "admin", "spec", "username")
				default:
					return nil
				}
			},
		})
		if err := admits(t.Context(), api, c.fills); err != nil || asked != len(c.answers) {
			t.Errorf("%v: %v after %d answers, want all %d", c.answers, err, asked, len(c.answers))
		}
	}
}
