// Package install installs Chancery: the definitions, the policies, the roles, and the Deployments of its processes. It
// also asks an API server whether what is installed is right.
package install

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"

	"chancery.dev/api"
	"chancery.dev/internal/controller/trustbundles"
	"chancery.dev/internal/findings"
	"chancery.dev/internal/kube/requesterwebhook"
)

//go:generate go tool -modfile=../../tools/go.mod controller-gen rbac:roleName=chancery-controller,fileName=controller-role.yaml paths=../... output:rbac:dir=manifests

// manifests are what is installed beside the definitions and the policies; the role of the controller is generated from
// the markers beside the code that needs its rights. They are for the namespace defaultNamespace, with leases in
// defaultLeaseNamespace.
//
//go:embed manifests
var manifests embed.FS

const (
	defaultNamespace      = "cert-manager"
	defaultLeaseNamespace = "kube-system"
	// accountName is the service account of the controller.
	accountName = "cert-manager"
)

// DefaultImage is the image of chancery if the user names no other. No registry has DefaultImage: somebody has to put
// it on the nodes.
const DefaultImage = "localhost/chancery:latest"

// ResponderName is the name of the installed responder's Service, and of its other objects. A controller without the
// flag for a responder looks for the Service of this name: see ACMEConfig.HTTP01Responder.
const ResponderName = "chancery-responder"

// Installation says what is installed, where, and under which names. DefaultInstallation has the defaults.
type Installation struct {
	// Namespace holds the processes, and all that only they need.
	Namespace string
	// LeaderElectionNamespace holds the leases. Empty means kube-system, or Namespace if OnlyNamespaces are named.
	LeaderElectionNamespace string
	// OnlyNamespaces are the namespaces that the controller works in; empty means all. If some are named, the objects
	// of which a cluster has one are left out: the definitions, the policies and the roles for users.
	OnlyNamespaces []string
	// NamePrefix begins the names of what is outside of Namespace, but for the definitions.
	NamePrefix string

	// Image is the image of all pods. Empty means the image that a Deployment has already, or else DefaultImage.
	Image string
	// Controller and Responder say whether Deployments of these are made.
	Controller, Responder bool
	// Injecting says which process injects CA bundles.
	Injecting Injecting
	// Webhook says whether there is a webhook.
	Webhook WebhookPolicy
	// PodCertificates and TrustBundles are those of the controller's Config, and the rights for them.
	PodCertificates bool
	TrustBundles    trustbundles.Issuers
	// OwnTokens lets the controller ask for tokens of its own service account, for Vault issuers that name it.
	OwnTokens bool

	// ForceConflicts takes over the fields that others manage.
	ForceConflicts bool
	// KubernetesVersion is the version of the cluster for which Print prints. Empty means a version whose policies can
	// fill in who makes a CertificateRequest.
	KubernetesVersion string
}

// DefaultInstallation installs no Deployments, and takes nothing from others.
func DefaultInstallation() Installation {
	return Installation{Namespace: defaultNamespace, Injecting: InjectingNone, Webhook: WebhookNone}
}

// validate returns everything that is wrong, by flag.
func (i *Installation) validate() error {
	var f findings.Findings
	f.Namespace("namespace", i.Namespace)
	f.Namespace("leader-election-namespace", i.leaseNamespace())
	for _, name := range i.OnlyNamespaces {
		f.Namespace("only-namespaces", name)
	}
	if len(validation.IsDNS1123Subdomain(i.NamePrefix+"x")) > 0 {
		f.Add("name-prefix", "must begin a name, such as team-, not %q", i.NamePrefix)
	}
	if err := i.Injecting.Validate(); err != nil {
		f.Add("cainjector", "%w", err)
	}
	if err := i.Webhook.Validate(); err != nil {
		f.Add("webhook", "%w", err)
	}
	if len(i.OnlyNamespaces) > 0 && (i.Injecting != InjectingNone || i.Webhook != WebhookNone) {
		f.Add("only-namespaces", "goes with neither --cainjector nor --webhook: these work in the whole cluster")
	}
	if err := i.TrustBundles.Validate(); err != nil {
		f.Add("trust-bundles", "%w", err)
	}
	if len(i.OnlyNamespaces) > 0 && (i.PodCertificates || i.TrustBundles.Any()) {
		f.Add("only-namespaces", "goes with neither --pod-certificates nor --trust-bundles: these are for the whole cluster")
	}
	if _, err := version.ParseGeneric(i.KubernetesVersion); i.KubernetesVersion != "" && err != nil {
		f.Add("kubernetes-version", "%w", err)
	}
	return errors.Join(f...)
}

