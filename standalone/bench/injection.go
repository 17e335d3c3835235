package bench

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/app"
	"chancery.dev/internal/pki"
)

const (
	// injectionMemory is the budget of what 2,000 definitions add to the injector's memory.
	injectionMemory = 20 << 20
	// definitionSize is what the schema of each definition weighs, in bytes.
	definitionSize = 20_000
)

// Injection is the cost of the CA injector with definitions that are in order.
type Injection struct {
	// Definitions is how many there are, each with a conversion webhook and an annotation.
	Definitions int `json:"definitions"`

	AtRest
}

// injectionScenario runs the CA injector without definitions, and on definitions that are in order.
func injectionScenario(ctx context.Context, r *run, result *Scenario) error {
	out := &Injection{Definitions: r.Definitions, AtRest: AtRest{Budget: injectionMemory, WindowSeconds: r.Window.Seconds()}}
	install := app.DefaultInstallation()
	install.Injecting = app.InjectingOwn
	if err := install.Apply(ctx, r.plane.rc, func(string) {}); err != nil {
		return err
	}
	ca, err := newCA()
	if err != nil {
		return err
	}
	if err := r.plane.client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ca", Annotations: map[string]string{certmanagerv1.AllowDirectInjectionAnnotation: "true"}},
		Data:       map[string][]byte{"ca.crt": ca},
	}); err != nil {
		return err
	}
	injector := process{command: "cainjector", account: "cert-manager-cainjector"}
	r.say("%s: starting the injector without definitions", result.Name)
	if err := r.startAtRest(ctx, injector, func(c *controller) (err error) {
		out.Alone, err = c.memory(ctx)
		return err
	}); err != nil {
		return err
	}
	r.say("%s: creating %d definitions", result.Name, r.Definitions)
	if err := r.seedDefinitions(ctx, ca); err != nil {
		return err
	}
	r.say("%s: starting the injector on them", result.Name)
	before, _, err := r.plane.settled(ctx)
	if err != nil {
		return err
	}
	result.Injection = out
	return r.startAtRest(ctx, injector, func(c *controller) error {
		// Each is read once. An API server with so many definitions may be slow with the answers.
		for read := 0; read < r.Definitions; {
			if err := sleep(ctx, time.Second); err != nil {
				return err
			}
			sent, err := c.requests(ctx)
			if err != nil {
				return err
			}
			read = sent[http.MethodGet]
		}
		return out.measure(ctx, r, c, before)
	})
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
	one.SetResourceVersion("") // it is not stored
	to, err := newSeeder(r.plane)
	if err != nil {
		return err
	}
	for i := range r.Definitions - 1 {
		group := fmt.Sprintf("g%d.bench.example.com", i)
		other := one.DeepCopy()
		other.SetUID(uuid.NewUUID())
		other.SetName("widgets." + group)
		err = errors.Join(err, unstructured.SetNestedField(other.Object, group, "spec", "group"),
			to.put(ctx, "apiextensions.k8s.io/customresourcedefinitions", other))
	}
	return errors.Join(err, to.close(ctx))
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

// newCA returns the certificate of a CA, in PEM.
func newCA() ([]byte, error) {
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(raw)
	if err != nil {
		return nil, err
	}
	return pki.EncodeCertificates(cert), nil
}

func (o *Injection) writeText(t *table) {
	o.AtRest.writeText(t, fmt.Sprintf("%d definitions with a conversion webhook", o.Definitions), "the injector without them", "2,000")
}
