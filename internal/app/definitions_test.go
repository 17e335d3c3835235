package app_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/app"
	"chancery.dev/internal/install"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/slow"
)

// TestForeignDefinitions: with definitions of somebody else, which lack rules and fields, the controller does not lead
// until they are replaced, or accepted; Orders stay immutable by a policy.
func TestForeignDefinitions(t *testing.T) {
	slow.Test(t, slow.Installs)
	t.Parallel()
	w := rig.NewWorldOn(t, rig.OwnCluster(t))
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	definitions, err := client.New(w.Admin, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	change := func(do func(*apiextensionsv1.CustomResourceDefinition)) {
		t.Helper()
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := definitions.Get(t.Context(), client.ObjectKey{Name: "orders.acme.cert-manager.io"}, crd); err != nil {
			t.Fatal(err)
		}
		do(crd)
		if err := definitions.Update(t.Context(), crd); err != nil {
			t.Fatal(err)
		}
	}
	another := func(name string) {
		t.Helper()
		w.Create(t, &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certmanagerv1.CertificateSpec{
			SecretName: name, DNSNames: []string{"web.example.com"}, IssuerRef: cmmeta.IssuerReference{Name: "ca"},
		}})
		certificateReady(t, w, name)
	}
	change(func(crd *apiextensionsv1.CustomResourceDefinition) {
		schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		spec := schema.Properties["spec"]
		spec.XValidations = nil
		schema.Properties["spec"] = spec
		delete(schema.Properties["status"].Properties, "failureClass")
	})

	t.Run("of another version of ours", func(t *testing.T) {
		j := &journal{}
		stop := w.RunLogged(t, w.Config(), rig.As(w.Admin, rig.Controller, "system:serviceaccounts", "system:serviceaccounts:cert-manager"), j.logger())
		j.await(t, "those of another version", "the field Order.status.failureClass", "cannot be changed once the Order is created")
		smallCA(t, w)
		certificateReady(t, w, "web")
		stop()
	})
	alone := func(t *testing.T) {
		t.Helper()
		a, err := app.New(t.Context(), w.Config(), w.Admin, logr.Discard())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), rig.Patience) // a controller that leads does not end
		defer cancel()
		if err = a.Run(ctx); err == nil || !strings.Contains(err.Error(), "the field Order.status.failureClass") {
			t.Errorf("it ended with: %v", err)
		}
	}
	var saved *apiextensionsv1.CustomResourceDefinition
	change(func(crd *apiextensionsv1.CustomResourceDefinition) {
		saved = crd.DeepCopy()
		withoutRules(crd.Spec.Versions[0].Schema.OpenAPIV3Schema)
	})
	t.Run("applied over ours", alone)
	change(func(crd *apiextensionsv1.CustomResourceDefinition) {
		crd.Spec = saved.Spec
		delete(crd.Annotations, "chancery.dev/definition")
	})
	t.Run("alone", alone)
	t.Run("policy", func(t *testing.T) {
		order := &acmev1.Order{ObjectMeta: metav1.ObjectMeta{Name: "order", Namespace: w.Namespace}, Spec: acmev1.OrderSpec{
			Request: []byte("x"), IssuerRef: cmmeta.IssuerReference{Name: "none"}, DNSNames: []string{"a.example.com"},
		}}
		w.Create(t, order)
		order.Spec.DNSNames = []string{"b.example.com"}
		if err := w.Client.Update(t.Context(), order); err == nil || !strings.Contains(err.Error(), "cannot be changed once the Order is created") {
			t.Errorf("the change of an Order's spec: %v", err)
		}
	})
	t.Run("accepted", func(t *testing.T) {
		cfg := w.Config()
		cfg.AcceptForeignCRDs = true
		stop := w.RunAs(t, cfg, rig.As(w.Admin, rig.Controller, "system:serviceaccounts", "system:serviceaccounts:cert-manager"))
		another("accepted")
		stop()
	})
	t.Run("replaced", func(t *testing.T) {
		cfg, j, address := w.Config(), &journal{}, rig.FreeAddress(t).String()
		cfg.HealthAddress = address
		cfg.LeaderElect, cfg.LeaderElectionNamespace = true, w.Namespace
		cfg.LeaseDuration, cfg.RenewDeadline, cfg.RetryPeriod = time.Minute, time.Minute/2, time.Second
		w.RunLogged(t, cfg, w.Admin, j.logger())
		j.await(t, "does not lead", "the field Order.status.failureClass", "--accept-foreign-crds")
		ready := func(ctx context.Context) string {
			status, body := get(ctx, address, "controller", "/readyz?verbose")
			return fmt.Sprint(status, " ", body)
		}
		rig.Eventually(t, "everything else is ready", func(ctx context.Context) string {
			if said := ready(ctx); !strings.Contains(said, "[-]definitions") || !strings.Contains(said, "[+]caches") {
				return said
			}
			return ""
		})
		if err := install.Install(t.Context(), w.Admin, func(string) {}); err != nil {
			t.Fatal(err)
		}
		rig.Eventually(t, "it is ready", func(ctx context.Context) string {
			if said := ready(ctx); !strings.HasPrefix(said, fmt.Sprint(http.StatusOK)) {
				return said
			}
			return ""
		})
		if said := j.with("does not lead"); len(said) != 1 {
			t.Errorf("said so often: %s", slices.Compact(said))
		}
		another("replaced")
	})
}

// withoutRules removes all rules of a schema.
func withoutRules(schema *apiextensionsv1.JSONSchemaProps) {
	schema.XValidations = nil
	for name, field := range schema.Properties {
		withoutRules(&field)
		schema.Properties[name] = field
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		withoutRules(schema.Items.Schema)
	}
}

// TestUnreadDefinitions: a controller that may not read the definitions, as by a role of cert-manager, says that nobody
// compares them.
func TestUnreadDefinitions(t *testing.T) {
	t.Parallel()
	w, j := rig.NewWorld(t), &journal{}
	ctx, stop := context.WithCancel(t.Context())
	a, err := app.New(ctx, w.Config(), rig.As(w.Admin, "nobody-"+w.Namespace), j.logger())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = a.Run(ctx) // it may read nothing else, either
	}()
	j.await(t, "definitions are not compared")
	stop()
	<-ended
}
