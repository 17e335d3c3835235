package stories_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/api"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/app"
	"chancery.dev/internal/cli"
	"chancery.dev/internal/install"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/port"
	"chancery.dev/internal/rig/slow"
)

// repository is what somebody keeps in git, and a tool that applies it.
type repository struct {
	*rig.World

	objects []*unstructured.Unstructured
}

// newRepository holds what chancery install prints with some flags.
func newRepository(t *testing.T, w *rig.World, flags ...string) *repository {
	t.Helper()
	r, out, command := &repository{World: w}, &bytes.Buffer{}, cli.New()
	command.SetArgs(append([]string{"install", "-o", "yaml"}, flags...))
	command.SetOut(out)
	if err := command.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	for decoder := yaml.NewYAMLOrJSONDecoder(out, 4096); ; {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return r
		}
		if err != nil {
			t.Fatal(err)
		}
		r.objects = append(r.objects, object)
	}
}

// apply applies all objects, as tools do that apply server-side.
func (r *repository) apply(t *testing.T, options ...client.ApplyOption) {
	t.Helper()
	for _, o := range r.objects {
		if err := r.applied(t.Context(), o.DeepCopy(), options...); err != nil {
			t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

func (r *repository) applied(ctx context.Context, o *unstructured.Unstructured, options ...client.ApplyOption) error {
	return r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), append(options, client.FieldOwner("gitops"))...)
}

// live reads the objects as they are stored, each by its kind and name.
func (r *repository) live(t *testing.T) map[string]*unstructured.Unstructured {
	t.Helper()
	out := map[string]*unstructured.Unstructured{}
	for _, o := range r.objects {
		stored := &unstructured.Unstructured{}
		stored.SetGroupVersionKind(o.GroupVersionKind())
		if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(o), stored); err != nil {
			t.Fatal(err)
		}
		out[o.GetKind()+" "+o.GetName()] = stored
	}
	return out
}

// differing are the objects that another application would change, or would be refused for, each with the difference.
func (r *repository) differing(t *testing.T) map[string]string {
	t.Helper()
	out, live := map[string]string{}, r.live(t)
	for _, o := range r.objects {
		stored, would := live[o.GetKind()+" "+o.GetName()], o.DeepCopy()
		err := r.applied(t.Context(), would, client.DryRunAll)
		stored.SetManagedFields(nil)
		would.SetManagedFields(nil)
		if diff := cmp.Diff(stored.Object, would.Object); err != nil || diff != "" {
			out[o.GetKind()+" "+o.GetName()] = fmt.Sprint(err, diff)
		}
	}
	return out
}

// args are the arguments in a printed Deployment.
func (r *repository) args(t *testing.T, deployment string) []string {
	t.Helper()
	for _, o := range r.objects {
		if o.GetKind() == "Deployment" && o.GetName() == deployment {
			containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
			args, _, err := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
			if err != nil || len(args) == 0 {
				t.Fatalf("the Deployment %s has the arguments %q: %v", deployment, args, err)
			}
			return args
		}
	}
	t.Fatalf("there is no Deployment %s", deployment)
	return nil
}

// config is how the controller of the printed Deployment is configured.
func (r *repository) config(t *testing.T) app.Config {
	t.Helper()
	cfg := app.DefaultConfig()
	cfg.MetricsAddress, cfg.HealthAddress = "0", "0"
	command := &cobra.Command{Use: "controller"}
	cli.AddConfigFlags(command, &cfg)
	if err := command.ParseFlags(r.args(t, "chancery-controller")); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// issues makes a Certificate in a namespace, and waits until it is ready.
func issues(t *testing.T, w *rig.World, namespace, name string) {
	t.Helper()
	there := *w
	there.Namespace = namespace
	crt := certificate(&there, name, "", name+".example.com")
	crt.Spec.IssuerRef = cmmeta.IssuerReference{Name: name}
	there.Create(t, &certmanagerv1.Issuer{ObjectMeta: named(name), Spec: certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}}, crt)
	awaitReady(t, &there, name)
}

// knows makes a kind of external issuers, and waits until the table has it.
func (r *repository) knows(t *testing.T, namespace, kind string) {
	t.Helper()
	plural, group := strings.ToLower(kind)+"s", "issuers.example.com"
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": plural + "." + group},
		"spec": map[string]any{
			"group": group, "scope": "Cluster", "names": map[string]any{"kind": kind, "plural": plural},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}}}},
		},
	}}
	r.Create(t, crd)
	rig.Eventually(t, "the controller has written "+kind+" into the table", func(ctx context.Context) string {
		table := &corev1.ConfigMap{}
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: api.ExternalIssuersName}, table)
		if err != nil || table.Data[kind+"."+group] == "" {
			return fmt.Sprint(err, table.Data)
		}
		return ""
	})
}

