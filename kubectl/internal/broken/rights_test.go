package broken_test

import (
	"context"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/rig"
)

// controllers gives the controllers of the stage a user with the rights of Chancery's, but for the right to write
// Secrets: mayWrite gives that in one namespace.
func (w *stage) controllers(t *testing.T) *rest.Config {
	t.Helper()
	w.user = "controller-of-" + w.Namespace
	role, own := &rbacv1.ClusterRole{}, &rbacv1.Role{}
	for key, o := range map[client.ObjectKey]client.Object{{Name: "chancery-controller"}: role, {Namespace: "cert-manager", Name: "chancery-controller"}: own} {
		if err := w.Client.Get(t.Context(), key, o); err != nil {
			t.Fatal(err)
		}
	}
	var rules []rbacv1.PolicyRule
	for _, rule := range role.Rules {
		if slices.Contains(rule.Resources, "secrets") {
			read := *rule.DeepCopy()
			read.Resources, read.Verbs = []string{"secrets"}, []string{"get", "list", "watch"}
			rules = append(rules, read)
			rule.Resources = slices.DeleteFunc(slices.Clone(rule.Resources), func(r string) bool { return r == "secrets" })
		}
		rules = append(rules, rule)
	}
	name, to := w.ClusterName("controllers"), []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: w.user}}
	all := []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: named(name), Rules: rules},
		&rbacv1.ClusterRoleBinding{ObjectMeta: named(name), Subjects: to, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: own.Namespace, Name: name}, Subjects: to,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: own.Name},
		},
	}
	w.Create(t, all...)
	t.Cleanup(func() {
		for _, o := range all {
			_ = w.Client.Delete(context.Background(), o)
		}
	})
	return rig.As(w.Admin, w.user, "system:serviceaccounts", "system:serviceaccounts:cert-manager")
}

// mayWrite lets the controllers write Secrets of a namespace.
func (w *stage) mayWrite(t *testing.T, namespace string) {
	t.Helper()
	const name = "controllers-write-secrets"
	at := metav1.ObjectMeta{Namespace: namespace, Name: name}
	w.Create(t, &rbacv1.Role{ObjectMeta: at, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create", "patch", "delete"}}}},
		&rbacv1.RoleBinding{
			ObjectMeta: at, Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: w.user}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		})
}
