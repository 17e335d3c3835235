package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// newNamespace makes a namespace and waits for its service account.
func newNamespace(t *testing.T, c *kubernetes.Clientset) string {
	t.Helper()
	made, err := c.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "default service account", func(ctx context.Context) error {
		_, err := c.CoreV1().ServiceAccounts(made.Name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return made.Name
}

func TestVersion(t *testing.T) {
	got, err := admin(t).Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join("..", "..", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "k8s.io/kubernetes " + got.GitVersion + "\n"; !strings.Contains(string(mod), want) {
		t.Errorf("the server says %s, go.mod has no line %q", got.GitVersion, want)
	}
	if got.GitVersion != "v1.37.2" || got.Major != "1" || got.Minor != "37" {
		t.Errorf("version %s, %s.%s; want v1.37.2, 1.37", got.GitVersion, got.Major, got.Minor)
	}
}

func TestServesThePoliciesOfThisRelease(t *testing.T) {
	list, err := admin(t).Discovery().ServerResourcesForGroupVersion("admissionregistration.k8s.io/v1")
	if err != nil {
		t.Fatal(err)
	}
	served := map[string]bool{}
	for _, r := range list.APIResources {
		served[r.Name] = true
	}
	for _, want := range []string{"validatingadmissionpolicies", "mutatingadmissionpolicies"} {
		if !served[want] {
			t.Errorf("%s is not served", want)
		}
	}
}

func TestNamespaceIsFurnished(t *testing.T) {
	c := admin(t)
	ns := newNamespace(t, c)
	eventually(t, "kube-root-ca.crt", func(ctx context.Context) error {
		root, err := c.CoreV1().ConfigMaps(ns).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !x509.NewCertPool().AppendCertsFromPEM([]byte(root.Data["ca.crt"])) {
			return fmt.Errorf("no certificate in %q", root.Data["ca.crt"])
		}
		return nil
	})
}

func TestServiceAccountTokens(t *testing.T) {
	c := admin(t)
	ns := newNamespace(t, c)
	requested, err := c.CoreV1().ServiceAccounts(ns).CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wantSelf(t, withToken(t, requested.Status.Token), "system:serviceaccount:"+ns+":default")

	// The older kind: a Secret that a controller fills.
	_, err = c.CoreV1().Secrets(ns).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "token in the Secret", func(ctx context.Context) error {
		s, err := c.CoreV1().Secrets(ns).Get(ctx, "token", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(s.Data[corev1.ServiceAccountTokenKey]) == 0 {
			return errors.New("the Secret holds no token")
		}
		wantSelf(t, withToken(t, string(s.Data[corev1.ServiceAccountTokenKey])), "system:serviceaccount:"+ns+":default")
		return nil
	})
	wantUnauthorized(t, withToken(t, requested.Status.Token+"x"))
}

// withToken returns a client of the shared control plane that has nothing but the token.
func withToken(t *testing.T, token string) *kubernetes.Clientset {
	t.Helper()
	config := rest.AnonymousClientConfig(load(t, filepath.Join(sharedDir(t), "kubeconfig")))
	config.BearerToken = token
	return client(t, config)
}

// wantSelf checks whom the API server takes c for, and returns the groups.
func wantSelf(t *testing.T, c *kubernetes.Clientset, user string) []string {
	t.Helper()
	review, err := c.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := review.Status.UserInfo.Username; got != user {
		t.Errorf("the server takes us for %q, want %q", got, user)
	}
	return review.Status.UserInfo.Groups
}

func wantUnauthorized(t *testing.T, c *kubernetes.Clientset) {
	t.Helper()
	if _, err := c.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("got error %v, want unauthorized", err)
	}
}

func TestAnonymousSeesHealthOnly(t *testing.T) {
	anonymous := withToken(t, "")
	for path, want := range map[string]int{"/livez": 200, "/readyz": 200, "/healthz": 200, "/version": 401, "/api": 401, "/metrics": 401} {
		var status int
		_ = anonymous.Discovery().RESTClient().Get().AbsPath(path).Do(t.Context()).StatusCode(&status).Error()
		if status != want {
			t.Errorf("%s: %d, want %d (%s)", path, status, want, http.StatusText(want))
		}
	}
}

// minted returns a client with a certificate made by the subcommand kubeconfig.
func minted(t *testing.T, arguments ...string) *kubernetes.Clientset {
	t.Helper()
	out := filepath.Join(t.TempDir(), "kubeconfig")
	stdout, stderr, err := run(t, append([]string{"kubeconfig", "--data-dir", sharedDir(t), "--out", out}, arguments...)...)
	if err != nil || stdout != "" {
		t.Fatalf("kubeconfig: %v: %q %q", err, stdout, stderr)
	}
	wantMode(t, out, 0o600)
	return client(t, load(t, out))
}

func wantMode(t *testing.T, path string, want os.FileMode) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != want {
		t.Errorf("%s has mode %o, want %o", path, got, want)
	}
}

func TestClientCertificateIdentities(t *testing.T) {
	jane := minted(t, "--user", "jane", "--group", "developers", "--group", "testers")
	groups := wantSelf(t, jane, "jane")
	slices.Sort(groups) // DER orders the members of a set by length
	if !slices.Equal(groups, []string{"developers", "system:authenticated", "testers"}) {
		t.Errorf("jane's groups are %q", groups)
	}
	if _, err := jane.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("an unknown user lists Secrets: error %v, want forbidden", err)
	}
	if got := strings.Join(wantSelf(t, admin(t), "kubernetes-admin"), " "); !strings.Contains(got, "system:masters") {
		t.Errorf("the administrator's groups are %q", got)
	}
}

