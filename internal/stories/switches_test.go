package stories_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/app"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
)

// TestSwitchedOff: a controller that is switched off by its name in cert-manager does nothing, and everything that does
// not need that controller is done. A word of want names what is not done.
func TestSwitchedOff(t *testing.T) {
	t.Parallel()
	for off, want := range map[string]string{
		"nothing":                              "",
		"issuers":                              "issuer signed",
		"clusterissuers":                       "clusterissuer registered signing-request ordered order challenged proven",
		"certificates":                         "certificate", // all of app.CertificateControllers
		"certificaterequests-approver":         "approved signed signing-request ordered order challenged proven",
		"certificaterequests-issuer-ca":        "signed",
		"certificaterequests-issuer-acme":      "ordered order challenged proven",
		"certificatesigningrequests-issuer-ca": "signing-request",
		"orders":                               "order challenged proven",
		"challenges":                           "proven",
		"ingress-shim":                         "ingress",
		"certificates-metrics":                 "metrics",
	} {
		t.Run(off, func(t *testing.T) {
			t.Parallel()
			names := []string{off}
			if off == "certificates" {
				names = app.CertificateControllers()
			}
			w := newSwitched(t)
			cfg := w.Config()
			cfg.MetricsAddress = rig.FreeAddress(t).String()
			cfg.SwitchOff(names...)
			w.Run(t, cfg)
			effects, missing := w.effects(cfg.MetricsAddress), strings.Fields(want)
			for _, name := range slices.Sorted(maps.Keys(effects)) {
				if !slices.Contains(missing, name) {
					rig.Eventually(t, name, effects[name])
				}
			}
			for _, name := range missing {
				if effects[name](t.Context()) == "" {
					t.Errorf("%s: it is done without its controller", name)
				}
			}
		})
	}
}

// switched is a world in which there is something to do for each controller.
type switched struct{ *acmeWorld }

func newSwitched(t *testing.T) switched {
	t.Helper()
	w := switched{newACMEWorld(t, nil)}
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	secret, err := pki.EncodePKCS8(key)
	if err != nil {
		t.Fatal(err)
	}
	ca := certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "ca"}}
	w.Create(t,
		&corev1.Secret{ObjectMeta: named("ca"), Data: map[string][]byte{cmmeta.TLSCertKey: authorityFor(t, key), cmmeta.TLSPrivateKeyKey: secret}},
		&certmanagerv1.Issuer{ObjectMeta: named("local"), Spec: ca}, clusterIssuer(w.World, "ca", ca), w.issuer(),
		certificate(w.World, "web", "ca", "web.example.com"),
		w.request(t, "local", cmmeta.IssuerReference{Name: "local", Kind: certmanagerv1.IssuerKind}),
		w.request(t, "acme", cmmeta.IssuerReference{Name: w.ClusterName("acme"), Kind: cmmeta.ClusterIssuerKind}),
		w.SigningRequest(t, "csr", "cert-manager.io/"+w.ClusterName("ca")),
		&networkingv1.Ingress{
			ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: map[string]string{certmanagerv1.IngressClusterIssuerAnnotation: w.ClusterName("ca")}},
			Spec: networkingv1.IngressSpec{
				TLS: []networkingv1.IngressTLS{{Hosts: []string{"shop.example.com"}, SecretName: "shop"}},
				DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
					Name: "shop", Port: networkingv1.ServiceBackendPort{Number: 80},
				}},
			},
		})
	return w
}

