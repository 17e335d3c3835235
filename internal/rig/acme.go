package rig

import (
	"context"
	"fmt"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/pki"
)

// NothingLeft waits until no Challenge of the world is left, and no record: dnsserver.Server.TXT lists those.
func (w *World) NothingLeft(t testing.TB, records func() []string) {
	t.Helper()
	Eventually(t, "everything is cleaned up", func(ctx context.Context) string {
		challenges := &acmev1.ChallengeList{}
		if err := w.Client.List(ctx, challenges, client.InNamespace(w.Namespace)); err != nil {
			return err.Error()
		}
		if left := records(); len(challenges.Items) > 0 || len(left) > 0 {
			return fmt.Sprintf("%d Challenges, records %v", len(challenges.Items), left)
		}
		return ""
	})
}

// SigningRequest returns a CertificateSigningRequest of the world's, for a server, that names a signer.
func (w *World) SigningRequest(t testing.TB, name, signerName string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	request, err := pki.CreateCSR(pki.CSRTemplate{AltNames: pki.AltNames{DNSNames: []string{"csr.example.com"}}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: w.ClusterName(name)},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: request, SignerName: signerName,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		},
	}
}
