package check

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/api"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/slow"
	"chancery.dev/kubectl/internal/plugin"
)

// run runs a command with a kubeconfig; ready is false for the exit status that says that the API is not.
func run(ctx context.Context, kubeconfig string, args ...string) (said string, ready bool, err error) {
	var out bytes.Buffer
	streams := plugin.Streams{Out: &out, ErrOut: &out}
	root := plugin.New(streams)
	root.AddCommand(New(streams), NewVersion(streams))
	root.SetArgs(append(args, "--kubeconfig", kubeconfig))
	err = root.ExecuteContext(ctx)
	var exit plugin.ExitError
	if errors.As(err, &exit) && exit.Code == notReady {
		return out.String(), false, nil
	}
	return out.String(), true, err
}

// TestReady: all is found to be there, and what a user may not see is named.
func TestReady(t *testing.T) {
	t.Parallel()
	w := rig.NewWorldOn(t, rig.OwnCluster(t)) // other tests leave leases behind
	kubeconfig := rig.Kubeconfig(t, w.Admin, w.Namespace)
	said, ready, err := run(t.Context(), kubeconfig, "check", "api", "--wait", "1m", "--interval", "10ms")
	if err != nil || !ready || !strings.Contains(said, "The Chancery API is ready") || strings.Contains(said, "policies") {
		t.Errorf("%v\n%s", err, said)
	}
	said, ready, err = run(t.Context(), kubeconfig, "check", "api", "-n", "none")
	if err != nil || ready || !strings.Contains(said, `namespaces "none" not found`) || !strings.Contains(said, "kubectl get namespaces") {
		t.Errorf("%v\n%s", err, said)
	}
	user := "user-of-" + w.Namespace
	said, ready, err = run(t.Context(), kubeconfig, "check", "api", "--as", user)
	if err != nil || ready || !strings.Contains(said, "you may not create CertificateRequests in the namespace "+w.Namespace) {
		t.Errorf("%v\n%s", err, said)
	}
	w.Create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "editor"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
	rig.Eventually(t, "an editor sees that it is ready", func(ctx context.Context) string {
		said, ready, err := run(ctx, kubeconfig, "check", "api", "--as", user)
		if err != nil || !ready || !strings.Contains(said, "unknown: whether all policies are there") || !strings.Contains(said, "unknown: whether a controller leads: you may not") {
			return said
		}
		return ""
	})
}

// TestNotReady: a cluster without Chancery, then one that lacks its policies, is not ready, until somebody mends it.
func TestNotReady(t *testing.T) {
	slow.Test(t, slow.Installs)
	t.Parallel()
	rc := rig.BareCluster(t)
	kubeconfig := rig.Kubeconfig(t, rc, "default")
	expect := func(want ...string) {
		t.Helper()
		said, ready, err := run(t.Context(), kubeconfig, "check", "api")
		if err != nil || ready {
			t.Errorf("%v, ready: %t\n%s", err, ready, said)
		}
		for _, part := range want {
			if !strings.Contains(said, part) {
				t.Errorf("it does not say %q:\n%s", part, said)
			}
		}
	}
	expect("the definition of Certificate in cert-manager.io/v1 is missing", "the definition of Order in acme.cert-manager.io/v1 is missing", "chancery install")

	scheme, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(rc, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	definitions, err := api.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range definitions {
		if err := c.Create(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	rig.Eventually(t, "the definitions are served", func(ctx context.Context) string {
		said, _, err := run(ctx, kubeconfig, "check", "api")
		if err != nil || strings.Contains(said, "the definition of") {
			return said
		}
		return ""
	})
	expect("nothing fills in who makes a CertificateRequest", "policies are missing", "order-spec.chancery.dev")

	for _, name := range []string{"kube-system", "cert-manager"} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := client.IgnoreAlreadyExists(c.Create(t.Context(), namespace)); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan string, 1)
	go func() {
		said, ready, err := run(t.Context(), kubeconfig, "check", "api", "--wait", "2m", "--interval", "10ms")
		if err == nil && ready {
			said = ""
		}
		ended <- said
	}()
	policies, err := api.Policies()
	if err != nil {
		t.Fatal(err)
	}
	for _, policy := range policies {
		if err := c.Create(t.Context(), policy); err != nil {
			t.Fatal(err)
		}
	}
	if said := <-ended; said != "" {
		t.Error(said)
	}
	if said, ready, err := run(t.Context(), kubeconfig, "check", "api", "--server", "https://"+rig.FreeAddress(t).String(), "--wait", "50ms", "--interval", "10ms"); ready && err == nil {
		t.Errorf("an API server that is not there is ready:\n%s", said)
	}

	soon, late, seconds := metav1.NowMicro(), metav1.NewMicroTime(time.Now().Add(-time.Hour)), int32(60)
	holder := "pod-1"
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: leaseName}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &late,
	}}
	if err := c.Create(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	expect("no controller leads: pod-1 had the lease kube-system/cert-manager-controller until")
	nobody := ""
	lease.Spec.HolderIdentity = &nobody
	if err := c.Update(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	expect("has given its lease kube-system/cert-manager-controller back")
	lease.Spec.HolderIdentity, lease.Spec.RenewTime = &holder, &soon
	if err := c.Update(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	if said, ready, err := run(t.Context(), kubeconfig, "check", "api"); err != nil || !ready || strings.Contains(said, "unknown") {
		t.Errorf("%v\n%s", err, said)
	}
}

// TestVersion: this program says its version, and that of the controllers by their images.
func TestVersion(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	kubeconfig := rig.Kubeconfig(t, w.Admin, w.Namespace)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "controller", Labels: map[string]string{"app.kubernetes.io/name": "chancery-controller"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "chancery", Image: "registry.example.com:5000/chancery:v1.2.3@sha256:" + strings.Repeat("ab", 32)}}},
	}
	w.Create(t, pod)
	pod.Status.Phase = corev1.PodRunning
	if err := w.Client.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	said, _, err := run(t.Context(), kubeconfig, "version", "--controller-namespace", w.Namespace)
	if err != nil || !strings.HasPrefix(said, "kubectl-chancery version ") || !strings.Contains(said, "controller "+w.Namespace+"/controller version v1.2.3, image registry") {
		t.Errorf("%v\n%s", err, said)
	}
	said, _, err = run(t.Context(), kubeconfig, "version", "--controller-namespace", w.Namespace, "-o", "json")
	var read struct{ Items []Program }
	if err != nil || json.Unmarshal([]byte(said), &read) != nil || len(read.Items) != 2 || read.Items[1].Version != "v1.2.3" {
		t.Errorf("%v\n%s", err, said)
	}
	if said, _, err = run(t.Context(), "/nowhere", "version", "--client", "--short"); err != nil || strings.Count(said, "\n") != 1 || strings.Contains(said, " ") {
		t.Errorf("%v\n%s", err, said)
	}
}

// TestTag: the version is the tag of an image, whatever else its name has.
func TestTag(t *testing.T) {
	t.Parallel()
	for image, want := range map[string]string{
		"chancery": "latest", "chancery:v1": "v1", "localhost:5000/chancery": "latest", "localhost:5000/a/chancery:v1@sha256:ab": "v1", "chancery@sha256:ab": "sha256:ab",
	} {
		if got := tagOf(image); got != want {
			t.Errorf("%s: %s, want %s", image, got, want)
		}
	}
}
