package shims_test

import (
	"maps"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/app"
	"chancery.dev/internal/rig"
)

// listener is one for HTTPS with the certificate in a Secret.
func listener(secret, host string) gwapiv1.Listener {
	return gwapiv1.Listener{
		Name: gwapiv1.SectionName(secret), Hostname: new(gwapiv1.Hostname(host)), Port: 443, Protocol: gwapiv1.HTTPSProtocolType,
		TLS: &gwapiv1.ListenerTLSConfig{CertificateRefs: []gwapiv1.SecretObjectReference{{Name: gwapiv1.ObjectName(secret)}}},
	}
}

// TestGatewayAPI: the kinds of the Gateway API are taken up when the cluster serves them, without a restart; until
// then, and when they have gone, the rest goes on. A ListenerSet follows its Gateway.
func TestGatewayAPI(t *testing.T) {
	t.Parallel()
	w := world(t, rig.NewWorldOn(t, rig.OwnCluster(t)))
	cfg := w.Config()
	cfg.Shims.Gateways, cfg.Shims.ListenerSets = true, true
	w.Run(t, cfg)
	w.Create(t, newIngress("web", asking(), "before a.example.com"))
	awaitCertificate(t, w, "before", "is made", isFor("a.example.com"))

	w.InstallGatewayAPI(t, "gateways")
	bare := listener("bare", "")
	bare.Hostname = nil
	gateway := &gwapiv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Name: "edge", Annotations: asking("cert-manager.io/ignore-tls-listeners=ignored")},
		Spec: gwapiv1.GatewaySpec{GatewayClassName: "any", Listeners: []gwapiv1.Listener{
			listener("edge", "b.example.com"), listener("ignored", "ignored.example.com"), bare,
		}},
	}
	w.Create(t, gateway)
	crt := awaitCertificate(t, w, "edge", "is made", isFor("b.example.com"))
	if !metav1.IsControlledBy(crt, gateway) || crt.Annotations[acmev1.ParentRefKindAnnotation] != "Gateway" || crt.Annotations[acmev1.ParentRefNameAnnotation] != "edge" {
		t.Errorf("%+v", crt.ObjectMeta)
	}
	awaitEvent(t, w, "edge", "BadConfig", `Skipped a listener block: listener "bare" has no hostname`)
	change(t, w, gateway, func(g *gwapiv1.Gateway) { g.Spec.Listeners = []gwapiv1.Listener{listener("edge", "c.example.com")} })
	awaitCertificate(t, w, "edge", "follows", isFor("c.example.com"))

	off := world(t, rig.NewWorldOn(t, w.Admin))
	cfg = off.Config()
	cfg.Shims.Gateways = true
	cfg.SwitchOff(app.ControllerGatewayShim)
	off.Run(t, cfg)
	unseen := gateway.DeepCopy()
	unseen.ObjectMeta = metav1.ObjectMeta{Name: "unseen", Annotations: asking()}
	off.Create(t, unseen, newIngress("seen", asking(), "seen a.example.com"))
	awaitCertificate(t, off, "seen", "is made", isFor("a.example.com"))
	if list := (&certmanagerv1.CertificateList{}); off.Client.List(t.Context(), list, client.InNamespace(off.Namespace)) != nil || len(list.Items) != 1 {
		t.Errorf("beside a gateway-shim that is switched off there are %+v", list.Items)
	}

	w.InstallGatewayAPI(t, "listenersets")
	l := listener("set", "d.example.com")
	w.Create(t, &gwapiv1.ListenerSet{
		ObjectMeta: metav1.ObjectMeta{Name: "set", Annotations: map[string]string{"cert-manager.io/private-key-algorithm": "ECDSA"}},
		Spec: gwapiv1.ListenerSetSpec{
			ParentRef: gwapiv1.ParentGatewayReference{Name: "edge"},
			Listeners: []gwapiv1.ListenerEntry{{Name: l.Name, Hostname: l.Hostname, Port: l.Port, Protocol: l.Protocol, TLS: l.TLS}},
		},
	})
	crt = awaitCertificate(t, w, "set", "is made", isFor("d.example.com"))
	if crt.Spec.IssuerRef.Name != "self" || crt.Annotations[acmev1.ParentRefKindAnnotation] != "ListenerSet" {
		t.Errorf("%+v", crt)
	}
	issuer := &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}}
	w.Create(t, issuer)
	change(t, w, gateway, func(g *gwapiv1.Gateway) {
		g.Annotations = maps.Clone(g.Annotations)
		g.Annotations["cert-manager.io/issuer"] = "other"
	})
	awaitCertificate(t, w, "set", "follows the Gateway", func(c *certmanagerv1.Certificate) bool { return c.Spec.IssuerRef.Name == "other" })

	scheme := w.Client.Scheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, plural := range []string{"gateways", "listenersets"} {
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: plural + ".gateway.networking.k8s.io"}}
		if err := w.Client.Delete(t.Context(), crd, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			t.Fatal(err)
		}
	}
	w.Create(t, newIngress("after", asking(), "after a.example.com"))
	awaitCertificate(t, w, "after", "is made", isFor("a.example.com"))
}
