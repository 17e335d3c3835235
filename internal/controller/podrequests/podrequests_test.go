package podrequests

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"chancery.dev/internal/kube/podapi"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/machine/request"
	"chancery.dev/internal/rig/bounds"
)

// TestAnswersAreRemembered: a right is asked for once a minute for each ServiceAccount and signer, and once in five
// seconds if it is refused, however many Pods ask; what is remembered of one account counts for no other one.
func TestAnswersAreRemembered(t *testing.T) {
	t.Parallel()
	now, allowed, broken := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), map[string]bool{"system:serviceaccount:shop:web cert-manager.io/*": true}, false
	asked := 0
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
			asked++
			review := object.(*authorizationv1.SubjectAccessReview)
			review.Status.Allowed = allowed[review.Spec.User+" "+review.Spec.ResourceAttributes.Name]
			if broken {
				return errors.New("away")
			}
			return nil
		},
	}).Build()
	r := newRights(c, func() time.Time { return now })
	ask := func(account, uid string) (may bool, err error) {
		pcr := &certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}}
		pcr.Spec.ServiceAccountName, pcr.Spec.ServiceAccountUID, pcr.Spec.SignerName = account, types.UID(uid), "cert-manager.io/pods"
		for range 50 {
			if may, err = r.may(t.Context(), pcr, request.SignerName{Form: request.FormCSR, Name: "pods"}); err != nil {
				return may, err
			}
		}
		return may, err
	}
	for _, step := range []struct {
		after        time.Duration
		account, uid string
		may          bool
		asked        int
	}{
		{0, "web", "1", true, 2}, {59 * time.Second, "web", "1", true, 0}, {2 * time.Second, "web", "1", true, 2},
		{0, "bank", "1", false, 2}, {4 * time.Second, "bank", "1", false, 0}, {2 * time.Second, "bank", "1", false, 2}, {0, "web", "2", true, 2},
	} {
		now, asked = now.Add(step.after), 0
		if may, err := ask(step.account, step.uid); may != step.may || err != nil || asked != step.asked {
			t.Errorf("%+v: %t %v, asked %d times", step, may, err, asked)
		}
	}
	now, broken = now.Add(time.Hour), true
	if may, err := ask("web", "1"); may || err == nil {
		t.Errorf("an API server that is away: %t %v", may, err)
	}
	broken = false
	bounds.Holds(t, "rights of ServiceAccounts", func(n int) limits.Outcome {
		r := newRights(c, func() time.Time { return now })
		for i := range n {
			r.answers.Add(account{name: strconv.Itoa(i)}, true, granted)
		}
		if len(r.answers.Keys()) == n {
			return limits.Taken
		}
		return limits.Dropped
	})
}

// TestThin: of requests that are finished, or for others, nothing is kept but what says so.
func TestThin(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		signerName, condition string
		kept                  bool
	}{
		"ours": {"cert-manager.io/pods", "", true}, "of others": {"example.com/pods", "", false}, "finished": {"cert-manager.io/pods", "Issued", false},
	} {
		pcr := &certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a", UID: "u", ResourceVersion: "7", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}}}
		pcr.Spec.SignerName, pcr.Spec.StubPKCS10Request, pcr.Status.CertificateChain = c.signerName, []byte("stub"), "chain"
		if c.condition != "" {
			pcr.Status.Conditions = []metav1.Condition{{Type: c.condition, Status: metav1.ConditionTrue}}
		}
		for _, version := range podapi.Versions() {
			got, err := Thin(nil)(podapi.In(version, pcr.DeepCopy()))
			if err != nil || podapi.VersionOf(got) != version {
				t.Fatalf("%T %v", got, err)
			}
			thin := podapi.ToV1(got).(*certificatesv1.PodCertificateRequest)
			if kept := len(thin.Spec.StubPKCS10Request)+len(thin.Status.CertificateChain) > 0; kept != c.kept || thin.UID != "u" || thin.ResourceVersion != "7" || finished(thin) != (c.condition != "") || len(thin.ManagedFields) > 0 {
				t.Errorf("%s: %+v", name, thin)
			}
		}
	}
	if got, err := Thin(func(any) (any, error) { return "other", nil })(&certificatesv1.CertificateSigningRequest{}); got != "other" || err != nil {
		t.Errorf("another kind: %v %v", got, err)
	}
}
