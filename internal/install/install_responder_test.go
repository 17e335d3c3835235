package install_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/install"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/slow"
)

// TestInstallResponder: the responder is installed with two replicas of the default image, an image that is named is
// taken, and a later run without one changes neither the image, nor the replicas, nor the command.
func TestInstallResponder(t *testing.T) {
	slow.Test(t, slow.Installs)
	t.Parallel()
	w := rig.NewWorld(t)
	key := client.ObjectKey{Namespace: "cert-manager", Name: "chancery-responder"}
	installed := func(image, wantImage string, wantReplicas int32) *appsv1.Deployment {
		t.Helper()
		i := install.DefaultInstallation()
		i.Responder, i.Image = true, image
		w.Install(t, i)
		found := &appsv1.Deployment{}
		if err := w.Client.Get(t.Context(), key, found); err != nil {
			t.Fatal(err)
		}
		if got := found.Spec.Template.Spec.Containers[0].Image; got != wantImage || *found.Spec.Replicas != wantReplicas {
			t.Errorf("%d replicas of %s, want %d of %s", *found.Spec.Replicas, got, wantReplicas, wantImage)
		}
		return found
	}
	if err := client.IgnoreNotFound(w.Client.Delete(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})); err != nil {
		t.Fatal(err)
	}
	found := installed("", install.DefaultImage, 2)
	installed("registry.example.com/chancery:v1", "registry.example.com/chancery:v1", 2)
	more := client.RawPatch(types.JSONPatchType, []byte(`[{"op":"replace","path":"/spec/replicas","value":3},
		{"op":"add","path":"/spec/template/spec/containers/0/command/-","value":"--tlsalpn01-listen-address=:8443"}]`))
	if err := w.Client.Patch(t.Context(), found, more, client.FieldOwner("an operator")); err != nil {
		t.Fatal(err)
	}
	found = installed("", "registry.example.com/chancery:v1", 3)
	if command := found.Spec.Template.Spec.Containers[0].Command; len(command) != 3 {
		t.Errorf("the command: %q", command)
	}
	budget := &policyv1.PodDisruptionBudget{}
	if err := w.Client.Get(t.Context(), key, budget); err != nil || budget.Spec.MaxUnavailable.IntValue() != 1 {
		t.Errorf("the disruption budget: %+v, %v", budget.Spec, err)
	}
	service := &corev1.Service{}
	if err := w.Client.Get(t.Context(), key, service); err != nil {
		t.Fatal(err)
	}
	for name, value := range service.Spec.Selector {
		if found.Spec.Template.Labels[name] != value {
			t.Errorf("the Service selects %s=%s, the pods have %v", name, value, found.Spec.Template.Labels)
		}
	}
	restricted(t, w)
	w.Create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "chancery-responder"}})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "responder"}, Spec: found.Spec.Template.Spec}
	if err := w.Client.Create(t.Context(), pod, client.DryRunAll); err != nil {
		t.Error(err)
	}
	pod.Spec.SecurityContext.RunAsNonRoot = nil
	if err := w.Client.Create(t.Context(), pod, client.DryRunAll); err == nil {
		t.Error("the namespace takes a pod that may run as root: the test shows nothing")
	}
}

// TestInstallController: the controller's pods make those of solvers from their own image, also when a later run keeps
// the image, and the command that an operator has given stays.
func TestInstallController(t *testing.T) {
	t.Parallel()
	w := rig.NewWorldOn(t, rig.OwnCluster(t))
	key, found := client.ObjectKey{Namespace: "cert-manager", Name: "chancery-controller"}, &appsv1.Deployment{}
	installed := func(image string) corev1.Container {
		t.Helper()
		i := install.DefaultInstallation()
		i.Controller, i.Image = true, image
		if err := i.Apply(t.Context(), w.Admin, func(string) {}); err != nil {
			t.Fatal(err)
		}
		if err := w.Client.Get(t.Context(), key, found); err != nil {
			t.Fatal(err)
		}
		return found.Spec.Template.Spec.Containers[0]
	}
	installed("registry.example.com/chancery:v1")
	more := client.RawPatch(types.JSONPatchType, []byte(`[{"op":"add","path":"/spec/template/spec/containers/0/command/-","value":"--workers=2"}]`))
	if err := w.Client.Patch(t.Context(), found, more, client.FieldOwner("an operator")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ image, want string }{
		{"", "registry.example.com/chancery:v1"}, {"registry.example.com/chancery:v2", "registry.example.com/chancery:v2"}, {"", "registry.example.com/chancery:v2"},
	} {
		running := installed(c.image)
		if running.Image != c.want || !slices.Contains(running.Args, "--acme-http01-solver-image="+c.want) || len(running.Command) != 3 {
			t.Errorf("with the image %q: %s %q %q", c.image, running.Image, running.Command, running.Args)
		}
	}
}

// restricted makes the API server hold the world's namespace to the restricted Pod Security Standard.
func restricted(t *testing.T, w *rig.World) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}
	enforce := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`))
	if err := w.Client.Patch(t.Context(), namespace, enforce); err != nil {
		t.Fatal(err)
	}
}

// TestInstallationObjects: Objects knows all objects that are applied, and no others.
func TestInstallationObjects(t *testing.T) {
	slow.Test(t, slow.Installs)
	t.Parallel()
	rc := rig.OwnCluster(t)
	applied := map[string]bool{}
	said := func(what string) {
		if object, is := strings.CutPrefix(what, "applied "); is {
			applied[object] = true
		}
	}
	i := install.DefaultInstallation()
	i.Controller, i.Responder, i.Injecting, i.Webhook, i.ForceConflicts = true, true, install.InjectingOwn, install.WebhookIgnore, true
	if err := i.Apply(t.Context(), rc, said); err != nil {
		t.Fatal(err)
	}
	objects, err := i.Objects()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		name := o.GetKind() + " " + o.GetName()
		if !applied[name] {
			t.Errorf("%s is not applied", name)
		}
		delete(applied, name)
	}
	if len(applied) > 0 {
		t.Errorf("Objects does not know of %v", applied)
	}
}
