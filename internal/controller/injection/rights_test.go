package injection_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/app"
	"chancery.dev/internal/rig"
)

// TestInjectorRights: nobody may write webhook configurations until chancery install is told which process injects, and
// then only that one. With these rights it leads and injects.
func TestInjectorRights(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	const alone = "system:serviceaccount:cert-manager:cert-manager-cainjector"
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "chancery-cainjector"}}
	t.Cleanup(func() { _ = w.Client.Delete(context.Background(), binding) })
	may := func(user string, want bool) {
		t.Helper()
		rig.Eventually(t, fmt.Sprintf("%s may write webhook configurations: %t", user, want), func(ctx context.Context) string {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations", Verb: "patch",
			}}}
			if err := w.Client.Create(ctx, review); err != nil || review.Status.Allowed != want {
				return fmt.Sprint(err, review.Status)
			}
			return ""
		})
	}
	install := func(by app.Injecting) {
		t.Helper()
		if err := app.InstallInjector(t.Context(), w.Admin, by, func(string) {}); err != nil {
			t.Fatal(err)
		}
	}
	install(app.InjectingNone)
	may(rig.Controller, false)
	may(alone, false)
	install(app.InjectingController)
	may(rig.Controller, true)
	may(alone, false)
	install(app.InjectingOwn)
	may(rig.Controller, false)
	may(alone, true)

	cfg := config(w)
	cfg.LeaderElect = true
	injectAs(t, w, cfg, rig.As(w.Admin, alone))
	i, ca := injectables()[0], newCA(t, "ca", time.Hour)
	w.Create(t, secretWith("ca", ca))
	u := i.new(t, w, certmanagerv1.InjectCAFromSecretAnnotation+": "+w.Namespace+"/ca")
	create(t, w, u)
	i.await(t, w, u, ca)
}
