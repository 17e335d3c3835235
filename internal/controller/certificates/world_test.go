package certificates_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig"
)

// certificate returns a Certificate with a small key by a ClusterIssuer of the world.
func newCertificate(w *rig.World, name, issuer string) *certmanagerv1.Certificate {
	return &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certmanagerv1.CertificateSpec{
		SecretName: name, DNSNames: []string{name + ".example.com"},
		PrivateKey: &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm},
		IssuerRef:  cmmeta.IssuerReference{Name: w.ClusterName(issuer), Kind: cmmeta.ClusterIssuerKind},
	}}
}

// withCA adds a self-signed root and a ClusterIssuer "ca" that signs with it.
func withCA(t *testing.T, w *rig.World) {
	t.Helper()
	root := newCertificate(w, "root", "selfsigned")
	root.Spec.IsCA, root.Spec.CommonName = true, "test root"
	w.Create(t, &certmanagerv1.ClusterIssuer{
		ObjectMeta: metav1.ObjectMeta{Name: w.ClusterName("selfsigned")}, Spec: certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}},
	}, root, &certmanagerv1.ClusterIssuer{
		ObjectMeta: metav1.ObjectMeta{Name: w.ClusterName("ca")}, Spec: certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "root"}},
	})
}

func awaitReady(t *testing.T, w *rig.World, name string) *certmanagerv1.Certificate {
	t.Helper()
	crt := &certmanagerv1.Certificate{}
	rig.Eventually(t, "Certificate "+name+" is ready and settled", func(ctx context.Context) string {
		if err := w.Get(ctx, name, crt); err != nil {
			return err.Error()
		}
		if !certmanagerv1.HasCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionReady, cmmeta.ConditionTrue) ||
			certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionIssuing) != nil {
			return fmt.Sprintf("%+v", crt.Status.Conditions)
		}
		return ""
	})
	return crt
}

func secretOf(t *testing.T, w *rig.World, name string) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{}
	if err := w.Get(t.Context(), name, secret); err != nil {
		t.Fatal(err)
	}
	return secret
}

// amend changes an object as a user does.
func amend[T client.Object](t *testing.T, w *rig.World, o T, change func(T)) {
	t.Helper()
	before, ok := o.DeepCopyObject().(T)
	if !ok {
		t.Fatalf("a copy of %T is none", o)
	}
	change(o)
	if err := w.Client.Patch(t.Context(), o, client.MergeFrom(before), client.FieldOwner("user")); err != nil {
		t.Fatal(err)
	}
}

// nextKeys names a next-private-key Secret of the world; empty if there is none.
func nextKeys(ctx context.Context, w *rig.World) string {
	keys := &corev1.SecretList{}
	if err := w.Client.List(ctx, keys, client.InNamespace(w.Namespace), client.HasLabels{certmanagerv1.NextPrivateKeyLabel}); err != nil {
		return err.Error()
	}
	for _, key := range keys.Items {
		return key.Name
	}
	return ""
}
