package rig

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"chancery.dev/internal/install"
)

// Allow gives rights in the whole cluster, by a role with a name of this world.
func (w *World) Allow(t testing.TB, role string, to rbacv1.Subject, rules ...rbacv1.PolicyRule) {
	t.Helper()
	name := metav1.ObjectMeta{Name: w.ClusterName(role)}
	w.Create(t, &rbacv1.ClusterRole{ObjectMeta: name, Rules: rules}, &rbacv1.ClusterRoleBinding{
		ObjectMeta: name, Subjects: []rbacv1.Subject{to}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name.Name},
	})
}

// Install applies an installation, whoever manages what is there.
func (w *World) Install(t testing.TB, i install.Installation) {
	t.Helper()
	i.ForceConflicts = true
	if err := i.Apply(t.Context(), w.Admin, func(string) {}); err != nil {
		t.Fatal(err)
	}
}

// ToController is who runs the controllers of worlds.
func ToController() rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: Controller}
}
