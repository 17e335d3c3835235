package approverpolicy_test

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/e2e/beside"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
)

const (
	module  = "github.com/cert-manager/approver-policy"
	account = "cert-manager-approver-policy"
	alice   = "alice@example.com" // may use the policy
	bob     = "bob@example.com"   // may not
)

// newWorld runs controllers that approve nothing, the CA injector, and approver-policy with the rights of its chart. It
// makes the issuer "ca".
func newWorld(t *testing.T) *rig.World {
	t.Helper()
	w := rig.NewWorld(t)
	cfg := w.Config()
	cfg.AutoApprove = false
	w.Run(t, cfg)
	beside.Injector(t, w)
	beside.Definitions(t, w.Admin, "approver-policy.mod", module, "deploy/crds")
	webhook := rig.FreeAddress(t)
	beside.Apply(t, w.Client, "testdata/approver.yaml", w.Namespace, beside.WebhookPort(t, webhook.Port()))
	beside.Start(t, "CHANCERY_APPROVER_POLICY_BIN",
		rig.As(w.Admin, "system:serviceaccount:"+w.Namespace+":"+account, "system:serviceaccounts"),
		"--leader-election-namespace", w.Namespace, "--metrics-bind-address", "0",
		"--readiness-probe-bind-address", rig.FreeAddress(t).String(),
		"--webhook-host", webhook.Addr().String(), "--webhook-port", strconv.Itoa(int(webhook.Port())),
		"--webhook-ca-secret-namespace", w.Namespace)
	withCA(t, w)
	return w
}

// withCA makes the issuer "ca", whose key pair an operator has made.
func withCA(t *testing.T, w *rig.World) {
	t.Helper()
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"}, PublicKey: key.Public(),
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(100 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	root, err := pki.Sign(template, template, key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := pki.EncodePKCS8(key)
	if err != nil {
		t.Fatal(err)
	}
	w.Create(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "root"}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: pki.EncodeCertificates(root), corev1.TLSPrivateKeyKey: encoded},
	}, &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "ca"}, Spec: certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "root"}}})
}

// TestApproverPolicy: approver-policy judges requests by the rights of the requester, and the CA injector makes its
// webhook work.
func TestApproverPolicy(t *testing.T) {
	w := newWorld(t)
	beside.AwaitRefusal(t, w.Client, "policy.cert-manager.io", policyWithoutSelector())
	beside.Apply(t, w.Client, "testdata/policies.yaml", w.Namespace, nil)
	t.Run("requests", func(t *testing.T) { judgesRequests(t, w) })
	t.Run("certificates", func(t *testing.T) { judgesCertificates(t, w) })
}

// judgesRequests: Alice, who may use the policy, gets what the policy allows and nothing else. The request of Bob, who
// may not use the policy, is left to others.
func judgesRequests(t *testing.T, w *rig.World) {
	t.Helper()
	asked := map[string]struct {
		by, host string
		duration time.Duration
	}{
		"allowed": {alice, "a.example.com", time.Hour},
		"name":    {alice, "a.example.org", time.Hour},
		"long":    {alice, "a.example.com", 48 * time.Hour},
		"bob":     {bob, "a.example.com", time.Hour},
	}
	for name, x := range asked {
		create(t, w, x.by, request(t, w, name, x.host, x.duration))
	}
	await(t, w, "allowed", certmanagerv1.CertificateRequestConditionApproved, true)
	for _, name := range []string{"name", "long"} {
		await(t, w, name, certmanagerv1.CertificateRequestConditionDenied, false)
	}
	rig.Eventually(t, "the request of Bob is left alone", func(ctx context.Context) string {
		events := &eventsv1.EventList{}
		if err := w.Client.List(ctx, events, client.InNamespace(w.Namespace)); err != nil {
			return err.Error()
		}
		for _, event := range events.Items {
			if event.Regarding.Name == "bob" && event.Reason == "Unprocessed" {
				return ""
			}
		}
		return fmt.Sprintf("%d events, none of them says so", len(events.Items))
	})
	left := &certmanagerv1.CertificateRequest{}
	if err := w.Get(t.Context(), "bob", left); err != nil {
		t.Fatal(err)
	}
	if len(left.Status.Certificate) > 0 || left.Spec.Username != bob {
		t.Errorf("the request of %s: %+v", left.Spec.Username, left.Status)
	}
}

