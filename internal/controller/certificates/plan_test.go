package certificates

import (
	"context"
	"crypto/x509"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/machine/certificate"
	"chancery.dev/internal/machine/revocation"
	"chancery.dev/internal/overlay"
	"chancery.dev/internal/signer"
)

// revoked is a CA: the serial numbers that it is asked to revoke.
type revoked map[string]int

func (r revoked) Revoke(_ context.Context, _ certmanagerv1.GenericIssuer, what signer.Revocation) error {
	r[string(what.Certificate)]++
	return nil
}

// TestRevocationBesideAStepThatFails: the CA is asked to revoke a compromised key, once, though each step of the
// issuance that is decided beside it fails.
func TestRevocationBesideAStepThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scheme := runtime.NewScheme()
		if err := certmanagerv1.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		crt := &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "1"}}
		api := overlay.New(fake.NewClientBuilder().WithScheme(scheme).WithObjects(crt).Build(), time.Now)
		r := &certificates{Deps: &controller.Deps{Now: time.Now, Client: api}}
		ca := revoked{}
		v := &view{pinned: &pinned{
			Pin: revocation.Pin{Reason: revocation.KeyCompromise}, leaf: &x509.Certificate{Raw: []byte("leaf")}, by: ca, issuer: &certmanagerv1.Issuer{},
		}}
		runner := engine.Run(engine.New(t.Context(), engine.Options{Client: api, Now: time.Now}), engine.Kind[*certmanagerv1.Certificate, memory, *view, certificate.Action]{
			Name: "Certificate", New: func() *certmanagerv1.Certificate { return &certmanagerv1.Certificate{} }, Events: record.NewFakeRecorder(9),
			Observe: func(context.Context, *pass) (*view, error) { return v, nil }, Plan: r.plan,
			Decide: func(*view, time.Time) certificate.Action { return certificate.Action{Step: -1, Revoke: true} },
		})
		for range 3 {
			if _, err := runner.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(crt)}); err == nil {
				t.Fatal("the step does not fail: the test shows nothing")
			}
			synctest.Wait()
		}
		if len(ca) != 1 || ca["leaf"] != 1 {
			t.Errorf("the CA was asked to revoke %v", ca)
		}
	})
}
