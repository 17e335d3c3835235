package injection_test

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/machine/injection"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/fakeclock"
)

// TestSources: each source gets into each injectable, is merged with what is there when it changes, and is written once
// for each change.
func TestSources(t *testing.T) {
	t.Parallel()
	for _, i := range injectables() {
		for source, annotation := range map[string]string{
			"Secret": certmanagerv1.InjectCAFromSecretAnnotation, "Certificate": certmanagerv1.InjectCAFromAnnotation,
		} {
			t.Run(i.kind+" from "+source, func(t *testing.T) {
				t.Parallel()
				w := rig.NewWorld(t)
				inject(t, w, config(w))
				u := i.new(t, w, annotation+": "+w.Namespace+"/ca")
				create(t, w, u)
				first, second := newCA(t, "first", time.Hour), newCA(t, "second", time.Hour)
				secret := secretWith("ca", first)
				if source == "Certificate" { // which comes later than what names it
					w.Create(t, &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: "ca"}, Spec: certmanagerv1.CertificateSpec{
						SecretName: "ca", CommonName: "ca", IssuerRef: cmmeta.IssuerReference{Name: "none"},
					}})
					delete(secret.Annotations, certmanagerv1.AllowDirectInjectionAnnotation)
				} else {
					delete(secret.Annotations, certmanagerv1.CertificateNameAnnotation)
				}
				w.Create(t, secret)
				i.await(t, w, u, first)
				secret.Data["ca.crt"] = second
				if err := w.Client.Update(t.Context(), secret); err != nil {
					t.Fatal(err)
				}
				i.await(t, w, u, slices.Concat(first, second))
				managers := u.GetManagedFields()
				own := slices.IndexFunc(managers, func(m metav1.ManagedFieldsEntry) bool { return m.Manager == injection.FieldManager })
				if own < 0 {
					t.Errorf("somebody else has written the bundle: %v", managers)
				}
				if g := u.GetGeneration(); g > 0 && g != 3 {
					t.Errorf("generation %d: it was made and changed twice", g)
				}
			})
		}
		t.Run(i.kind+" from the API server", func(t *testing.T) {
			t.Parallel()
			w := rig.NewWorld(t)
			inject(t, w, config(w))
			u := i.new(t, w, certmanagerv1.InjectAPIServerCAAnnotation+`: "true"`)
			create(t, w, u)
			i.await(t, w, u, w.Admin.CAData)
		})
	}
}

// TestOwnersStayFree: who applies an injectable server-side may take a webhook out of it, or the conversion, also where
// cert-manager's injector has applied a bundle before. That injector's ownership would have the API server refuse both.
func TestOwnersStayFree(t *testing.T) {
	t.Parallel()
	for _, i := range injectables() {
		if i.kind == "APIService" {
			continue // it has no bundle that could go alone
		}
		t.Run(i.kind, func(t *testing.T) {
			t.Parallel()
			w := rig.NewWorld(t)
			apply := func(u *unstructured.Unstructured, manager string) {
				t.Helper()
				if err := w.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u.DeepCopy()), client.FieldOwner(manager), client.ForceOwnership); err != nil {
					t.Fatal(err)
				}
			}
			u, ca := i.new(t, w, certmanagerv1.InjectCAFromSecretAnnotation+": "+w.Namespace+"/ca"), newCA(t, "ca", time.Hour)
			apply(u, "flux")
			live := u.DeepCopy()
			t.Cleanup(func() { _ = w.Client.Delete(context.Background(), live) })
			before := i.new(t, w)
			if i.path[0] == "webhooks" {
				before.Object["webhooks"] = []any{}
				for _, name := range []string{"a.example.com", "b.example.com"} {
					before.Object["webhooks"] = append(before.Object["webhooks"].([]any), map[string]any{
						"name": name, "clientConfig": map[string]any{"caBundle": base64.StdEncoding.EncodeToString(ca)},
					})
				}
			} else {
				before.Object["spec"] = map[string]any{}
				if err := unstructured.SetNestedField(before.Object, base64.StdEncoding.EncodeToString(ca), append(i.path, "caBundle")...); err != nil {
					t.Fatal(err)
				}
			}
			apply(before, injection.FieldManager)
			w.Create(t, secretWith("ca", ca))
			inject(t, w, config(w))
			rig.Eventually(t, "the injector has taken over", func(ctx context.Context) string {
				if err := w.Client.Get(ctx, client.ObjectKeyFromObject(u), live); err != nil {
					return err.Error()
				}
				if slices.ContainsFunc(live.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool {
					return m.Manager == injection.FieldManager && m.Operation == metav1.ManagedFieldsOperationApply
				}) {
					return "the managed fields have the bundle as applied"
				}
				return ""
			})
			i.await(t, w, live, ca)
			if i.path[0] == "webhooks" {
				u.Object["webhooks"] = u.Object["webhooks"].([]any)[:1]
			} else if err := unstructured.SetNestedMap(u.Object, map[string]any{"strategy": "None"}, "spec", "conversion"); err != nil {
				t.Fatal(err)
			}
			apply(u, "flux")
		})
	}
}

