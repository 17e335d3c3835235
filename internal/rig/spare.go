package rig

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	admissionapply "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"chancery.dev/internal/rig/spent"
)

// Spares names the directory of the spare API servers of a test run, which the tests that need one of their own use in
// turn. .ci/with-control-plane sets it, and ends them. Without it each such test starts an API server.
const Spares = "CHANCERY_TEST_SPARES"

// pool is spare API servers that begin alike. Tests wait for one: fewer tests than a pool has may need two of it at
// once, or each could hold what another waits for.
type pool struct {
	name string
	size int
	// prepare brings a new API server to where each test finds it.
	prepare func(ctx context.Context, rc *rest.Config) error
}

// bare holds API servers with nothing installed.
func bare() pool {
	return pool{name: "bare", size: 1, prepare: func(context.Context, *rest.Config) error { return nil }}
}

// equipped has API servers where Chancery's definitions are installed, and stay: an API server is busy for seconds with
// each that comes or goes.
func equipped() pool {
	return pool{name: "equipped", size: 2, prepare: prepare}
}

// resetWithin is how long a spare API server may take to be as it was when it was started. One that takes longer is
// ended, and another is started.
const resetWithin = 30 * time.Second

// Own returns an administrator's connection to an API server that is for the caller alone until release is called, with
// nothing installed. One with more flags of chancery-standalone up is started for it.
func Own(ctx context.Context, flags ...string) (rc *rest.Config, release func(), err error) {
	return bare().own(ctx, flags...)
}

// own is Own for an API server of the pool, or, where it needs flags or is for one package, for one that is like those.
func (p pool) own(ctx context.Context, flags ...string) (rc *rest.Config, release func(), err error) {
	quiet()
	binary, dir := os.Getenv("CHANCERY_STANDALONE_BIN"), os.Getenv(Spares)
	switch {
	case binary == "":
		return nil, nil, errNoServer
	case dir == "" || len(flags) > 0:
		if rc, release, err = start(binary, flags...); err != nil {
			return nil, nil, err
		}
		if err = p.prepare(ctx, rc); err != nil {
			release()
		}
		return rc, release, err
	default:
		return p.take(ctx, binary, dir)
	}
}

// take is own by one of the spare API servers.
func (p pool) take(ctx context.Context, binary, dir string) (rc *rest.Config, release func(), err error) {
	defer spent.On("waiting for spare control planes", time.Now())
	for began := time.Now(); time.Since(began) < 5*Patience; time.Sleep(50 * time.Millisecond) { //nolint:forbidigo // other processes hold them
		for n := range p.size {
			file, err := os.OpenFile(filepath.Join(dir, fmt.Sprint(p.name, n)), os.O_RDWR|os.O_CREATE, 0o600)
			if err != nil {
				return nil, nil, err
			}
			release := func() { _ = file.Close() } // and the lock with it
			if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
				release()
				continue
			}
			if rc, err = p.renewed(ctx, binary, file); err != nil {
				release()
			}
			return rc, release, err
		}
	}
	return nil, nil, errors.New("no spare API server became free: tests that hold one wait for another, perhaps")
}

// spare is what the file of a spare API server says of it.
type spare struct {
	// Dir has its kubeconfig and its log, PID is its process.
	Dir string
	PID int
	// Objects are those of its start: what was written into each by its kind and name.
	Objects map[string]string
}

// renewed returns a connection to the spare API server of a file that this process has locked. It is reset, or started.
func (p pool) renewed(ctx context.Context, binary string, file *os.File) (*rest.Config, error) {
	var s spare
	if err := json.NewDecoder(file).Decode(&s); err == nil {
		began := time.Now()
		rc, err := clientcmd.BuildConfigFromFlags("", filepath.Join(s.Dir, "kubeconfig"))
		if err == nil {
			rc.QPS = -1
			err = s.reset(ctx, rc)
		}
		if err == nil {
			return rc, nil
		}
		spent.On(fmt.Sprintf("finding that a spare control plane cannot be reset: %.200q", err.Error()), began)
		_ = syscall.Kill(s.PID, syscall.SIGKILL)
	}
	alive, err := os.Open(filepath.Join(filepath.Dir(file.Name()), "alive")) // ends with the run
	if err != nil {
		return nil, err
	}
	defer func() { _ = alive.Close() }()
	rc, process, err := launch(binary, alive)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(keepParameters(ctx, rc), p.prepare(ctx, rc)); err != nil {
		return nil, err
	}
	s = spare{Dir: process.dir, PID: process.pid}
	if s.Objects, err = settled(ctx, rc); err != nil {
		return nil, err
	}
	text, err := json.Marshal(s)
	if err == nil {
		err = os.WriteFile(file.Name(), text, 0o600)
	}
	return rc, err
}

