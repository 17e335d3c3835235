package bench

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/install"
	"chancery.dev/internal/pki"
)

const (
	// injectionMemory is the budget of what 2,000 definitions add to the injector's memory.
	injectionMemory = 20 << 20
	// definitionSize is what the schema of each definition weighs, in bytes.
	definitionSize = 20_000
)

// prepareInjection gives the injector its rights.
func prepareInjection(ctx context.Context, r *run) (*workload, error) {
	i := install.DefaultInstallation()
	i.Injecting = install.InjectingOwn
	if err := i.Apply(ctx, r.plane.rc, func(string) {}); err != nil {
		return nil, err
	}
	return &workload{injector: true}, nil
}

// injectionScenario runs the CA injector without definitions, and on definitions that are in order.
func injectionScenario(ctx context.Context, r *run, work *workload) ([]Row, error) {
	ca, _, err := newCA(pki.ECDSA)
	if err != nil {
		return nil, err
	}
	if err := r.plane.client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ca", Annotations: map[string]string{certmanagerv1.AllowDirectInjectionAnnotation: "true"}},
		Data:       map[string][]byte{"ca.crt": ca},
	}); err != nil {
		return nil, err
	}
	r.say("starting the injector without definitions")
	without, err := r.memoryAtRest(ctx, work)
	if err != nil {
		return nil, err
	}
	r.say("creating %d definitions", r.Definitions)
	if err := r.seedDefinitions(ctx, ca); err != nil {
		return nil, err
	}
	r.say("starting the injector on them")
	with, rows, err := r.restOn(ctx, work, r.Definitions) // each is read once
	objects := fmt.Sprintf("%d definitions with a conversion webhook", r.Definitions)
	return append(objectsAtRest(objects, "the injector without them", with, without, injectionMemory, "2,000"), rows...), err
}

// seedDefinitions makes one definition. Once the API server has accepted it, seedDefinitions writes copies into etcd:
// the API server would need minutes for so many definitions at once.
func (r *run) seedDefinitions(ctx context.Context, ca []byte) error {
	one := definition(ca)
	if err := r.plane.client.Create(ctx, one); err != nil {
		return err
	}
	if err := r.plane.server.Until(ctx, startWithin, "the first definition is established", func(ctx context.Context) error {
		if err := r.plane.client.Get(ctx, client.ObjectKeyFromObject(one), one); err != nil {
			return err
		}
		if conditions, _, err := unstructured.NestedSlice(one.Object, "status", "conditions"); err != nil || len(conditions) < 2 {
			return errors.Join(err, fmt.Errorf("its conditions are %v", conditions))
		}
		return nil
	}); err != nil {
		return err
	}
	return r.seedCopies(ctx, "apiextensions.k8s.io/customresourcedefinitions", one, r.Definitions-1, func(i int, other *unstructured.Unstructured) error {
		group := fmt.Sprintf("g%d.bench.example.com", i)
		other.SetName("widgets." + group)
		return unstructured.SetNestedField(other.Object, group, "spec", "group")
	})
}

// definition is a CustomResourceDefinition with a conversion webhook, which has the CA.
func definition(ca []byte) *unstructured.Unstructured {
	const group = "bench.example.com"
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"spec": map[string]any{
			"group": group, "scope": "Namespaced", "names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{
				"type": "object", "description": strings.Repeat("x", definitionSize),
			}}}},
			"conversion": map[string]any{"strategy": "Webhook", "webhook": map[string]any{
				"conversionReviewVersions": []any{"v1"},
				"clientConfig":             map[string]any{"url": "https://127.0.0.1:1/convert", "caBundle": base64.StdEncoding.EncodeToString(ca)},
			}},
		},
	}}
	u.SetName("widgets." + group)
	u.SetAnnotations(map[string]string{certmanagerv1.InjectCAFromSecretAnnotation: namespace + "/ca"})
	return u
}