// judgesCertificates: the requester of what a Certificate asks for is the service account of the controllers.
func judgesCertificates(t *testing.T, w *rig.World) {
	t.Helper()
	for name, host := range map[string]string{"good": "www.example.com", "bad": "www.example.org"} {
		w.Create(t, &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certmanagerv1.CertificateSpec{
			SecretName: name, DNSNames: []string{host}, IssuerRef: cmmeta.IssuerReference{Name: "ca"},
			Duration: &metav1.Duration{Duration: 24 * time.Hour}, RenewBefore: &metav1.Duration{Duration: time.Hour},
			PrivateKey: &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm},
		}})
	}
	conditions := func(name string) func(ctx context.Context) []certmanagerv1.CertificateCondition {
		return func(ctx context.Context) []certmanagerv1.CertificateCondition {
			crt := &certmanagerv1.Certificate{}
			if err := w.Get(ctx, name, crt); err != nil {
				t.Fatal(err)
			}
			return crt.Status.Conditions
		}
	}
	rig.Eventually(t, "the Certificate that the policy allows is issued", func(ctx context.Context) string {
		found := conditions("good")(ctx)
		if certmanagerv1.HasCertificateCondition(found, certmanagerv1.CertificateConditionReady, cmmeta.ConditionTrue) {
			return ""
		}
		return fmt.Sprintf("%+v", found)
	})
	rig.Eventually(t, "the other one says why the request is denied", func(ctx context.Context) string {
		found := conditions("bad")(ctx)
		issuing := certmanagerv1.FindCertificateCondition(found, certmanagerv1.CertificateConditionIssuing)
		if issuing != nil && issuing.Status == cmmeta.ConditionFalse && strings.Contains(issuing.Message, "No policy approved this request") {
			return ""
		}
		return fmt.Sprintf("%+v", found)
	})
}

// policyWithoutSelector is a CertificateRequestPolicy that selects no issuer.
func policyWithoutSelector() *unstructured.Unstructured {
	p := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"selector": map[string]any{}}}}
	p.SetGroupVersionKind(schema.GroupVersionKind{Group: "policy.cert-manager.io", Version: "v1alpha1", Kind: "CertificateRequestPolicy"})
	p.SetName("refused")
	return p
}

// create makes an object as a user.
func create(t *testing.T, w *rig.World, user string, object client.Object) {
	t.Helper()
	c, err := client.New(rig.As(w.Admin, user), client.Options{Scheme: w.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), object); err != nil {
		t.Fatalf("%s creates %s: %v", user, object.GetName(), err)
	}
}

// request asks for a host name.
func request(t *testing.T, w *rig.World, name, host string, duration time.Duration) *certmanagerv1.CertificateRequest {
	t.Helper()
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	csr, err := pki.CreateCSR(pki.CSRTemplate{Subject: pkix.Name{CommonName: host}, AltNames: pki.AltNames{DNSNames: []string{host}}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &certmanagerv1.CertificateRequest{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.Namespace}, Spec: certmanagerv1.CertificateRequestSpec{
		Request: csr, Duration: &metav1.Duration{Duration: duration}, IssuerRef: cmmeta.IssuerReference{Name: "ca", Kind: "Issuer", Group: "cert-manager.io"},
		Usages: []certmanagerv1.KeyUsage{certmanagerv1.UsageDigitalSignature, certmanagerv1.UsageKeyEncipherment, certmanagerv1.UsageServerAuth},
	}}
}

// await waits until a request has a condition, and has been signed or has not.
func await(t *testing.T, w *rig.World, name string, condition certmanagerv1.CertificateRequestConditionType, signed bool) {
	t.Helper()
	rig.Eventually(t, fmt.Sprintf("the request %s is %s", name, condition), func(ctx context.Context) string {
		cr := &certmanagerv1.CertificateRequest{}
		if err := w.Get(ctx, name, cr); err != nil {
			return err.Error()
		}
		ready := certmanagerv1.FindCertificateRequestCondition(cr.Status.Conditions, certmanagerv1.CertificateRequestConditionReady)
		switch {
		case !certmanagerv1.HasCertificateRequestCondition(cr.Status.Conditions, condition, cmmeta.ConditionTrue):
		case signed && len(cr.Status.Certificate) > 0:
			return ""
		case !signed && ready != nil && ready.Reason == certmanagerv1.CertificateRequestReasonDenied:
			return ""
		}
		return fmt.Sprintf("%+v", cr.Status.Conditions)
	})
}
