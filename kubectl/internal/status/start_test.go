package status

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"

	"chancery.dev/api"
	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/clientside/explain"
	"chancery.dev/internal/pki"
)

// TestStartingPoints: a Certificate is found from whatever leads to it, with at most ten requests. No controller runs.
func TestStartingPoints(t *testing.T) {
	t.Parallel()
	w := newStage(t)
	w.issue(t, "web", "www.example.com")
	w.issue(t, "wild", "*.shop.example.com")
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
		said, code, requests, err := w.status(t.Context(), append(strings.Fields(args), "-o", "json")...)
		exit := 0 // no controller has looked at the Certificates yet
		if want == csr {
			exit = inTrouble // its issuer does not exist
		}
		if err != nil || code != exit {
			t.Errorf("%s: exit status %d, want %d: %v", args, code, exit, err)
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
	w.Create(t, &networkingv1.Ingress{ObjectMeta: named("both"), Spec: networkingv1.IngressSpec{
		DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}},
	}})
	for i, said := range []string{"an older word", "name one issuer, not two"} {
		at := metav1.NewTime(time.Now().Add(time.Duration(i) * time.Minute))
		w.Create(t, &corev1.Event{
			ObjectMeta: named(fmt.Sprint("both-", i)), Type: corev1.EventTypeWarning, Reason: "BadConfig", Message: said, LastTimestamp: at,
			InvolvedObject: corev1.ObjectReference{Kind: kindIngress, Namespace: w.Namespace, Name: "both"},
		})
	}
	for args, want := range map[string]string{
		"ingress/both":            "no Certificate is made for ingress/both: name one issuer, not two",
		"none":                    "no Certificate is found for none: see which there are",
		"node/web":                "status starts from certificate/NAME",
		"pod/none":                "not found",
		"issuer/none":             "no issuer is found for issuer/none",
		"issuer/none --not-ready": "--not-ready groups Certificates",
		"ingress/none":            "not found",
		"secret/none":             "no spec.secretName names",
		"web -o wide":             "--output is json, yaml or name",
		"web -l =":                "--selector",
		"ingress/front -A --as-group system:masters": "name its namespace",
		"issuer/none -A --as-group system:masters":   "name its namespace",
		"-A": "is forbidden",
	} {
		if said, code, _, err := w.status(t.Context(), strings.Fields(args)...); err == nil || code != 1 || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: exit status %d, %v %s, want %q", args, code, err, said, want)
		}
	}
	w.Create(t, &certmanagerv1.Issuer{
		ObjectMeta: named("none"), Spec: certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}},
	})
	said, code, _, err := w.status(t.Context(), "csr/"+csr, "-n", "default", "--as-group", "system:masters")
	if err != nil || strings.Contains(said, "does not exist") || !strings.Contains(said, "Issuer "+w.Namespace+"/none") {
		t.Errorf("the issuer in another namespace is not found: exit status %d, %v\n%s", code, err, said)
	}
	if said, code, _, err := w.status(t.Context(), "issuer", "none"); err != nil || code != inTrouble || !strings.HasPrefix(said, "Issuer "+w.Namespace+"/none: new: Issuer "+w.Namespace+"/none is not ready: no controller has looked") {
		t.Errorf("of an issuer: exit status %d, %v\n%s", code, err, said)
	}
	if said, code, _, err := w.status(t.Context(), "web", "-o", "yaml"); err != nil || code != 0 || !strings.HasPrefix(said, "items:\n- ") {
		t.Errorf("exit status %d, %v\n%s", code, err, said)
	}
}

// TestBelow: a Pod leads to the Certificates whose Secrets it mounts, and what was made for a Certificate or for a
// CertificateSigningRequest leads to that, from however far below. A request of nobody stands for itself.
func TestBelow(t *testing.T) {
	t.Parallel()
	scheme, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	meta := func(name, ownerKind, owner string) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Namespace: "shop", Name: name}
		if owner != "" {
			m.OwnerReferences = []metav1.OwnerReference{{Kind: ownerKind, Name: owner, Controller: new(true)}}
		}
		return m
	}
	pod := func(name string, volumes ...corev1.VolumeSource) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: meta(name, "", "")}
		for _, v := range volumes {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{VolumeSource: v})
		}
		return p
	}
	secret := corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "web-tls"}}
	projected := corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ConfigMap: &corev1.ConfigMapProjection{}}, {Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "api-tls"}}},
	}}}
	csi := corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "csi.cert-manager.io"}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		pod("both", corev1.VolumeSource{}, secret, projected), pod("csi", csi),
		&certmanagerv1.CertificateRequest{ObjectMeta: meta("web-1", kindCertificate, "web")}, &certmanagerv1.CertificateRequest{ObjectMeta: meta("mesh", kindPod, "csi")},
		&acmev1.Order{ObjectMeta: meta("web-1-1", kindRequest, "web-1")}, &acmev1.Order{ObjectMeta: meta("agent-1", kindSigningRequest, "agent")},
		&acmev1.Challenge{ObjectMeta: meta("web-1-1-1", kindOrder, "web-1-1")}, &acmev1.Challenge{ObjectMeta: meta("agent-1-1", kindOrder, "agent-1")},
		&acmev1.Challenge{ObjectMeta: meta("mine", "", "")},
	).Build()
	all := []*certmanagerv1.Certificate{{ObjectMeta: named("web")}, {ObjectMeta: named("api")}, {ObjectMeta: named("mail")}}
	for _, crt := range all {
		crt.Spec.SecretName = crt.Name + "-tls"
	}
	for arg, want := range map[string]string{
		"po/both": "web api", "cr/web-1": "web", "order/web-1-1": "web", "challenge/web-1-1-1": "web",
		"orders/agent-1": "csr agent", "challenge/agent-1-1": "csr agent", "cr/mesh": "request mesh",
		"pod/csi":        "the Pod mounts no Secret of a Certificate. It mounts volumes of csi.cert-manager.io",
		"challenge/mine": "no Certificate and no request has made it",
		"order/none":     "not found",
	} {
		s, err := startOf(t.Context(), c, "shop", arg)
		var got []string
		switch {
		case err != nil:
		case s.csr != nil:
			got = []string{"csr", s.csr.Name}
		case s.request != nil:
			got = []string{"request", s.request.Name}
		default:
			var found []*certmanagerv1.Certificate
			found, err = s.find(all)
			for _, crt := range found {
				got = append(got, crt.Name)
			}
		}
		if said := strings.Join(got, " "); err == nil && said != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v, want %q", arg, said, err, want)
		}
		if _, err := startOf(t.Context(), c, "", arg); err == nil || !strings.Contains(err.Error(), "name its namespace") {
			t.Errorf("%s in all namespaces: %v", arg, err)
		}
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