// keepParameters makes a policy that refuses nothing, and a binding. An API server reads no ConfigMaps for policies any
// more once the last binding that names one is deleted (https://github.com/kubernetes/kubernetes/issues/130887): this
// one stays.
func keepParameters(ctx context.Context, rc *rest.Config) error {
	c, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return err
	}
	const name = "keep-parameters.rig"
	policy := admissionapply.ValidatingAdmissionPolicy(name).WithSpec(admissionapply.ValidatingAdmissionPolicySpec().
		WithParamKind(admissionapply.ParamKind().WithAPIVersion("v1").WithKind("ConfigMap")).
		WithMatchConstraints(admissionapply.MatchResources().WithResourceRules(admissionapply.NamedRuleWithOperations().
			WithAPIGroups("rig").WithAPIVersions("v1").WithOperations(admissionv1.Create).WithResources("nothing"))).
		WithValidations(admissionapply.Validation().WithExpression("true")))
	binding := admissionapply.ValidatingAdmissionPolicyBinding(name).WithSpec(admissionapply.ValidatingAdmissionPolicyBindingSpec().
		WithPolicyName(name).WithValidationActions(admissionv1.Deny).
		WithParamRef(admissionapply.ParamRef().WithName(name).WithNamespace("default").WithParameterNotFoundAction(admissionv1.AllowAction)))
	if _, err := c.AdmissionregistrationV1().ValidatingAdmissionPolicies().Apply(ctx, policy, metav1.ApplyOptions{FieldManager: "rig"}); err != nil {
		return err
	}
	_, err = c.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Apply(ctx, binding, metav1.ApplyOptions{FieldManager: "rig"})
	return err
}

// object is one on an API server.
type object struct {
	schema.GroupVersionResource
	*unstructured.Unstructured
}

// key tells an object from others.
func (o object) key() string {
	return o.GroupResource().String() + " " + o.GetNamespace() + "/" + o.GetName()
}

// stays reports whether an object is left alone: an API server makes, changes and deletes it by itself at any time.
func stays(o object) bool {
	switch o.Resource {
	case "events", "endpoints", "endpointslices":
		return true
	case "leases":
		return o.GetLabels()["apiserver.kubernetes.io/identity"] != ""
	case "namespaces": // a World's has a name that no other gets: an empty one is in nobody's way, and takes five seconds to go
		return strings.HasPrefix(o.GetName(), worldPrefix)
	case "configmaps":
		return o.GetName() == "kube-root-ca.crt"
	case "serviceaccounts":
		return o.GetName() == "default"
	default:
		return false
	}
}

// objects returns all objects of an API server but those that stay, and what was written into each by its key.
func objects(ctx context.Context, rc *rest.Config) (written map[string]string, all []object, err error) {
	d, err := discovery.NewDiscoveryClientForConfig(rc)
	if err != nil {
		return nil, nil, err
	}
	c, err := dynamic.NewForConfig(rc)
	if err != nil {
		return nil, nil, err
	}
	kinds, err := d.ServerPreferredResources()
	if err != nil { // of a group that is going
		return nil, nil, err
	}
	written = map[string]string{}
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "delete"}}, kinds) {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, nil, err
		}
		for _, kind := range list.APIResources {
			found, err := c.Resource(gv.WithResource(kind.Name)).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, nil, err
			}
			for i := range found.Items {
				if o := (object{gv.WithResource(kind.Name), &found.Items[i]}); !stays(o) {
					written[o.key()], all = text(o.Object), append(all, o)
				}
			}
		}
	}
	return written, all, nil
}

// settled returns what was written into objects once an API server does not change them any more by itself: it
// aggregates the rules of ClusterRoles.
func settled(ctx context.Context, rc *rest.Config) (written map[string]string, err error) {
	ctx, cancel := context.WithTimeout(ctx, resetWithin)
	defer cancel()
	for ctx.Err() == nil {
		was := written
		if written, _, err = objects(ctx, rc); err == nil && maps.Equal(was, written) {
			return written, nil
		}
		time.Sleep(500 * time.Millisecond) //nolint:forbidigo // the API server keeps its own time
	}
	return nil, fmt.Errorf("the API server still changes objects: %w", cmp.Or(err, ctx.Err()))
}

