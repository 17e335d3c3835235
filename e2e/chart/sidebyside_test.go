package chart_test

import (
	"context"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/e2e/beside"
	"chancery.dev/e2e/kubelet"
	"chancery.dev/internal/rig"
)

// TestSideBySide: two releases, each for namespaces of its own, issue certificates there and nowhere else. In the
// cluster they have two verbs that let nobody read or write.
func TestSideBySide(t *testing.T) {
	rc := rig.OwnCluster(t)
	kubelet.Start(t, rc, map[string]string{"localhost/chancery:latest": os.Getenv("CHANCERY_BIN")})
	c := typed(t, rc)
	homes := map[string][]string{"team-a": {"team-a"}, "team-b": {"team-b", "shop-b"}}
	for _, namespace := range []string{"team-a", "team-b", "shop-b", "elsewhere"} {
		beside.ApplyServerSide(t, c, namespaceOf(namespace))
		for _, object := range []client.Object{
			&certmanagerv1.Issuer{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "selfsigned"},
				Spec:       certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}},
			},
			&certmanagerv1.Certificate{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "www"},
				Spec: certmanagerv1.CertificateSpec{
					SecretName: "www", DNSNames: []string{"www.example.com"}, IssuerRef: cmmeta.IssuerReference{Name: "selfsigned"},
				},
			},
		} {
			if err := c.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
		}
	}
	for home, namespaces := range homes {
		mustHelm(t, rc, "install", home, chartDir, "--namespace", home, "--timeout", "3m", "--values", valuesFile(t, map[string]any{
			"chancery": map[string]any{
				"namespaces": namespaces, "admissionPolicies": map[string]any{"enabled": false}, "responder": map[string]any{"replicaCount": 1},
			},
		}))
		roles := &rbacv1.ClusterRoleList{}
		if err := c.List(t.Context(), roles, client.MatchingLabels{"app.kubernetes.io/instance": home}); err != nil {
			t.Fatal(err)
		}
		for _, role := range roles.Items {
			for _, rule := range role.Rules {
				if verb := rule.Verbs[0]; len(rule.Verbs) != 1 || verb != "approve" && verb != "issue" {
					t.Errorf("in the whole cluster %s may %v %v", home, rule.Verbs, rule.Resources)
				}
			}
		}
		for _, namespace := range namespaces {
			rig.Eventually(t, "the Certificate in "+namespace+" is issued", func(ctx context.Context) string {
				if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "www"}, &corev1.Secret{}); err != nil {
					return err.Error()
				}
				return ""
			})
		}
	}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "elsewhere", Name: "www"}, &corev1.Secret{}); err == nil {
		t.Error("a Certificate is issued in a namespace that belongs to neither release")
	}
}