// runsWebhook runs the webhook with the rights that it has on a cluster, and waits until it has written its CA.
func (r *repository) runsWebhook(t *testing.T) {
	t.Helper()
	own := app.DefaultWebhookConfig()
	for _, p := range []*int{&own.SecurePort, &own.HealthPort} {
		address, err := port.Free(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		*p = int(address.Port())
	}
	for _, arg := range r.args(t, "cert-manager-webhook") {
		switch name, value, _ := strings.Cut(arg, "="); name {
		case "--mutating-webhook-configuration":
			own.Configuration = value
		case "--dynamic-serving-ca-secret-namespace":
			own.Serving.SecretNamespace = value
		case "--dynamic-serving-dns-names":
			own.Serving.DNSNames = strings.Split(value, ",")
		default:
			t.Errorf("an argument that this test does not know: %s", arg)
		}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	as := serviceAccount(r.Admin, own.Serving.SecretNamespace, "cert-manager-webhook")
	a, err := app.NewWebhook(ctx, r.World.Config(), own, as, logr.Discard())
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	rig.Eventually(t, "the webhook has written its CA", func(ctx context.Context) string {
		config := &admissionregistrationv1.MutatingWebhookConfiguration{}
		if err := r.Client.Get(ctx, client.ObjectKey{Name: own.Configuration}, config); err != nil || len(config.Webhooks[0].ClientConfig.CABundle) == 0 {
			return fmt.Sprint(err, config.Webhooks)
		}
		return ""
	})
}

func serviceAccount(rc *rest.Config, namespace, name string) *rest.Config {
	return rig.As(rc, "system:serviceaccount:"+namespace+":"+name, "system:serviceaccounts", "system:serviceaccounts:"+namespace)
}

// TestGitOps: what chancery install prints is applied by another tool. The processes run with the rights and the flags
// that are printed, and write none of the printed fields; what somebody changes by hand is put right by the tool alone.
func TestGitOps(t *testing.T) {
	slow.Test(t, slow.Installs)
	t.Parallel()
	r := newRepository(t, rig.NewWorldOn(t, rig.BareCluster(t)), "--controller", "--webhook=ignore", "--cainjector=controller")
	r.apply(t)
	run := func() (stop func()) {
		return r.RunAs(t, r.config(t), serviceAccount(r.Admin, "cert-manager", "cert-manager"))
	}
	stop := run()
	r.runsWebhook(t)
	issues(t, r.World, r.Namespace, "first")
	r.knows(t, "cert-manager", "Ox")
	for what, diff := range r.differing(t) {
		t.Errorf("a process has changed %s: %s", what, diff)
	}

	r.drift(t)
	r.apply(t, client.ForceOwnership)
	before := r.live(t)
	stop()
	run()
	issues(t, r.World, r.Namespace, "second")
	r.knows(t, "cert-manager", "Cow")
	for what, diff := range r.differing(t) {
		t.Errorf("after a change by hand, a process has changed %s: %s", what, diff)
	}
	for what, now := range r.live(t) {
		if was := before[what]; was.GetResourceVersion() != now.GetResourceVersion() && now.GetName() != api.ExternalIssuersName {
			t.Errorf("%s was written: %s", what, cmp.Diff(was.Object, now.Object))
		}
	}
	r.conflicts(t)
}

// drift changes objects of many kinds by hand.
func (r *repository) drift(t *testing.T) {
	t.Helper()
	for what, patch := range map[string]string{
		"CustomResourceDefinition orders.acme.cert-manager.io":             `{"metadata":{"annotations":{"chancery.dev/definition":"by hand"}}}`,
		"ClusterRole cert-manager-view":                                    `{"rules":[]}`,
		"Role chancery-controller-leaderelection":                          `{"rules":[{"apiGroups":["coordination.k8s.io"],"resources":["leases"],"verbs":["*"]}]}`,
		"Service chancery-responder":                                       `{"spec":{"selector":{"app.kubernetes.io/name":"by-hand"}}}`,
		"Deployment chancery-controller":                                   `{"spec":{"replicas":5}}`,
		"ValidatingAdmissionPolicy order-spec.chancery.dev":                `{"spec":{"failurePolicy":"Ignore"}}`,
		"ConfigMap chancery-admission":                                     `{"data":{"caCertificates":"any"}}`,
		"Secret cert-manager-webhook-ca":                                   `{"metadata":{"annotations":{"cert-manager.io/allow-direct-injection":"false"}}}`,
		"MutatingWebhookConfiguration cert-manager-webhook":                `{"metadata":{"labels":{"by":"hand"}}}`,
		"ServiceAccount chancery-responder":                                `{"metadata":{"labels":{"by":"hand"}}}`,
		"MutatingAdmissionPolicy certificaterequest-identity.chancery.dev": `{"spec":{"failurePolicy":"Ignore"}}`,
	} {
		o := r.live(t)[what]
		if o == nil {
			t.Fatalf("there is no %s", what)
		}
		if err := r.Client.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner("kubectl-edit")); err != nil {
			t.Fatal(err)
		}
		differs := r.differing(t)[what] != ""
		// What nobody has printed is nobody's concern.
		if added := strings.Contains(patch, `"data"`) || strings.Contains(patch, `"labels"`); differs == added {
			t.Errorf("%s differs from what is printed: %t", what, differs)
		}
	}
}

// conflicts: an installation without force changes nothing that another tool has set to something else, and says what.
func (r *repository) conflicts(t *testing.T) {
	t.Helper()
	const what = "MutatingWebhookConfiguration cert-manager-webhook"
	install := func(force bool) error {
		i := install.DefaultInstallation()
		i.Webhook, i.ForceConflicts = install.WebhookFail, force
		return i.Apply(t.Context(), r.Admin, func(string) {})
	}
	policy := func() string {
		hooks, _, _ := unstructured.NestedSlice(r.live(t)[what].Object, "webhooks")
		text, err := json.Marshal(hooks)
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(string(text), `"failurePolicy":"`)
		word, _, _ := strings.Cut(after, `"`)
		return word
	}
	err := install(false)
	for _, word := range []string{what, `.webhooks[name="webhook.cert-manager.io"].failurePolicy`, `"gitops"`, "--force-conflicts"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not name %s: %v", word, err)
		}
	}
	if got := policy(); got != "Ignore" {
		t.Errorf("the policy of the webhook is %s", got)
	}
	if err := install(true); err != nil || policy() != "Fail" {
		t.Errorf("with force: %v, the policy is %s", err, policy())
	}
}