// text is what was written into an object, as JSON: everything but its status and what the API server adds.
func text(content map[string]any) string {
	content = maps.Clone(content)
	delete(content, "status")
	if m, ok := content["metadata"].(map[string]any); ok {
		m = maps.Clone(m)
		for _, field := range []string{"uid", "creationTimestamp", "resourceVersion", "generation", "managedFields"} {
			delete(m, field)
		}
		content["metadata"] = m
	}
	out, _ := json.Marshal(content) // it was JSON
	return string(out)
}

// reset deletes all that an API server did not have at its start, writes what it had, and returns once everything is as
// it was then. It is an error if that takes too long.
func (s *spare) reset(ctx context.Context, rc *rest.Config) error {
	defer spent.On("resetting spare control planes", time.Now())
	ctx, cancel := context.WithTimeout(ctx, resetWithin)
	defer cancel()
	c, err := dynamic.NewForConfig(rc)
	if err != nil {
		return err
	}
	var differs string
	for ; ctx.Err() == nil; time.Sleep(200 * time.Millisecond) { //nolint:forbidigo // the API server keeps its own time
		now, all, err := objects(ctx, rc)
		if err != nil {
			continue
		}
		if differs = s.difference(now); differs == "" {
			return nil
		}
		slices.SortStableFunc(all, func(a, b object) int { return rank(a) - rank(b) })
		versions := map[string]string{}
		for _, o := range all {
			versions[o.key()] = o.GetResourceVersion()
			if _, kept := s.Objects[o.key()]; !kept {
				remove(ctx, c, o)
			}
		}
		for key, was := range s.Objects {
			if was != now[key] {
				restore(ctx, c, key, was, versions[key])
			}
		}
	}
	return fmt.Errorf("it is not as it was: %s", differs)
}

// difference says how objects differ from those of the start; empty if they do not.
func (s *spare) difference(now map[string]string) string {
	var out strings.Builder
	for key, content := range now {
		if was, kept := s.Objects[key]; !kept {
			fmt.Fprintf(&out, "%s is new; ", key)
		} else if was != content {
			fmt.Fprintf(&out, "%s has changed; ", key)
		}
	}
	for key := range s.Objects {
		if _, there := now[key]; !there {
			fmt.Fprintf(&out, "%s is gone; ", key)
		}
	}
	return out.String()
}

// rank deletes policies and webhooks first, since they may refuse what follows, and definitions last.
func rank(o object) int {
	switch {
	case o.Group == "admissionregistration.k8s.io":
		return 0
	case o.Resource == "customresourcedefinitions", o.Resource == "namespaces":
		return 2
	default:
		return 1
	}
}

// of is the client of an object's kind and namespace.
func (o object) of(c dynamic.Interface) dynamic.ResourceInterface {
	if o.GetNamespace() != "" {
		return c.Resource(o.GroupVersionResource).Namespace(o.GetNamespace())
	}
	return c.Resource(o.GroupVersionResource)
}

// restore writes an object as it was at the start. What the API server refuses now is tried again by the next look.
func restore(ctx context.Context, c dynamic.Interface, key, was, version string) {
	o := object{Unstructured: &unstructured.Unstructured{}}
	if json.Unmarshal([]byte(was), &o.Object) != nil {
		return
	}
	kind, _, _ := strings.Cut(key, " ")
	o.GroupVersionResource = schema.ParseGroupResource(kind).WithVersion(o.GroupVersionKind().Version)
	if o.SetResourceVersion(version); version == "" {
		_, _ = o.of(c).Create(ctx, o.Unstructured, metav1.CreateOptions{})
	} else {
		_, _ = o.of(c).Update(ctx, o.Unstructured, metav1.UpdateOptions{})
	}
}

// remove deletes an object, whatever finalizers it has. What the API server refuses now is tried again by the next
// look.
func remove(ctx context.Context, c dynamic.Interface, o object) {
	in := o.of(c)
	if len(o.GetFinalizers()) > 0 && rank(o) != 2 {
		_, _ = in.Patch(ctx, o.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	}
	if o.GetDeletionTimestamp() == nil {
		_ = in.Delete(ctx, o.GetName(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	}
}