// TestBadInput: what is wrong with an annotation, a source or an injectable is said once in an event, and no bundle is
// touched.
func TestBadInput(t *testing.T) {
	t.Parallel()
	const ns = "NAMESPACE"
	fromSecret, from := certmanagerv1.InjectCAFromSecretAnnotation+": ", certmanagerv1.InjectCAFromAnnotation+": "
	kinds := injectables()
	for name, c := range map[string]struct {
		in         injectable
		annotation string
		change     func(*corev1.Secret)
		bad        func(*unstructured.Unstructured) error
		kind       string
		words      []string
	}{
		"malformed":              {in: kinds[0], annotation: fromSecret + "ca", words: []string{"InvalidCASource", "<namespace>/<name>", `"ca"`}},
		"neither true nor false": {in: kinds[1], annotation: certmanagerv1.InjectAPIServerCAAnnotation + `: "yes"`, words: []string{"InvalidCASource", `"yes"`}},
		"not allowed": {in: kinds[2], annotation: fromSecret + ns + "/ca", change: func(s *corev1.Secret) { s.Annotations = nil },
			words: []string{"CAInjectionNotAllowed", "allow-direct-injection", "secretTemplate"}},
		"of another Certificate": {in: kinds[3], annotation: from + ns + "/ca", change: func(s *corev1.Secret) { s.Annotations[certmanagerv1.CertificateNameAnnotation] = "other" },
			words: []string{"CANotAvailable", "does not belong to Certificate", `"other"`}},
		"without CA": {in: kinds[0], annotation: fromSecret + ns + "/ca", change: func(s *corev1.Secret) { s.Data = nil }, words: []string{"CANotAvailable", "has no ca.crt"}},
		"a key": {in: kinds[1], annotation: fromSecret + ns + "/ca", change: func(s *corev1.Secret) {
			s.Data["ca.crt"] = []byte("-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n")
		},
			words: []string{"CANotAvailable", "no PEM of CERTIFICATE blocks"}},
		"missing":              {in: kinds[2], annotation: fromSecret + ns + "/nothing", words: []string{"CANotAvailable", "/nothing does not exist: create it"}},
		"no such Certificate":  {in: kinds[3], annotation: from + ns + "/nothing", words: []string{"CANotAvailable", "Certificate", "/nothing does not exist"}},
		"an ignored namespace": {in: kinds[0], annotation: fromSecret + "ignored/ca", kind: "Normal", words: []string{"CASourceIgnored", "flags of the CA injector"}},
		"local": {in: kinds[2], annotation: fromSecret + ns + "/ca", words: []string{"CAInjectionImpossible", "insecureSkipTLSVerify"},
			bad: func(u *unstructured.Unstructured) error {
				return unstructured.SetNestedField(u.Object, true, "spec", "insecureSkipTLSVerify")
			}},
		"no conversion": {in: kinds[3], annotation: fromSecret + ns + "/ca", words: []string{"CAInjectionImpossible", "spec.conversion.strategy is not Webhook"},
			bad: func(u *unstructured.Unstructured) error {
				unstructured.RemoveNestedField(u.Object, "spec", "conversion")
				return nil
			}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := rig.NewWorld(t)
			secret := secretWith("ca", newCA(t, "ca", time.Hour))
			if c.change != nil {
				c.change(secret)
			}
			w.Create(t, secret, &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: "ca"}, Spec: certmanagerv1.CertificateSpec{
				SecretName: "ca", CommonName: "ca", IssuerRef: cmmeta.IssuerReference{Name: "none"},
			}})
			u := c.in.new(t, w, strings.ReplaceAll(c.annotation, ns, w.Namespace))
			if c.bad != nil {
				if err := c.bad(u); err != nil {
					t.Fatal(err)
				}
			}
			create(t, w, u)
			before := u.DeepCopy()
			cfg := config(w)
			cfg.Clock, cfg.Injection.IgnoreNamespaces = fakeclock.New(t.Context()), []string{"ignored"}
			inject(t, w, cfg)
			if c.kind == "" {
				c.kind = corev1.EventTypeWarning
			}
			if n := awaitEvent(t, w, u, c.kind, c.words...); n != 1 {
				t.Errorf("it is said %d times", n)
			}
			if err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(u), u); err != nil || u.GetGeneration() != before.GetGeneration() {
				t.Errorf("the injectable was changed: %v, %v", u.Object, err)
			}
		})
	}
}
