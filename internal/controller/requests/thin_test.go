package requests

import (
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestForeignRequestsAreNotKept: of a CertificateSigningRequest for a signer of somebody else, the cache keeps the name
// and the signer: labels may have a megabyte.
func TestForeignRequestsAreNotKept(t *testing.T) {
	thin := Thin(func(any) (any, error) { return "another kind", nil })
	for signer, ours := range map[string]bool{"example.com/x": false, "kubernetes.io/kubelet-serving": false, "clusterissuers.cert-manager.io/ca": true} {
		csr := &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "1", ResourceVersion: "2", Labels: map[string]string{"a": strings.Repeat("x", 1<<20)}},
			Spec:       certificatesv1.CertificateSigningRequestSpec{SignerName: signer, Request: []byte("request")},
		}
		kept, err := thin(csr)
		if err != nil {
			t.Fatal(err)
		}
		got := kept.(*certificatesv1.CertificateSigningRequest)
		if got.Name != "r" || got.UID != "1" || got.ResourceVersion != "2" || got.Spec.SignerName != signer {
			t.Errorf("%s: %s %s %s %s", signer, got.Name, got.UID, got.ResourceVersion, got.Spec.SignerName)
		}
		if whole := len(got.Labels) == 1 && len(got.Spec.Request) > 0; whole != ours || !ours && len(got.Labels)+len(got.Spec.Request) > 0 {
			t.Errorf("%s: %d labels, a request of %d bytes", signer, len(got.Labels), len(got.Spec.Request))
		}
	}
	if kept, err := thin(&corev1.ConfigMap{}); err != nil || kept != "another kind" {
		t.Errorf("%v, %v", kept, err)
	}
}
