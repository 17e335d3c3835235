package trustbundles

import (
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/kube/podapi"
)

// TestForeignBundlesAreNotKept: of the bundles of somebody else, nothing is kept but who they are.
func TestForeignBundlesAreNotKept(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		bundle, label string
		kept          bool
	}{
		"ours": {"cert-manager.io:pods:chancery", "true", true}, "without our label": {"cert-manager.io:pods:chancery", "", false},
		"by another name": {"cert-manager.io:pods:mine", "true", false}, "of another signer": {"example.com:pods:chancery", "true", false},
	} {
		b := &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{
			Name: c.bundle, UID: "u", ResourceVersion: "7", Labels: map[string]string{certmanagerv1.TrustBundleLabel: c.label},
		}}
		b.Spec.SignerName, b.Spec.TrustBundle = "cert-manager.io/pods", "roots"
		for _, version := range podapi.Versions() {
			got, err := Thin(nil)(podapi.In(version, b.DeepCopy()))
			if err != nil || podapi.VersionOf(got) != version {
				t.Fatalf("%T %v", got, err)
			}
			thin := podapi.ToV1(got).(*certificatesv1.ClusterTrustBundle)
			if kept := thin.Spec.TrustBundle != "" && len(thin.Labels) > 0; kept != c.kept || thin.Name != c.bundle || thin.UID != "u" || thin.ResourceVersion != "7" {
				t.Errorf("%s: %+v", name, thin)
			}
		}
	}
	if got, err := Thin(func(any) (any, error) { return "other", nil })(&certificatesv1.CertificateSigningRequest{}); got != "other" || err != nil {
		t.Errorf("another kind: %v %v", got, err)
	}
}
