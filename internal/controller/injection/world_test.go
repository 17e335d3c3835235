package injection_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/app"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
)

// config is that of an injector which cares for the injectables of a world only: their names have the world's.
func config(w *rig.World) app.Config {
	cfg := w.Config()
	cfg.Scope.ClusterObject = func(name string) bool { return strings.Contains(name, w.Namespace) }
	return cfg
}

// inject runs the injector with the rights of its role and no more, until the test ends.
func inject(t *testing.T, w *rig.World, cfg app.Config) {
	t.Helper()
	injectAs(t, w, cfg, injectorOf(t, w))
}

// injectorOf is the connection of a user who has the role of the injector.
func injectorOf(t *testing.T, w *rig.World) *rest.Config {
	t.Helper()
	user := "injector-" + w.Namespace
	w.Create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "chancery-cainjector"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	})
	return rig.As(w.Admin, user)
}

func injectAs(t *testing.T, w *rig.World, cfg app.Config, rc *rest.Config) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	a, err := app.NewInjector(ctx, cfg, rc, logr.Discard())
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the injector ended with: %v", err)
		}
	})
}

// newCA returns a self-signed certificate in PEM, valid until end from now.
func newCA(t *testing.T, name string, end time.Duration) []byte {
	t.Helper()
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(end),
		IsCA: true, BasicConstraintsValid: true,
	}
	raw, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
}

// injectable is a kind of injectable.
type injectable struct {
	kind string
	// manifest is an object of the kind, with the world's name as %[1]s and annotations as %[2]s.
	manifest string
	// path leads to the object that has the bundle.
	path []string
}

func injectables() []injectable {
	const webhooks = `
webhooks:
- name: a.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Ignore
  clientConfig: {url: "https://127.0.0.1:1/a"}
  rules: []
- name: b.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Ignore
  clientConfig: {service: {namespace: default, name: b}}
  rules: []
`
	const metadata = "metadata:\n  name: %[3]s\n  annotations: {%[2]s}"
	return []injectable{
		{"ValidatingWebhookConfiguration", "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\n" + metadata + webhooks, []string{"webhooks"}},
		{"MutatingWebhookConfiguration", "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\n" + metadata + webhooks, []string{"webhooks"}},
		{"APIService", "apiVersion: apiregistration.k8s.io/v1\nkind: APIService\n" + metadata + `
spec: {group: "%[1]s.example.com", version: v1, groupPriorityMinimum: 100, versionPriority: 1, service: {namespace: default, name: a}}
`, []string{"spec"}},
		{"CustomResourceDefinition", "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n" + metadata + `
spec:
  group: crd.%[1]s.example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
  conversion:
    strategy: Webhook
    webhook: {conversionReviewVersions: [v1], clientConfig: {url: "https://127.0.0.1:1/convert"}}
`, []string{"spec", "conversion", "webhook", "clientConfig"}},
	}
}

// new returns an injectable of a world with annotations, "key: value" each.
func (i injectable) new(t *testing.T, w *rig.World, annotations ...string) *unstructured.Unstructured {
	t.Helper()
	name := map[string]string{
		"APIService": "v1." + w.Namespace + ".example.com", "CustomResourceDefinition": "widgets.crd." + w.Namespace + ".example.com",
	}[i.kind]
	if name == "" {
		name = w.ClusterName("hooks")
	}
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(fmt.Appendf(nil, i.manifest, w.Namespace, strings.Join(annotations, ", "), name), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// create creates an injectable, and deletes it when the test ends: the API server asks an APIService again and again.
func create(t *testing.T, w *rig.World, u *unstructured.Unstructured) {
	t.Helper()
	w.Create(t, u)
	t.Cleanup(func() { _ = w.Client.Delete(context.Background(), u) })
}

// bundles returns the bundles of an injectable as it is now.
func (i injectable) bundles(ctx context.Context, w *rig.World, u *unstructured.Unstructured) ([][]byte, error) {
	if err := w.Client.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
		return nil, err
	}
	var configs []any
	if i.path[0] == "webhooks" {
		for _, one := range u.Object["webhooks"].([]any) {
			configs = append(configs, one.(map[string]any)["clientConfig"])
		}
	} else {
		config, _, err := unstructured.NestedMap(u.Object, i.path...)
		if err != nil {
			return nil, err
		}
		configs = append(configs, config)
	}
	var out [][]byte
	for _, config := range configs {
		text, _ := config.(map[string]any)["caBundle"].(string)
		bundle, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, err
		}
		out = append(out, bundle)
	}
	return out, nil
}

// await waits until every bundle of an injectable is what is wanted.
func (i injectable) await(t *testing.T, w *rig.World, u *unstructured.Unstructured, want []byte) {
	t.Helper()
	rig.Eventually(t, "the bundles of "+i.kind+" "+u.GetName(), func(ctx context.Context) string {
		got, err := i.bundles(ctx, w, u)
		if err != nil {
			return err.Error()
		}
		for _, one := range got {
			if !bytes.Equal(one, want) {
				return fmt.Sprintf("%q, want %q", one, want)
			}
		}
		return ""
	})
}

// awaitEvent waits for an event about an injectable that has all the words, and returns how often it was emitted.
func awaitEvent(t *testing.T, w *rig.World, u *unstructured.Unstructured, kind string, words ...string) int32 {
	t.Helper()
	var found *corev1.Event
	rig.Eventually(t, fmt.Sprintf("an event about %s says %q", u.GetName(), words), func(ctx context.Context) string {
		list := &corev1.EventList{}
		if err := w.Client.List(ctx, list, client.InNamespace("default"), client.MatchingFields{"involvedObject.uid": string(u.GetUID())}); err != nil {
			return err.Error()
		}
		var all []string
		for _, e := range list.Items {
			line := e.Reason + ": " + e.Message
			all = append(all, e.Type+" "+line)
			missing := false
			for _, word := range words {
				missing = missing || !strings.Contains(line, word)
			}
			if !missing && e.Type == kind {
				found = &e
				return ""
			}
		}
		return fmt.Sprintf("%q", all)
	})
	return found.Count
}

// secretWith is a Secret of a world that may be injected directly, and belongs to the Certificate of its name.
func secretWith(name string, ca []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
			certmanagerv1.AllowDirectInjectionAnnotation: "true", certmanagerv1.CertificateNameAnnotation: name,
		}},
		Data: map[string][]byte{"ca.crt": ca},
	}
}
