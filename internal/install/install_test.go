package install

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		if err := admits(t.Context(), api, "cert-manager", c.fills, func(string) {}); err != nil || asked != len(c.answers) {
			t.Errorf("%v: %v after %d answers, want all %d", c.answers, err, asked, len(c.answers))
		}
	}
}

// An API server can serve the policy and not run it: that must not fail an installation.
func TestAdmitsWithoutTheAdmissionPlugin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := interceptor.NewClient(nil, interceptor.Funcs{
			Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return nil },
		})
		said := ""
		if err := admits(t.Context(), api, "cert-manager", true, func(what string) { said = what }); err != nil || !strings.Contains(said, "feature gate") {
			t.Errorf("%v; said %q", err, said)
		}
	})
}

// A definition that is being deleted takes what is applied to it along: install must not
// call that a success.
func TestEstablishedRefusesADefinitionThatGoes(t *testing.T) {
	api := interceptor.NewClient(nil, interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
			crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
			if !ok {
				return errors.New("not asked for a definition")
			}
			crd.DeletionTimestamp = &metav1.Time{Time: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}
			crd.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{
				{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue},
			}
			return nil
		},
	})
	err := established(t.Context(), api, "orders.acme.cert-manager.io")
	if err == nil || !strings.Contains(err.Error(), "orders.acme.cert-manager.io: it is being deleted since 2030-01-02T03:04:05Z") {
		t.Error(err)
	}
}
