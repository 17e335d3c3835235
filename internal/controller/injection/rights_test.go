package injection_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/install"
	"chancery.dev/internal/rig"
)

// TestInjectorRights: nobody may write webhook configurations until chancery install is told which process injects, and
// then only that one. With these rights it leads, injects, and serves metrics with a certificate of its own.
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
	injects := func(by install.Injecting) {
		t.Helper()
		i := install.DefaultInstallation()
		i.Injecting = by
		w.Install(t, i)
	}
	injects(install.InjectingNone)
	may(rig.Controller, false)
	may(alone, false)
	injects(install.InjectingController)
	may(rig.Controller, true)
	may(alone, false)
	injects(install.InjectingOwn)
	may(rig.Controller, false)
	may(alone, true)

	cfg := config(w)
	cfg.LeaderElect = true
	metrics := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "cert-manager", Name: "cert-manager-metrics-ca"}}
	w.Create(t, metrics)
	t.Cleanup(func() { _ = w.Client.Delete(context.Background(), metrics) })
	cfg.MetricsAddress = rig.FreeAddress(t).String()
	cfg.MetricsTLS.Dynamic.SecretNamespace, cfg.MetricsTLS.Dynamic.SecretName = metrics.Namespace, metrics.Name
	cfg.MetricsTLS.Dynamic.DNSNames = []string{"cainjector.example.com"}
	injectAs(t, w, cfg, rig.As(w.Admin, alone))
	i, ca := injectables()[0], newCA(t, "ca", time.Hour)
	w.Create(t, secretWith("ca", ca))
	u := i.new(t, w, certmanagerv1.InjectCAFromSecretAnnotation+": "+w.Namespace+"/ca")
	create(t, w, u)
	i.await(t, w, u, ca)
	rig.Eventually(t, "metrics are served", func(ctx context.Context) string {
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(metrics), metrics); err != nil {
			return err.Error()
		}
		text, _, err := rig.Metrics(ctx, cfg.MetricsAddress, "text/plain", "cainjector.example.com", metrics.Data["ca.crt"])
		if err != nil || !strings.Contains(text, `controller_runtime_reconcile_total{controller="cainjector-validatingwebhookconfiguration"`) ||
			!strings.Contains(text, `chancery_ca_injections_total{kind="ValidatingWebhookConfiguration"} `) {
			return fmt.Sprint(err, text)
		}
		return ""
	})
}