// request is a CertificateRequest that no Certificate owns.
func (w switched) request(t *testing.T, name string, by cmmeta.IssuerReference) *certmanagerv1.CertificateRequest {
	t.Helper()
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	csr, err := pki.CreateCSR(pki.CSRTemplate{AltNames: pki.AltNames{DNSNames: []string{name + ".example.com"}}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &certmanagerv1.CertificateRequest{ObjectMeta: named(name), Spec: certmanagerv1.CertificateRequestSpec{Request: csr, IssuerRef: by}}
}

// effects are what the controllers do. Each is empty once it is done, and tells what there is instead.
func (w switched) effects(metrics string) map[string]func(context.Context) string {
	request := func(name string, done func(*certmanagerv1.CertificateRequest) bool) func(context.Context) string {
		return func(ctx context.Context) string {
			r := &certmanagerv1.CertificateRequest{}
			return doneOr(w.Get(ctx, name, r), done(r), r.Status)
		}
	}
	order := func(done func(acmev1.Order) bool) func(context.Context) string {
		return func(ctx context.Context) string {
			list := &acmev1.OrderList{}
			err := w.Client.List(ctx, list, client.InNamespace(w.Namespace))
			return doneOr(err, slices.ContainsFunc(list.Items, done), list.Items)
		}
	}
	clusterIssuerReady := func(name string) func(context.Context) string {
		return func(ctx context.Context) string {
			o := &certmanagerv1.ClusterIssuer{}
			err := w.Get(ctx, w.ClusterName(name), o)
			ready := certmanagerv1.FindIssuerCondition(o.Status.Conditions, certmanagerv1.IssuerConditionReady)
			return doneOr(err, ready != nil && ready.Status == cmmeta.ConditionTrue, o.Status)
		}
	}
	signed := func(r *certmanagerv1.CertificateRequest) bool { return len(r.Status.Certificate) > 0 }
	challenge := func(done func(acmev1.Challenge) bool) func(context.Context) string {
		return func(ctx context.Context) string {
			list := &acmev1.ChallengeList{}
			if err := w.Client.List(ctx, list, client.InNamespace(w.Namespace)); err != nil {
				return err.Error()
			}
			if slices.ContainsFunc(list.Items, done) {
				return ""
			}
			return request("acme", signed)(ctx) // and the Challenge is gone
		}
	}
	return map[string]func(context.Context) string{
		"issuer": func(ctx context.Context) string {
			o := &certmanagerv1.Issuer{}
			return doneOr(w.Get(ctx, "local", o), len(o.Status.Conditions) > 0, o.Status)
		},
		"clusterissuer": clusterIssuerReady("ca"),
		"registered":    clusterIssuerReady("acme"),
		"certificate": func(ctx context.Context) string {
			o := &certmanagerv1.Certificate{}
			return doneOr(w.Get(ctx, "web", o), len(o.Status.Conditions) > 0, o.Status)
		},
		"ingress": func(ctx context.Context) string {
			return doneOr(w.Get(ctx, "shop", &certmanagerv1.Certificate{}), true, nil)
		},
		"approved": request("local", func(r *certmanagerv1.CertificateRequest) bool {
			return slices.ContainsFunc(r.Status.Conditions, func(c certmanagerv1.CertificateRequestCondition) bool {
				return c.Type == certmanagerv1.CertificateRequestConditionApproved
			})
		}),
		"signed":     request("local", signed),
		"ordered":    order(func(acmev1.Order) bool { return true }),
		"order":      order(func(o acmev1.Order) bool { return o.Status.URL != "" }),
		"challenged": challenge(func(acmev1.Challenge) bool { return true }),
		"proven":     challenge(func(c acmev1.Challenge) bool { return !reflect.DeepEqual(c.Status, acmev1.ChallengeStatus{}) }),
		"signing-request": func(ctx context.Context) string {
			csr := &certificatesv1.CertificateSigningRequest{}
			return doneOr(w.Get(ctx, w.ClusterName("csr"), csr), len(csr.Status.Certificate) > 0, csr.Status)
		},
		"metrics": func(ctx context.Context) string {
			page, err := metricsOf(ctx, metrics)
			return doneOr(err, strings.Contains(page, "\ncertmanager_certificate_ready_status{"), nil)
		},
	}
}

func doneOr(err error, done bool, there any) string {
	if err == nil && done {
		return ""
	}
	return fmt.Sprintf("%v, there is %+v", err, there)
}

// metricsOf reads the page of the metrics at an address.
func metricsOf(ctx context.Context, address string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		return "", err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return string(body), err
}
