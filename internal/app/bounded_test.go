package app

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/api"
	"chancery.dev/internal/kube/informers"
	"chancery.dev/internal/kube/secrets"
	"chancery.dev/internal/kube/stub"
	"chancery.dev/internal/limits"
)

// TestEveryKindIsBounded: of an object of any kind, no cache keeps more than the bound, whatever labels it has.
func TestEveryKindIsBounded(t *testing.T) {
	scheme, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	cfg, watches := DefaultConfig(), newWatches(logr.Discard())
	caches := map[string]ctrl.Options{
		"the controller": managerOptions(t.Context(), cfg, scheme, kept{secrets.New(time.Now), informers.NewRequests()}, watches),
		"the injector":   injectorOptions(t.Context(), cfg, scheme, watches),
		"the others":     commonOptions(t.Context(), scheme, watches),
	}
	large := map[string]string{"a": strings.Repeat("x", limits.OrderBytes)} // an Order may be the largest
	for name, options := range caches {
		kinds := 0
		for gvk, of := range scheme.AllKnownTypes() {
			object, ok := reflect.New(of).Interface().(client.Object)
			if !ok {
				continue
			}
			kinds++
			object.SetName("a")
			object.SetLabels(large)
			object.SetAnnotations(map[string]string{"cert-manager.io/issuer": "ca"}) // an Ingress without is reduced anyway
			kept, err := transformOf(options, object)(object)
			if err != nil {
				t.Fatal(err)
			}
			if size := stub.Size(kept.(client.Object)); size > limits.ObjectBytes {
				t.Errorf("%s keeps %d bytes of a %s", name, size, gvk.Kind)
			}
		}
		if kinds < 30 {
			t.Errorf("%s: only %d kinds were tried", name, kinds)
		}
	}
}

// transformOf is the transform that a cache with these options has for a kind.
func transformOf(o ctrl.Options, object client.Object) toolscache.TransformFunc {
	for kind, own := range o.Cache.ByObject {
		if reflect.TypeOf(kind) == reflect.TypeOf(object) && own.Transform != nil {
			return own.Transform
		}
	}
	return o.Cache.DefaultTransform
}