func (i *Installation) leaseNamespace() string {
	if len(i.OnlyNamespaces) > 0 {
		return cmp.Or(i.LeaderElectionNamespace, i.Namespace)
	}
	return cmp.Or(i.LeaderElectionNamespace, defaultLeaseNamespace)
}

// Print writes all that Apply applies as YAML, in the same order, and asks no cluster. The table of kinds of external
// issuers is empty: the controller fills it.
func (i *Installation) Print(to io.Writer) error {
	all, err := i.objects()
	if err != nil {
		return err
	}
	if i.KubernetesVersion != "" && version.MustParseGeneric(i.KubernetesVersion).LessThan(version.MajorMinor(1, 36)) {
		all.policies = slices.DeleteFunc(all.policies, mutates)
	}
	for _, object := range all.list() {
		text, err := yaml.Marshal(object.Object)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(to, "---\n%s", text); err != nil {
			return err
		}
	}
	return nil
}

// parts are the objects of an installation, in the order in which they are applied. The last of the base is the table
// of kinds of external issuers, which the policies read.
type parts struct{ definitions, base, policies, workloads []*unstructured.Unstructured }

func (p *parts) list() []*unstructured.Unstructured {
	return slices.Concat(p.definitions, p.base, p.policies, p.workloads)
}

// Objects returns all objects that Apply applies, for a caller who saves their earlier state. Apply may give a policy
// that mutates another API version, on a cluster that does not serve this one.
func (i *Installation) Objects() ([]*unstructured.Unstructured, error) {
	all, err := i.objects()
	if err != nil {
		return nil, err
	}
	return all.list(), nil
}

func (i *Installation) objects() (*parts, error) {
	if err := i.validate(); err != nil {
		return nil, err
	}
	all := &parts{}
	base, err := readManifests("manifests/*.yaml")
	if err != nil {
		return nil, err
	}
	if len(i.OnlyNamespaces) == 0 {
		if all.definitions, err = definitionObjects(); err != nil {
			return nil, err
		}
		if all.policies, err = api.Policies(); err != nil {
			return nil, err
		}
	}
	for _, more := range i.moreRights() {
		if err := more.grant(base); err != nil {
			return nil, err
		}
	}
	injector, err := i.injectorObjects()
	if err != nil {
		return nil, err
	}
	base = append(base, injector...)
	table := &unstructured.Unstructured{Object: map[string]any{}}
	table.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	table.SetName(api.ExternalIssuersName)
	table.SetNamespace(defaultNamespace)
	if all.workloads, err = i.workloads(); err != nil {
		return nil, err
	}
	for _, policy := range all.policies {
		withDefaults(policy)
	}
	for _, object := range slices.Concat(base, []*unstructured.Unstructured{table}, all.policies, all.workloads) {
		i.place(object)
	}
	if len(i.OnlyNamespaces) > 0 {
		base = i.inNamespaces(base)
	}
	slices.SortStableFunc(base, func(a, b *unstructured.Unstructured) int { // a binding comes after its role
		return cmp.Compare(strings.Count(a.GetKind(), "Binding"), strings.Count(b.GetKind(), "Binding"))
	})
	all.base = append(base, table)
	return all, nil
}

// onDemand is a right that the controller gets on demand only.
type onDemand struct {
	kind, role string
	rule       map[string]any
}

// moreRights are those that the installation asks for. Roots may be written for all issuers of a kind.
func (i *Installation) moreRights() (all []onDemand) {
	rule := func(group, resource string, verbs ...any) map[string]any {
		return map[string]any{"apiGroups": []any{group}, "resources": []any{resource}, "verbs": verbs}
	}
	if i.OwnTokens {
		own := rule("", "serviceaccounts/token", "create")
		own["resourceNames"] = []any{accountName}
		all = append(all, onDemand{"Role", "chancery-controller", own})
	}
	if i.PodCertificates {
		all = append(all, onDemand{"ClusterRole", "chancery-controller", rule("certificates.k8s.io", "podcertificaterequests", "get", "list", "watch")},
			onDemand{"ClusterRole", "chancery-controller", rule("certificates.k8s.io", "podcertificaterequests/status", "patch")})
	}
	if i.TrustBundles.Any() {
		attest := rule("certificates.k8s.io", "signers", "attest")
		attest["resourceNames"] = i.TrustBundles.Signers()
		all = append(all, onDemand{"ClusterRole", "chancery-controller", rule("certificates.k8s.io", "clustertrustbundles", "list", "watch", "create", "patch", "delete")},
			onDemand{"ClusterRole", "chancery-controller", attest})
	}
	return all
}

