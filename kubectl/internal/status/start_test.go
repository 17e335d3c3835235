package status

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"

	"chancery.dev/api"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/explain"
	"chancery.dev/internal/pki"
)

// TestStartingPoints: a Certificate is found from whatever leads to it, with at most ten requests. No controller runs.
func TestStartingPoints(t *testing.T) {
	t.Parallel()
	w := newStage(t)
	w.issue(t, "web", "www.example.com", nil)
	w.issue(t, "wild", "*.shop.example.com", nil)
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	request, err := pki.CreateCSR(pki.CSRTemplate{AltNames: pki.AltNames{DNSNames: []string{"agent.example.com"}}}, key)
	if err != nil {
		t.Fatal(err)
	}
	csr := w.ClusterName("agent")
	w.Create(t,
		&networkingv1.Ingress{ObjectMeta: named("front"), Spec: networkingv1.IngressSpec{
			DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}},
			TLS:            []networkingv1.IngressTLS{{SecretName: "web-tls"}},
		}},
		&certificatesv1.CertificateSigningRequest{ObjectMeta: named(csr), Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: request, SignerName: "issuers.cert-manager.io/" + w.Namespace + ".none", Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
		}})
	for args, want := range map[string]string{
		"web":                     "web",
		"certificate/web":         "web",
		"certificate web wild":    "web wild",
		"secret wild-tls":         "wild",
		"www.example.com":         "web",
		"a.shop.example.com wild": "wild wild",
		"secret/wild-tls":         "wild",
		"ingress/front":           "web",
		"":                        "web wild",
		"-l app=none":             "",
		"csr/" + csr + " --as-group system:masters": csr,
	} {
		said, requests, err := w.status(t.Context(), append(strings.Fields(args), "-o", "json")...)
		if err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		var reports struct{ Items []explain.Report }
		if err := json.Unmarshal([]byte(said), &reports); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range reports.Items {
			got = append(got, r.Name)
		}
		if strings.Join(got, " ") != want || len(requests) > 10 {
			t.Errorf("%s: leads to %v with the requests %v", args, got, requests)
		}
	}
	for args, want := range map[string]string{
		"none":         "no Certificate is found for none: see which there are",
		"node/web":     "status starts from certificate/NAME",
		"pod/none":     "not found",
		"ingress/none": "not found",
		"secret/none":  "no spec.secretName names",
		"web -o wide":  "--output is json, yaml or name",
		"web -l =":     "--selector",
		"ingress/front -A --as-group system:masters": "name its namespace",
		"-A": "is forbidden",
	} {
		if said, _, err := w.status(t.Context(), strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v %s, want %q", args, err, said, want)
		}
	}
	if said, _, err := w.status(t.Context(), "web", "-o", "yaml"); err != nil || !strings.HasPrefix(said, "items:\n- ") {
		t.Errorf("%v\n%s", err, said)
	}
}

// TestGateway: a Gateway leads to the Certificates of its listeners; one that may not be read, to those that it owns.
func TestGateway(t *testing.T) {
	t.Parallel()
	scheme, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	ref := func(name string) []gwapiv1.SecretObjectReference {
		return []gwapiv1.SecretObjectReference{{Name: gwapiv1.ObjectName(name)}}
	}
	other := gwapiv1.Namespace("other")
	gateway := &gwapiv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "edge"}, Spec: gwapiv1.GatewaySpec{Listeners: []gwapiv1.Listener{
		{Name: "plain"},
		{Name: "tls", TLS: &gwapiv1.ListenerTLSConfig{CertificateRefs: ref("one-tls")}},
		{Name: "far", TLS: &gwapiv1.ListenerTLSConfig{CertificateRefs: []gwapiv1.SecretObjectReference{{Name: "far-tls", Namespace: &other}}}},
	}}}
	certificate := func(name, owner string) *certmanagerv1.Certificate {
		crt := &certmanagerv1.Certificate{ObjectMeta: named(name)}
		crt.Spec.SecretName = name + "-tls"
		if owner != "" {
			crt.OwnerReferences = []metav1.OwnerReference{{Kind: "Gateway", Name: owner, Controller: new(true)}}
		}
		return crt
	}
	all := []*certmanagerv1.Certificate{certificate("one", ""), certificate("far", ""), certificate("owned", "edge"), certificate("else", "other")}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(gateway).Build()
	closed := interceptor.NewClient(c, interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return apierrors.NewForbidden(schema.GroupResource{}, "edge", nil)
	}})
	for want, c := range map[string]client.Client{"[one owned]": c, "[owned]": closed} {
		start, err := startOf(t.Context(), c, "shop", "gateway/edge")
		if err != nil {
			t.Fatal(err)
		}
		found, err := start.find(all)
		var got []string
		for _, crt := range found {
			got = append(got, crt.Name)
		}
		if err != nil || fmt.Sprint(got) != want {
			t.Errorf("%v, %v, want %s", got, err, want)
		}
	}
}
