package api_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"maps"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
)

// signingRequest makes a CertificateSigningRequest, and approves it where asked.
func signingRequest(t *testing.T, d dynamic.Interface, signer string, annotations map[string]string, approved bool) *unstructured.Unstructured {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "web"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"request": base64.StdEncoding.EncodeToString(text), "signerName": signer, "usages": strs("digital signature", "client auth"),
	}}}
	o.SetGroupVersionKind(certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"))
	o.SetGenerateName("approved-")
	o.SetAnnotations(annotations)
	csrs := d.Resource(certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests"))
	if o, err = csrs.Create(t.Context(), o, metav1.CreateOptions{}); err != nil || !approved {
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	o.Object["status"] = conditions(map[string]any{"type": "Approved", "status": "True", "reason": "Test", "message": "test"})
	if o, err = csrs.Update(t.Context(), o, metav1.UpdateOptions{}, "approval"); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestApprovedSigningRequestsKeepTheirAnnotations: what somebody has approved is what is signed, by whichever of its
// subresources a CertificateSigningRequest is written.
func TestApprovedSigningRequestsKeepTheirAnnotations(t *testing.T) {
	admin := client(t)
	csrs := certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests")
	before := map[string]string{
		certmanagerv1.CSRDurationAnnotation: "1h", certmanagerv1.CSRIsCAAnnotation: "false", certmanagerv1.CSRPrivateKeyAnnotation: "mine",
		certmanagerv1.PrivateKeySecretNameAnnotation: "mine", certmanagerv1.CSRVenafiCustomFieldsAnnotation: "[]",
		certmanagerv1.VenafiCustomFieldsAnnotation: "[]", acmev1.ProfileAnnotation: "short", "example.com/x": "y",
	}
	const ours, fixed = "clusterissuers.cert-manager.io/ca", " cannot be added, changed or removed once the CertificateSigningRequest is approved"
	try := func(as dynamic.Interface, o *unstructured.Unstructured, key, value, want string, subresources ...string) {
		t.Helper()
		changed := maps.Clone(o.GetAnnotations())
		if changed == nil {
			changed = map[string]string{}
		}
		if changed[key] = value; value == "" {
			delete(changed, key)
		}
		said := ""
		eventually(t, fmt.Sprintf("%s=%q by %q: %q", key, value, subresources, want), func(ctx context.Context) bool {
			live, err := admin.Resource(csrs).Get(ctx, o.GetName(), metav1.GetOptions{})
			if err != nil {
				return false
			}
			live.SetAnnotations(changed)
			_, err = as.Resource(csrs).Update(ctx, live, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}, subresources...)
			said = fmt.Sprint(err)
			return err == nil && want == "" || want != "" && strings.Contains(said, want)
		})
	}
	for _, signer := range []string{"cert-manager.io/ca", "issuers.cert-manager.io/default.ca", ours} {
		approved := signingRequest(t, admin, signer, before, true)
		for key := range before {
			want := "metadata.annotations: " + key + fixed
			if key == "example.com/x" {
				want = ""
			}
			for _, value := range []string{"other", ""} {
				for _, subresource := range [][]string{nil, {"status"}, {"approval"}} {
					try(admin, approved, key, value, want, subresource...)
				}
			}
		}
	}
	bare := signingRequest(t, admin, ours, nil, true)
	try(admin, bare, certmanagerv1.CSRIsCAAnnotation, "true", "metadata.annotations: "+certmanagerv1.CSRIsCAAnnotation+fixed)
	try(admin, signingRequest(t, admin, ours, before, false), certmanagerv1.CSRIsCAAnnotation, "true", "")
	try(admin, signingRequest(t, admin, "example.com/signer", before, true), certmanagerv1.CSRIsCAAnnotation, "true", "")

	// The controller stores which order of the CA is the request's.
	writes := rbacv1.PolicyRule{APIGroups: []string{certificatesv1.GroupName}, Resources: []string{"certificatesigningrequests"}, Verbs: []string{"update"}}
	signs := rbacv1.PolicyRule{APIGroups: []string{certificatesv1.GroupName}, Resources: []string{"signers"}, Verbs: []string{"sign"}, ResourceNames: []string{"clusterissuers.cert-manager.io/*"}}
	grant(t, admin, "csr-writer", "csr-writer", writes)
	grant(t, admin, "csr-signer", "csr-signer", writes, signs)
	try(clientAs(t, "csr-signer"), bare, certmanagerv1.CSRVenafiPickupIDAnnotation, "1", "")
	try(clientAs(t, "csr-signer"), bare, certmanagerv1.CSRIsCAAnnotation, "true", fixed)
	try(clientAs(t, "csr-writer"), bare, certmanagerv1.CSRVenafiPickupIDAnnotation, "1", `user "csr-writer" may not set `+certmanagerv1.CSRVenafiPickupIDAnnotation)
}