// grant adds the right to the role.
func (r onDemand) grant(base []*unstructured.Unstructured) error {
	at := slices.IndexFunc(base, func(o *unstructured.Unstructured) bool { return o.GetKind() == r.kind && o.GetName() == r.role })
	rules, _, err := unstructured.NestedSlice(base[at].Object, "rules")
	if err != nil {
		return err
	}
	return unstructured.SetNestedSlice(base[at].Object, append(rules, r.rule), "rules")
}

// definitionObjects are those of api.CRDs, as they are applied.
func definitionObjects() ([]*unstructured.Unstructured, error) {
	crds, err := api.CRDs()
	if err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	for _, crd := range crds {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
		if err != nil {
			return nil, err
		}
		delete(object, "status")
		out = append(out, &unstructured.Unstructured{Object: object})
	}
	return out, nil
}

// withDefaults adds the defaults of the API server to what a policy matches: that is one value to the API server, which
// would otherwise see a conflict between two tools that apply the same policy.
func withDefaults(policy *unstructured.Unstructured) {
	match, is, _ := unstructured.NestedMap(policy.Object, "spec", "matchConstraints")
	if !is {
		return
	}
	match["matchPolicy"], match["namespaceSelector"], match["objectSelector"] = "Equivalent", map[string]any{}, map[string]any{}
	rules, _, _ := unstructured.NestedSlice(match, "resourceRules")
	for _, rule := range rules {
		if rule, is := rule.(map[string]any); is {
			rule["scope"] = "*"
		}
	}
	match["resourceRules"] = rules
	_ = unstructured.SetNestedMap(policy.Object, match, "spec", "matchConstraints")
}

// inNamespaces returns the base of a controller that works in some namespaces only: the controller has its rights in
// these namespaces. The caller has set the names and namespaces of the objects before.
func (i *Installation) inNamespaces(base []*unstructured.Unstructured) []*unstructured.Unstructured {
	controller, cluster := i.NamePrefix+"chancery-controller", i.NamePrefix+"chancery-namespaced-controller"
	var out []*unstructured.Unstructured
	for _, object := range base {
		switch name := object.GetName(); object.GetKind() {
		case "ClusterRole":
			if slices.Contains([]string{controller, cluster, i.NamePrefix + ResponderName}, name) {
				out = append(out, object)
			}
		case "ClusterRoleBinding":
			for _, namespace := range slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(i.OnlyNamespaces), i.Namespace)))) {
				there := object.DeepCopy()
				there.SetKind("RoleBinding")
				there.SetNamespace(namespace)
				there.SetName(name + "-namespaced")
				if namespace == i.Namespace {
					there.SetName(strings.TrimPrefix(there.GetName(), i.NamePrefix))
				}
				out = append(out, there)
			}
			if name == controller {
				object.SetName(cluster)
				if role, is := object.Object["roleRef"].(map[string]any); is {
					role["name"] = cluster
				}
				out = append(out, object)
			}
		default:
			out = append(out, object)
		}
	}
	return out
}

