package chart_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/api"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/e2e/kubelet"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/netns"
)

func TestMain(m *testing.M) { os.Exit(netns.Run(m)) }

// typed returns a client that knows all kinds.
func typed(t *testing.T, rc *rest.Config) client.Client {
	t.Helper()
	scheme, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(appsv1.AddToScheme(scheme), batchv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(rc, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// awaitDeployments waits until all Deployments of a namespace are available.
func awaitDeployments(t *testing.T, c client.Client, namespace string) {
	t.Helper()
	rig.Eventually(t, "all Deployments are available", func(ctx context.Context) string {
		list := &appsv1.DeploymentList{}
		if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return err.Error()
		}
		for _, d := range list.Items {
			if d.Status.ObservedGeneration != d.Generation || d.Status.AvailableReplicas != *d.Spec.Replicas {
				return fmt.Sprintf("%s: %d of %d", d.Name, d.Status.AvailableReplicas, *d.Spec.Replicas)
			}
		}
		if len(list.Items) < 4 {
			return fmt.Sprint(len(list.Items), " Deployments")
		}
		return ""
	})
}

// TestStranger: somebody installs the chart with values of his own. The pods run with what the chart gives them and
// nothing else, helm's check of the API passes, and an annotated Ingress gets a certificate of a CA.
func TestStranger(t *testing.T) {
	rc := rig.BareCluster(t)
	kubelet.Start(t, rc, map[string]string{
		"localhost/chancery:latest": os.Getenv("CHANCERY_BIN"), "localhost/chancery-dns:latest": os.Getenv("CHANCERY_DNS_BIN"),
	})
	mustHelm(t, rc, "install", release, chartDir, "--namespace", release, "--create-namespace", "--timeout", "3m", "--values", valuesFile(t, map[string]any{
		"crds": map[string]any{"enabled": true}, "replicaCount": 2, "chancery": map[string]any{"dns": map[string]any{"enabled": true}},
		"ingressShim": map[string]any{"defaultIssuerName": "ca", "defaultIssuerKind": "ClusterIssuer"},
	}))
	c := typed(t, rc)
	awaitDeployments(t, c, release)

	authority := &certmanagerv1.Certificate{
		ObjectMeta: metav1.ObjectMeta{Namespace: release, Name: "ca"},
		Spec: certmanagerv1.CertificateSpec{
			SecretName: "ca", CommonName: "a CA", IsCA: true,
			IssuerRef: cmmeta.IssuerReference{Name: "selfsigned", Kind: "ClusterIssuer"},
		},
	}
	for _, object := range []client.Object{
		&certmanagerv1.ClusterIssuer{
			ObjectMeta: metav1.ObjectMeta{Name: "selfsigned"},
			Spec:       certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}},
		},
		authority,
		&certmanagerv1.ClusterIssuer{
			ObjectMeta: metav1.ObjectMeta{Name: "ca"}, Spec: certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "ca"}},
		},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
		&networkingv1.Ingress{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "www", Annotations: map[string]string{"kubernetes.io/tls-acme": "true"}},
			Spec: networkingv1.IngressSpec{
				DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
					Name: "www", Port: networkingv1.ServiceBackendPort{Number: 80},
				}},
				TLS: []networkingv1.IngressTLS{{Hosts: []string{"www.example.com"}, SecretName: "www-tls"}},
			},
		},
	} {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	secret := &corev1.Secret{}
	rig.Eventually(t, "the Ingress has a certificate", func(ctx context.Context) string {
		if err := c.Get(ctx, client.ObjectKey{Namespace: "shop", Name: "www-tls"}, secret); err != nil {
			return err.Error()
		}
		return ""
	})
	block, _ := pem.Decode(secret.Data["tls.crt"])
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(secret.Data["ca.crt"])
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "www.example.com"}); err != nil {
		t.Error(err)
	}
}
