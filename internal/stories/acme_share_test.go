package stories_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/rig"
)

// TestShareOfOrders: a namespace that has used up its share of a ClusterIssuer's orders waits, and says why and until
// when. The certificates that it has are issued again, and other namespaces have shares of their own.
func TestShareOfOrders(t *testing.T) {
	t.Parallel()
	w, other := newACMEWorld(t, nil), rig.NewWorld(t)
	cfg := w.Config()
	cfg.Scope.Namespaces = append(cfg.Scope.Namespaces, other.Namespace)
	w.Run(t, cfg)
	issuer := w.issuer()
	metav1.SetMetaDataAnnotation(&issuer.ObjectMeta, acmev1.OrdersPerNamespaceAnnotation, "1/48h")
	w.Create(t, issuer)
	issued := func(in *rig.World, name string, revision int) {
		t.Helper()
		rig.Eventually(t, fmt.Sprintf("%s is issued, revision %d", name, revision), func(ctx context.Context) string {
			crt := &certmanagerv1.Certificate{}
			if err := in.Get(ctx, name, crt); err != nil {
				return err.Error()
			}
			ready := certmanagerv1.HasCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionReady, cmmeta.ConditionTrue)
			if !ready || crt.Status.Revision == nil || *crt.Status.Revision != revision {
				return fmt.Sprintf("%+v", crt.Status)
			}
			return ""
		})
	}
	w.Create(t, certificate(w.World, "first", "acme", "first.example.com"))
	issued(w.World, "first", 1)

	w.Create(t, certificate(w.World, "second", "acme", "second.example.com"))
	rig.Eventually(t, "the second one waits", func(ctx context.Context) string {
		orders, crt := &acmev1.OrderList{}, &certmanagerv1.Certificate{}
		if err := w.Client.List(ctx, orders, client.InNamespace(w.Namespace)); err != nil {
			return err.Error()
		}
		said := "it has no Order"
		for _, o := range orders.Items {
			if o.Annotations[certmanagerv1.CertificateNameAnnotation] != "second" {
				continue
			}
			said = fmt.Sprintf("%s %q", o.Status.FailureClass, o.Status.Reason)
			if !strings.HasPrefix(said, string(fault.ClassRateLimited)) || !strings.Contains(said, "used up its share") || !strings.Contains(said, "until 20") {
				return said
			}
			if err := w.Get(ctx, "second", crt); err != nil {
				return err.Error()
			}
			issuing := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionIssuing)
			if issuing == nil || !strings.Contains(issuing.Message, "used up its share") {
				return fmt.Sprintf("the Certificate says %+v", issuing)
			}
			return ""
		}
		return said
	})

	theirs := certificate(w.World, "theirs", "acme", "theirs.example.com")
	theirs.Namespace = other.Namespace
	w.Create(t, theirs)
	issued(other, "theirs", 1)
	rig.Eventually(t, "the first one has another name", func(ctx context.Context) string {
		crt := &certmanagerv1.Certificate{}
		if err := w.Get(ctx, "first", crt); err != nil {
			return err.Error()
		}
		crt.Spec.DNSNames = []string{"first.example.com", "again.example.com"}
		if err := w.Client.Update(ctx, crt); err != nil {
			return err.Error()
		}
		return ""
	})
	issued(w.World, "first", 2)
}
