package certificates

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/kube/ownwrites"
	"chancery.dev/internal/machine/certificate"
	"chancery.dev/internal/pki"
)

// TestRSAKeysDelayNobodyElse: an RSA key is made beside the work on Certificates, in a lane that namespaces share, and
// each key is used once. A spec that no key can be made for is refused as before.
func TestRSAKeysDelayNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scheme := runtime.NewScheme()
		for _, add := range []func(*runtime.Scheme) error{certmanagerv1.AddToScheme, corev1.AddToScheme} {
			if err := add(scheme); err != nil {
				t.Fatal(err)
			}
		}
		crt := &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "1"}}
		api := ownwrites.New(fake.NewClientBuilder().WithScheme(scheme).WithObjects(crt).Build(), time.Now)
		r := &certificates{Deps: &controller.Deps{Now: time.Now, Client: api}}
		e := engine.New(t.Context(), engine.Options{Client: api, Now: time.Now})
		wanted := ""
		runner := engine.Run(e, engine.Kind[*certmanagerv1.Certificate, memory, *view, certificate.Action]{
			Name: "Certificate", New: func() *certmanagerv1.Certificate { return &certmanagerv1.Certificate{} }, Events: record.NewFakeRecorder(9),
			Observe: func(context.Context, *pass) (*view, error) { return &view{}, nil }, Plan: r.plan,
			Decide: func(*view, time.Time) certificate.Action {
				a := certificate.Action{Step: certificate.StepCreateKey, Name: wanted}
				if err := api.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: wanted}, &corev1.Secret{}); err == nil {
					a.Step = certificate.StepRest
				}
				return a
			},
		})
		look := func() {
			t.Helper()
			if _, err := runner.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(crt)}); err != nil {
				t.Fatal(err)
			}
		}
		seen := map[string]bool{}
		for _, wanted = range []string{"first", "second"} {
			look()
			key, secret := client.ObjectKey{Namespace: "ns", Name: wanted}, &corev1.Secret{}
			if err := api.Get(t.Context(), key, secret); err == nil {
				t.Fatal("the key was made by the worker, which others wait for")
			}
			if waits := e.Waits(); len(waits) == 0 || waits[0].Detail != controller.KeyCall(pki.KeySpec{}).Name {
				t.Errorf("nobody is told that the key is made: %+v", waits)
			}
			synctest.Wait()
			look()
			if err := api.Get(t.Context(), key, secret); err != nil {
				t.Fatalf("the key that was made is not used: %v", err)
			}
			made, err := pki.DecodePrivateKey(secret.Data[cmmeta.TLSPrivateKeyKey])
			if err != nil || pki.FactsOfKey(made.Public()).Algorithm != pki.RSA {
				t.Fatalf("%v %T", err, made)
			}
			if text := string(secret.Data[cmmeta.TLSPrivateKeyKey]); seen[text] {
				t.Error("a key was used twice")
			} else {
				seen[text] = true
			}
		}
	})
}

// TestMakesKey: only a new key that takes long is made beside the work.
func TestMakesKey(t *testing.T) {
	rsa := pki.KeySpec{}
	for name, c := range map[string]struct {
		a    certificate.Action
		spec pki.KeySpec
		want bool
	}{
		"a Secret for it":         {certificate.Action{Step: certificate.StepCreateKey}, rsa, true},
		"a request in one step":   {certificate.Action{Step: certificate.StepCreateRequest}, rsa, true},
		"one that is in a Secret": {certificate.Action{Step: certificate.StepCreateRequest, Key: "key"}, rsa, false},
		"one that is in memory":   {certificate.Action{Step: certificate.StepCreateKey, Held: true}, rsa, false},
		"one that is used again":  {certificate.Action{Step: certificate.StepCreateKey, ReuseKey: true}, rsa, false},
		"another step":            {certificate.Action{Step: certificate.StepStore}, rsa, false},
		"a quick one":             {certificate.Action{Step: certificate.StepCreateKey}, pki.KeySpec{Algorithm: pki.ECDSA}, false},
	} {
		if got := makesKey(c.a, c.spec); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
