package chart_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/e2e/beside"
	"chancery.dev/e2e/kubelet"
	"chancery.dev/internal/rig"
)

// TestWebhookPods: on Kubernetes before 1.36 the pods of the webhook fill in who makes a CertificateRequest. The
// release may have any name, and its configuration has a name of its own.
func TestWebhookPods(t *testing.T) {
	rc := rig.BareCluster(t, "--kube-apiserver-arg=--emulated-version=1.34")
	kubelet.Start(t, rc, map[string]string{"localhost/chancery:latest": os.Getenv("CHANCERY_BIN")})
	admin := typed(t, rc)
	beside.ApplyServerSide(t, admin, namespaceOf("certs"))
	rendered, errors := beside.Helm(t, "", "template", "prod", chartDir, "--namespace", "certs", "--kube-version", "1.33", "--values", valuesFile(t, map[string]any{
		"crds": map[string]any{"enabled": true}, "cainjector": map[string]any{"enabled": false}, "webhook": map[string]any{"replicaCount": 2},
		"chancery": map[string]any{"responder": map[string]any{"enabled": false}, "webhook": map[string]any{"failurePolicy": "Fail"}},
	}))
	if errors != "" {
		t.Fatal(errors)
	}
	for _, object := range beside.Objects(t, rendered) {
		beside.ApplyServerSide(t, admin, object)
	}
	rig.Eventually(t, "the check of the API, which needs the webhook, passes", func(ctx context.Context) string {
		job := &batchv1.Job{}
		if err := admin.Get(ctx, client.ObjectKey{Namespace: "certs", Name: "prod-cert-manager-startupapicheck"}, job); err != nil || job.Status.Succeeded == 0 {
			return fmt.Sprint(job.Status, err)
		}
		return ""
	})
	c := typed(t, rig.As(rc, "ann", "system:masters"))
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: []string{"www.example.com"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	request := &certmanagerv1.CertificateRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "www"},
		Spec: certmanagerv1.CertificateRequestSpec{
			IssuerRef: cmmeta.IssuerReference{Name: "none"}, Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr}),
		},
	}
	if err := c.Create(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if got := request.Spec; got.Username != "ann" || !slices.Contains(got.Groups, "system:masters") {
		t.Errorf("the request was made by %q of %v", got.Username, got.Groups)
	}
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfigurationList"}}
	if err := c.List(t.Context(), list); err != nil || len(list.Items) != 1 || list.Items[0].GetName() != "prod-cert-manager-webhook" {
		t.Errorf("the webhook configurations are %v, %v", list.Items, err)
	}
}

// TestNamespacesLater: a release for the whole cluster becomes one for some namespaces, and again one for the whole
// cluster. The table of external issuers stays as the controller has filled it in.
func TestNamespacesLater(t *testing.T) {
	rc := rig.BareCluster(t)
	c := typed(t, rc)
	beside.ApplyServerSide(t, c, namespaceOf(release))
	upgrade := func(namespaces ...string) {
		t.Helper()
		mustHelm(t, rc, "upgrade", "--install", release, chartDir, "--namespace", release, "--no-hooks", "--values", valuesFile(t, map[string]any{
			"crds": map[string]any{"enabled": true}, "chancery": map[string]any{"namespaces": namespaces},
		}))
	}
	upgrade()
	table := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"Issuer.example.com": "issuers namespaced"}}}
	table.SetNamespace(release)
	table.SetName("chancery-external-issuers")
	if err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(table), client.ForceOwnership, client.FieldOwner("chancery-kinds")); err != nil {
		t.Fatal(err)
	}
	for _, namespaces := range [][]string{{release, "default"}, {}} {
		upgrade(namespaces...)
		rig.Eventually(t, "the table is as it was", func(ctx context.Context) string {
			now := &corev1.ConfigMap{}
			if err := c.Get(ctx, client.ObjectKeyFromObject(table), now); err != nil {
				return err.Error()
			}
			if now.Data["Issuer.example.com"] == "" {
				t.Errorf("with the namespaces %v, the table has lost its entries: %v", namespaces, now.Data)
			}
			return ""
		})
	}
}
