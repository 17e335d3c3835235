package shims_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"

	"chancery.dev/api"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig"
)

// TestAnnotationsGetNoCACertificates: where CA certificates of ClusterIssuers need permission, nobody gets one by
// annotations, by which the controller makes and changes Certificates. A person who may create them gets them issued.
func TestAnnotationsGetNoCACertificates(t *testing.T) {
	t.Parallel()
	w := world(t, rig.NewWorldOn(t, rig.OwnCluster(t)))
	w.InstallGatewayAPI(t, "gateways")
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: api.ExternalIssuersNamespace, Name: api.AdmissionSettingsName}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"data":{"caCertificates":"reference"}}`))
	if err := w.Client.Patch(t.Context(), settings, patch); err != nil {
		t.Fatal(err)
	}
	public := &certmanagerv1.ClusterIssuer{
		ObjectMeta: metav1.ObjectMeta{Name: w.ClusterName("public")}, Spec: certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}},
	}
	crt := &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: "ca"}, Spec: certmanagerv1.CertificateSpec{
		SecretName: "ca", CommonName: "ca", IsCA: true, IssuerRef: cmmeta.IssuerReference{Name: public.Name, Kind: cmmeta.ClusterIssuerKind},
		PrivateKey: &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm},
	}}
	w.Create(t, public)
	rig.Eventually(t, "the policy is at work", func(ctx context.Context) string {
		o := crt.DeepCopy()
		o.Namespace = w.Namespace
		nobody, err := client.New(rig.As(w.Admin, rig.Controller), client.Options{Scheme: w.Client.Scheme()})
		if err != nil {
			return err.Error()
		}
		if err := nobody.Create(ctx, o, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "for a CA certificate") {
			return "the controller may make a CA's Certificate: " + fmt.Sprint(err)
		}
		return ""
	})

	cfg := w.Config()
	cfg.Shims.Gateways = true
	w.Run(t, cfg)
	const refused = `may not ask ClusterIssuer "`
	signs := map[string]string{"cert-manager.io/cluster-issuer": public.Name, "cert-manager.io/private-key-algorithm": "ECDSA", "cert-manager.io/usages": "digital signature, cert sign"}
	w.Create(t, newIngress("site", signs, "site a.example.com"),
		&gwapiv1.Gateway{
			ObjectMeta: metav1.ObjectMeta{Name: "edge", Annotations: signs},
			Spec:       gwapiv1.GatewaySpec{GatewayClassName: "any", Listeners: []gwapiv1.Listener{listener("edge", "b.example.com")}},
		})
	awaitEvent(t, w, "site", "BadConfig", refused)
	awaitEvent(t, w, "edge", "BadConfig", refused)

	moved := newIngress("moved", asking(), "moved c.example.com")
	w.Create(t, moved)
	own := awaitCertificate(t, w, "moved", "is made", isFor("c.example.com"))
	change(t, w, own, func(c *certmanagerv1.Certificate) { c.Spec.IsCA = true }) // of the tenant's own Issuer
	change(t, w, moved, func(in *networkingv1.Ingress) {
		in.Annotations = maps.Clone(signs)
		delete(in.Annotations, "cert-manager.io/usages")
	})
	awaitEvent(t, w, "moved", "BadConfig", refused)

	w.Create(t, crt) // by an administrator
	awaitCertificate(t, w, "ca", "is issued", func(c *certmanagerv1.Certificate) bool { return c.Spec.IsCA })
	list := &certmanagerv1.CertificateList{}
	if err := w.Client.List(t.Context(), list, client.InNamespace(w.Namespace)); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if c := &list.Items[i]; c.Name != "ca" && c.Spec.IssuerRef.Name == public.Name {
			t.Errorf("Certificate %s: %+v", c.Name, c.Spec)
		}
	}
}
