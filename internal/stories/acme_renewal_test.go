package stories_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/letsencrypt/pebble/v2/ca"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/pebble"
)

// TestTheNextOrderSaysWhatItReplaces (RFC 9773 §5), with the profile that an annotation
// asks for; the CA takes both.
func TestTheNextOrderSaysWhatItReplaces(t *testing.T) {
	t.Parallel()
	w := newACMEWorld(t, func(o *pebble.Options) {
		o.Profiles = map[string]ca.Profile{"classic": {ValidityPeriod: 90 * 86400}, "short": {ValidityPeriod: 6 * 86400}}
	})
	w.Run(t, w.Config())
	is := w.issuer()
	is.Spec.ACME.Profile = "classic"
	w.Create(t, is, certificate(w.World, "web", "acme", "web.example.com"))
	awaitReady(t, w.World, "web")
	secret := &corev1.Secret{}
	if err := w.Get(t.Context(), "web", secret); err != nil {
		t.Fatal(err)
	}
	certs, err := pki.DecodeChain(secret.Data[corev1.TLSCertKey])
	if err != nil {
		t.Fatal(err)
	}
	id, err := acme.CertID(certs[0])
	if err != nil {
		t.Fatal(err)
	}
	crt := &certmanagerv1.Certificate{}
	if err := w.Get(t.Context(), "web", crt); err != nil {
		t.Fatal(err)
	}
	amended := crt.DeepCopy()
	amended.Spec.DNSNames = append(amended.Spec.DNSNames, "www.example.com")
	amended.Annotations = map[string]string{acmev1.ProfileAnnotation: "short"}
	if err := w.Client.Patch(t.Context(), amended, client.MergeFrom(crt)); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the second Order is done", func(context.Context) string {
		for _, o := range w.orders(t) {
			if len(o.Spec.DNSNames) < 2 {
				continue
			}
			if o.Spec.Replaces != id || o.Spec.Profile != "short" {
				t.Fatalf("it replaces %q with profile %q, want %q and short", o.Spec.Replaces, o.Spec.Profile, id)
			}
			if o.Status.State == acmev1.Valid {
				return ""
			}
			return fmt.Sprintf("%s: %s", o.Status.State, o.Status.Reason)
		}
		return "there is none"
	})
}

// TestAnUnknownProfileFailsForGood: its class says that another try is no use.
func TestAnUnknownProfileFailsForGood(t *testing.T) {
	t.Parallel()
	w := newACMEWorld(t, nil)
	w.Run(t, w.Config())
	crt := certificate(w.World, "web", "acme", "web.example.com")
	crt.Annotations = map[string]string{acmev1.ProfileAnnotation: "nonesuch"}
	w.Create(t, w.issuer(), crt)
	rig.Eventually(t, "the request says what kind of failure it is", func(ctx context.Context) string {
		list := &certmanagerv1.CertificateRequestList{}
		if err := w.Client.List(ctx, list, client.InNamespace(w.Namespace)); err != nil {
			return err.Error()
		}
		for _, r := range list.Items {
			class := certmanagerv1.FindCertificateRequestCondition(r.Status.Conditions, certmanagerv1.CertificateRequestConditionFailureClass)
			if class != nil && class.Reason == string(fault.ClassPermanent) {
				return ""
			}
		}
		return fmt.Sprintf("%d requests, none says it", len(list.Items))
	})
}