// TestInstallationElsewhere: an installation with a namespace, a prefix and a namespace of leases of its own works as
// it is printed: by the rights that it has there, ClusterIssuers find their Secrets, the table of kinds is kept, the
// webhook is trusted, and the lease is held.
func TestInstallationElsewhere(t *testing.T) {
	slow.Test(t, slow.Installs)
	t.Parallel()
	const namespace, leases = "elsewhere", "leases"
	r := newRepository(t, rig.NewWorldOn(t, rig.BareCluster(t)), "--controller", "--webhook=ignore", "--cainjector=controller",
		"--namespace="+namespace, "--name-prefix=our-", "--leader-election-namespace="+leases)
	r.Create(t, &corev1.Namespace{ObjectMeta: named(leases)})
	r.apply(t)
	r.RunAs(t, r.config(t), serviceAccount(r.Admin, namespace, "cert-manager"))
	r.runsWebhook(t)
	r.knows(t, namespace, "Ox")
	there := *r.World
	there.Namespace = namespace
	withCA(t, &there)
	awaitReady(t, &there, "root")
	leaf := certificate(&there, "leaf", "ca", "leaf.example.com")
	leaf.Namespace = r.Namespace
	r.Create(t, leaf)
	awaitReady(t, r.World, "leaf")
	if err := r.Client.Get(t.Context(), client.ObjectKey{Namespace: leases, Name: "cert-manager-controller"}, &coordinationv1.Lease{}); err != nil {
		t.Error(err)
	}
	for what, diff := range r.differing(t) {
		t.Errorf("a process has changed %s: %s", what, diff)
	}
}

// TestInstallationsSideBySide: two controllers, each for a namespace of its own, are installed by plain manifests
// beside what is one for the cluster. Each has a lease and rights of its own, and issues in its namespace.
func TestInstallationsSideBySide(t *testing.T) {
	slow.Test(t, slow.Installs)
	t.Parallel()
	w := rig.NewWorldOn(t, rig.BareCluster(t))
	newRepository(t, w, "--responder=false").apply(t)
	for _, name := range []string{"red", "blue"} {
		r := newRepository(t, w, "--controller", "--namespace="+name, "--name-prefix="+name+"-", "--only-namespaces="+name+"-apps")
		w.Create(t, &corev1.Namespace{ObjectMeta: named(name + "-apps")})
		r.apply(t)
		r.RunAs(t, r.config(t), serviceAccount(w.Admin, name, "cert-manager"))
	}
	for _, name := range []string{"red", "blue"} {
		issues(t, w, name+"-apps", "web")
		lease := &coordinationv1.Lease{}
		if err := w.Client.Get(t.Context(), client.ObjectKey{Namespace: name, Name: "cert-manager-controller"}, lease); err != nil {
			t.Error(err)
		}
	}
	red, err := client.New(serviceAccount(w.Admin, "red", "cert-manager"), client.Options{Scheme: w.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	may := slices.DeleteFunc([]string{"red", "red-apps", "blue", "blue-apps", "kube-system"}, func(namespace string) bool {
		return apierrors.IsForbidden(red.List(t.Context(), &corev1.SecretList{}, client.InNamespace(namespace)))
	})
	if want := []string{"red", "red-apps"}; !slices.Equal(may, want) {
		t.Errorf("a controller reads Secrets in %v, want %v", may, want)
	}
}