// workloads are the Deployments, and what belongs to each.
func (i *Installation) workloads() ([]*unstructured.Unstructured, error) {
	only := strings.Join(i.OnlyNamespaces, ",")
	controller := []any{
		"--cluster-resource-namespace=" + i.Namespace, "--admission-namespace=" + i.Namespace,
		"--leader-election-namespace=" + i.leaseNamespace(), "--acme-http01-solver-image=" + cmp.Or(i.Image, DefaultImage),
	}
	responder := []any{}
	if only != "" {
		responder = append(responder, "--namespace="+only)
		controller = append(controller, "--namespace="+only, "--acme-http01-responder="+i.Namespace+"/"+ResponderName)
	}
	if i.Injecting == InjectingController {
		controller = append(controller, "--enable-cainjector")
	}
	if i.PodCertificates {
		controller = append(controller, "--pod-certificates")
	}
	if i.TrustBundles.Any() {
		controller = append(controller, "--trust-bundles="+string(i.TrustBundles))
	}
	webhook := []any{
		"--mutating-webhook-configuration=" + i.NamePrefix + requesterwebhook.Name, "--dynamic-serving-ca-secret-namespace=" + i.Namespace,
		fmt.Sprintf("--dynamic-serving-dns-names=%[1]s,%[1]s.%[2]s,%[1]s.%[2]s.svc", requesterwebhook.Name, i.Namespace),
	}
	var out []*unstructured.Unstructured
	for _, w := range []struct {
		wanted    bool
		directory string
		args      []any
	}{{i.Controller, "controller", controller}, {i.Responder, "responder", responder}, {i.Webhook != WebhookNone, "webhook", webhook}} {
		if !w.wanted {
			continue
		}
		objects, err := readManifests("manifests/" + w.directory + "/*.yaml")
		if err != nil {
			return nil, err
		}
		for _, object := range objects {
			if err := i.complete(object, w.args); err != nil {
				return nil, err
			}
		}
		out = append(out, objects...)
	}
	return out, nil
}

// complete sets what a manifest of a process leaves open.
func (i *Installation) complete(object *unstructured.Unstructured, args []any) error {
	switch object.GetKind() {
	case "Deployment":
		return editFirst(object, func(container map[string]any) {
			if container["image"] = cmp.Or(i.Image, DefaultImage); len(args) > 0 {
				container["args"] = args
			}
		}, containers...)
	case "ClusterRole": // of the webhook: which configuration it may write
		return editFirst(object, func(rule map[string]any) { rule["resourceNames"] = []any{i.NamePrefix + requesterwebhook.Name} }, "rules")
	case "MutatingWebhookConfiguration":
		word := strings.ToUpper(string(i.Webhook[:1])) + string(i.Webhook[1:])
		return editFirst(object, func(hook map[string]any) { hook["failurePolicy"] = word }, "webhooks")
	}
	return nil
}

// editFirst changes the first entry of a list.
func editFirst(object *unstructured.Unstructured, change func(entry map[string]any), path ...string) error {
	list, _, err := unstructured.NestedSlice(object.Object, path...)
	if err != nil {
		return err
	}
	if len(list) > 0 {
		if entry, is := list[0].(map[string]any); is {
			change(entry)
		}
	}
	return unstructured.SetNestedSlice(object.Object, list, path...)
}

// place puts an object into the namespaces of the installation, and gives it its names.
func (i *Installation) place(object *unstructured.Unstructured) {
	text := strings.NewReplacer("system:serviceaccount:"+defaultNamespace+":", "system:serviceaccount:"+i.Namespace+":",
		"ConfigMap "+defaultNamespace+"/", "ConfigMap "+i.Namespace+"/")
	replace(object.Object, func(key, value string) string {
		switch {
		case key == "namespace" && value == defaultNamespace:
			return i.Namespace
		case key == "namespace" && value == defaultLeaseNamespace:
			return i.leaseNamespace()
		case key == "policyName":
			return i.NamePrefix + value
		default:
			return text.Replace(value)
		}
	})
	outside := object.GetNamespace() != i.Namespace
	if object.GetKind() == "Namespace" {
		object.SetName(i.Namespace)
	} else if outside {
		object.SetName(i.NamePrefix + object.GetName())
	}
	if role, is := object.Object["roleRef"].(map[string]any); is && (outside || role["kind"] == "ClusterRole") {
		role["name"] = fmt.Sprint(i.NamePrefix, role["name"])
	}
}

// replace replaces the texts in a value, each of which is in the field key, or in the list in that field.
func replace(value map[string]any, by func(key, text string) string) {
	var walk func(key string, value any) any
	walk = func(key string, value any) any {
		switch v := value.(type) {
		case map[string]any:
			for k, inner := range v {
				v[k] = walk(k, inner)
			}
		case []any:
			for n, inner := range v {
				v[n] = walk(key, inner)
			}
		case string:
			return by(key, v)
		}
		return value
	}
	walk("", value)
}

// readManifests reads the embedded manifests that match, each of one or more documents.
func readManifests(pattern string) ([]*unstructured.Unstructured, error) {
	files, err := fs.Glob(manifests, pattern)
	if err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	for _, file := range files {
		text, err := manifests.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			object := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
				return nil, fmt.Errorf("embedded %s: %w", file, err)
			}
			if len(object.Object) > 0 {
				out = append(out, object)
			}
		}
	}
	return out, nil
}
