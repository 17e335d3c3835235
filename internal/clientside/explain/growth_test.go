package explain

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig/growth"
)

// TestExplanationsCostNoSquare explains each of many Certificates that name one Secret. There is no bound on how many
// a tenant makes.
func TestExplanationsCostNoSquare(t *testing.T) {
	growth.Linear(t, 4000, func(size int) func() {
		var objects []metav1.Object
		for i := range size {
			crt := unready(certmanagerv1.CertificateReasonIncorrectCertificate, cmmeta.ConditionFalse)
			crt.Name, crt.Spec.SecretName = fmt.Sprintf("web-%d", i), "shared"
			objects = append(objects, crt)
		}
		return func() {
			w := NewCluster(objects, nil, now)
			for _, o := range objects {
				w.Certificate(o.(*certmanagerv1.Certificate))
			}
		}
	})
}
