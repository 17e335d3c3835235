package takeover

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/rig/slow"
)

// savedAs is a Secret like those of apply, which names one object and holds another.
func savedAs(t *testing.T, name, of string, holds client.Object) *corev1.Secret {
	t.Helper()
	body := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": holds.GetName()}}}
	body.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"))
	text, err := packed(body)
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: objectMeta(home, name), Data: map[string][]byte{savedKey: text}}
	secret.Labels, secret.Annotations = map[string]string{savedLabel: "true"}, map[string]string{savedOf: of}
	return secret
}

// TestRollbackRestoresItsOwnNamesOnly: somebody who may write Secrets beside cert-manager has rollback, which the
// administrator of the cluster runs, make an object for them.
func TestRollbackRestoresItsOwnNamesOnly(t *testing.T) {
	t.Parallel()
	slow.Test(t, slow.Takeover)
	o := newOriginal(t)
	r := &runner{cluster: cluster{o.client}, record: &record{Image: ourImage}}
	if err := r.save(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.remember(t.Context()); err != nil {
		t.Fatalf("what apply saves is not restored: %v", err)
	}
	evil := &rbacv1.ClusterRoleBinding{ObjectMeta: objectMeta("", "evil")}
	for name, c := range map[string]struct{ of, want string }{
		"by-its-name":   {"rbac.authorization.k8s.io/v1/ClusterRoleBinding//evil", "evil, which takeover apply does not change"},
		"by-other-name": {"apps/v1/Deployment/" + home + "/" + controllerName, "but it holds rbac.authorization.k8s.io/v1/ClusterRoleBinding//evil"},
	} {
		secret := savedAs(t, name, c.of, evil)
		o.create(secret)
		r.Saved++
		if err := r.remember(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error that says %q", name, err, c.want)
		}
		if err := o.client.Delete(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		r.Saved--
	}
}

// TestWhatIsKeptIsNotRestored: with --keep-cainjector, what belongs to the injector is neither changed nor restored.
func TestWhatIsKeptIsNotRestored(t *testing.T) {
	t.Parallel()
	slow.Test(t, slow.Takeover)
	o := newOriginal(t)
	all, err := cluster{o.client}.changed(false)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := cluster{o.client}.changed(true)
	if err != nil {
		t.Fatal(err)
	}
	injector := object{gvk: kindOf("apps", "Deployment"), key: client.ObjectKey{Namespace: home, Name: injectorName}}
	if !slices.ContainsFunc(all, injector.is) || slices.ContainsFunc(kept, injector.is) {
		t.Error("the Deployment of the injector is restored exactly if it was kept")
	}
	if s := stranger(kept, all); s != nil {
		t.Errorf("%s is changed only if the injector is kept", s)
	}
	if s := stranger(all, kept); s == nil {
		t.Error("keeping the injector keeps nothing")
	}
}
