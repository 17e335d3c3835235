package controller_test

import (
	"testing"

	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/controller"
)

// TestReach: one answer to whose an issuer is, by group, kind and scope.
func TestReach(t *testing.T) {
	t.Parallel()
	one := controller.Scope{ClusterObject: func(name string) bool { return name == "mine" }}
	namespaced := controller.Scope{Namespaces: []string{"shop"}, NamespacedOnly: true}
	for _, test := range []struct {
		scope             controller.Scope
		group, kind, name string
		want              controller.Reach
	}{
		{controller.Scope{}, "", "", "ca", controller.WithinReach},
		{controller.Scope{}, "cert-manager.io", "Issuer", "ca", controller.WithinReach},
		{controller.Scope{}, "", "ClusterIssuer", "ca", controller.WithinReach},
		{controller.Scope{}, "example.com", "Issuer", "ca", controller.OfOthers},
		{controller.Scope{}, "example.com", "ClusterIssuer", "ca", controller.OfOthers},
		{one, "", "ClusterIssuer", "mine", controller.WithinReach},
		{one, "", "ClusterIssuer", "yours", controller.OutOfScope},
		{one, "", "Issuer", "yours", controller.WithinReach},
		{one, "example.com", "ClusterIssuer", "mine", controller.OfOthers},
		{namespaced, "", "Issuer", "ca", controller.WithinReach},
		{namespaced, "", "ClusterIssuer", "ca", controller.Unreadable},
		{namespaced, "example.com", "ClusterIssuer", "ca", controller.OfOthers},
	} {
		ref := cmmeta.IssuerReference{Group: test.group, Kind: test.kind, Name: test.name}
		if got := test.scope.Reach(ref); got != test.want {
			t.Errorf("%+v in %+v: %q, want %q", ref, test.scope, got, test.want)
		}
	}
}