// A certificate that names a service account has exactly the rights bound to that service account: this is how the
// controllers run with least privilege.
func TestServiceAccountCertificateHasTheRightsOfItsBinding(t *testing.T) {
	c := admin(t)
	ns := newNamespace(t, c)
	robot := minted(t, "--service-account", ns+"/robot")
	if got := strings.Join(wantSelf(t, robot, "system:serviceaccount:"+ns+":robot"), " "); !strings.Contains(got, "system:serviceaccounts:"+ns) {
		t.Errorf("the groups are %q", got)
	}
	_, err := c.RbacV1().RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "robot"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: "robot"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "right by the binding", func(ctx context.Context) error {
		_, err := robot.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{})
		return err
	})
	if _, err := robot.CoreV1().ConfigMaps("kube-system").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("right outside of the binding: error %v, want forbidden", err)
	}
}

func TestGarbageCollection(t *testing.T) {
	c := admin(t)
	ns := newNamespace(t, c)
	maps := c.CoreV1().ConfigMaps(ns)
	owner, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dependent := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "dependent", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID},
	}}}
	if _, err := c.CoreV1().Secrets(ns).Create(t.Context(), dependent, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := maps.Delete(t.Context(), "owner", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "deletion of the dependent", func(ctx context.Context) error {
		return gone(c.CoreV1().Secrets(ns).Get(ctx, "dependent", metav1.GetOptions{}))
	})
}

// gone turns the result of a Get into an error unless the object is not found.
func gone[T any](_ T, err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return errors.Join(errors.New("still there"), err)
}

func TestNamespaceDeletionFinishes(t *testing.T) {
	c := admin(t)
	ns := newNamespace(t, c)
	if _, err := c.CoreV1().Secrets(ns).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "end of the namespace", func(ctx context.Context) error {
		return gone(c.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{}))
	})
}

func TestClusterRolesAggregate(t *testing.T) {
	c := admin(t)
	ns := newNamespace(t, c) // its name is unique
	rule := rbacv1.PolicyRule{APIGroups: []string{"chancery.test"}, Resources: []string{ns}, Verbs: []string{"get"}}
	_, err := c.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: ns, Labels: map[string]string{"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
		Rules:      []rbacv1.PolicyRule{rule},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "rule in the role edit, by way of view", func(ctx context.Context) error {
		edit, err := c.RbacV1().ClusterRoles().Get(ctx, "edit", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, r := range edit.Rules {
			if len(r.Resources) == 1 && r.Resources[0] == ns {
				return nil
			}
		}
		return errors.New("not there")
	})
}

func TestEndpointSliceForService(t *testing.T) {
	c := admin(t)
	ns := newNamespace(t, c)
	_, err := c.CoreV1().Services(ns).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "EndpointSlice", func(ctx context.Context) error {
		list, err := c.DiscoveryV1().EndpointSlices(ns).List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=web"})
		if err == nil && len(list.Items) == 0 {
			err = errors.New("none")
		}
		return err
	})
}

// The controllers of Kubernetes run as their own service accounts, which the bootstrap RBAC must know all of.
func TestControllersAreNotForbiddenAnything(t *testing.T) {
	c := admin(t)
	for _, name := range []string{
		"generic-garbage-collector", "namespace-controller", "service-account-controller", "root-ca-cert-publisher",
		"endpointslice-controller", "certificate-controller", "clusterrole-aggregation-controller",
	} {
		binding, err := c.RbacV1().ClusterRoleBindings().Get(t.Context(), "system:controller:"+name, metav1.GetOptions{})
		if err != nil || binding.Subjects[0].Name != name {
			t.Errorf("%s: %v %v", name, binding, err)
		}
	}
	review, err := c.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:kube-controller-manager",
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "create", Resource: "secrets", Namespace: "default"},
		},
	}, metav1.CreateOptions{})
	if err != nil || !review.Status.Allowed {
		t.Errorf("the token controller may not create Secrets: %v %v", review, err)
	}
	log, err := os.ReadFile(filepath.Join(sharedDir(t), "logs", "controlplane.log"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "is forbidden") {
			t.Errorf("in the log: %s", line)
		}
	}
}
