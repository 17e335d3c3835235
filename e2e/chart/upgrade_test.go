package chart_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/api"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/e2e/beside"
	"chancery.dev/e2e/kubelet"
	"chancery.dev/internal/rig"
)

// TestUpgrade: helm upgrades a release of cert-manager's chart to this one, with the values that it has, and rolls it
// back. Issuers, Certificates and Secrets stay the same objects all the time, and are looked after in between.
func TestUpgrade(t *testing.T) {
	rc := rig.BareCluster(t)
	kubelet.Start(t, rc, map[string]string{"localhost/chancery:latest": os.Getenv("CHANCERY_BIN")})
	mustHelm(t, rc, "install", release, "testdata/original", "--namespace", release, "--create-namespace")
	c := typed(t, rc)
	users := []string{
		`{"apiVersion": "cert-manager.io/v1", "kind": "ClusterIssuer", "metadata": {"name": "selfsigned"}, "spec": {"selfSigned": {}}}`,
		`{"apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": {"name": "www", "namespace": "default"}, "spec": {"secretName": "www",
			"dnsNames": ["www.example.com"], "issuerRef": {"name": "selfsigned", "kind": "ClusterIssuer"}}}`,
		`{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "account", "namespace": "cert-manager"}, "data": {"tls.key": "a2V5"}}`,
	}
	before := map[string]*unstructured.Unstructured{}
	for _, text := range users {
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON([]byte(text)); err != nil {
			t.Fatal(err)
		}
		beside.ApplyServerSide(t, c, object)
		before[text] = object
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			t.Fatal(err)
		}
	}
	same := func(when string) {
		t.Helper()
		for _, object := range before {
			now := object.DeepCopy()
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), now); err != nil || now.GetUID() != object.GetUID() || now.GetDeletionTimestamp() != nil {
				t.Errorf("%s, %s %s: %v, UID %s instead of %s", when, object.GetKind(), object.GetName(), err, now.GetUID(), object.GetUID())
			}
		}
	}
	controller := func() string {
		t.Helper()
		d := &appsv1.Deployment{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: release, Name: release}, d); err != nil {
			t.Fatal(err)
		}
		container := d.Spec.Template.Spec.Containers[0]
		return fmt.Sprint(container.Image, " ", strings.Join(container.Args, " "))
	}
	webhooks := func() (left int) {
		t.Helper()
		for _, kind := range []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"} {
			list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind + "List"}}
			if err := c.List(t.Context(), list); err != nil {
				t.Fatal(err)
			}
			left += len(list.Items)
		}
		return left
	}

	mustHelm(t, rc, "upgrade", release, chartDir, "--namespace", release, "--reset-then-reuse-values", "--set", "crds.enabled=true")
	same("after the upgrade")
	if got := controller(); !strings.HasPrefix(got, "localhost/chancery:latest controller --v=2 ") {
		t.Errorf("after the upgrade the controller is %s", got)
	}
	if left := webhooks(); left != 0 {
		t.Errorf("after the upgrade, %d webhook configurations of cert-manager are left: nobody answers", left)
	}
	awaitDeployments(t, c, release)
	rig.Eventually(t, "the Certificate is issued", func(ctx context.Context) string {
		if err := c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "www"}, &corev1.Secret{}); err != nil {
			return err.Error()
		}
		return ""
	})

	mustHelm(t, rc, "rollback", release, "1", "--namespace", release)
	same("after the rollback")
	if got := controller(); !strings.HasPrefix(got, "quay.io/jetstack/cert-manager-controller:v1.21.0 ") || strings.Contains(got, " controller ") {
		t.Errorf("after the rollback the controller is %s", got)
	}
	if left := webhooks(); left != 2 {
		t.Errorf("after the rollback there are %d webhook configurations", left)
	}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "www"}, &corev1.Secret{}); err != nil {
		t.Errorf("the Secret that was issued in between: %v", err)
	}
	policies := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyList"}}
	if err := c.List(t.Context(), policies); err != nil || len(policies.Items) != 1 || policies.Items[0].GetName() != api.KeptPolicyName {
		t.Errorf("after the rollback there are the admission policies %v, %v: cert-manager's controller has not the rights for others than %s",
			policies.Items, err, api.KeptPolicyName)
	}
	if err := c.List(t.Context(), &certmanagerv1.CertificateList{}); err != nil {
		t.Error(err)
	}

	mustHelm(t, rc, "upgrade", release, chartDir, "--namespace", release, "--reset-then-reuse-values", "--set", "crds.enabled=true")
	rig.Eventually(t, "Certificates are admitted after a second upgrade", func(ctx context.Context) string {
		crt := &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "again-"}, Spec: certmanagerv1.CertificateSpec{
			SecretName: "again", DNSNames: []string{"www.example.com"}, IssuerRef: cmmeta.IssuerReference{Name: "again"},
		}}
		if err := c.Create(ctx, crt, client.DryRunAll); err != nil {
			return err.Error()
		}
		return ""
	})
}
