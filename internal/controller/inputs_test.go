package controller

import (
	"context"
	"fmt"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"chancery.dev/api"
	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/kube/ownwrites"
	"chancery.dev/internal/kube/secrets"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/growth"
)

// TestInputsGrow: what the calls for an issuer are made with costs as much as the Secrets that it names are many.
func TestInputsGrow(t *testing.T) {
	scheme, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	store, kept := fake.NewClientBuilder().WithScheme(scheme).Build(), secrets.New(time.Now)
	source := secrets.Source{Client: ownwrites.New(store, time.Now), Live: store, Cache: &informertest.FakeInformers{Scheme: scheme}}
	if err := kept.Connect(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	d := &Deps{Secrets: kept}
	growth.Linear(t, limits.Solvers, func(n int) func() {
		issuer := &certmanagerv1.Issuer{}
		issuer.Spec.ACME = &acmev1.ACMEIssuer{}
		for i := range n {
			issuer.Spec.ACME.Solvers = append(issuer.Spec.ACME.Solvers, acmev1.ACMEChallengeSolver{DNS01: &acmev1.DNS01Solver{
				DigitalOcean: &acmev1.DigitalOceanProvider{TokenSecretRef: cmmeta.SecretKeySelector{Name: fmt.Sprintf("%0250d", i), Key: "token"}},
			}})
		}
		return func() {
			if _, err := d.IssuerInputs(context.Background(), issuer); err != nil {
				t.Error(err)
			}
		}
	})
}
