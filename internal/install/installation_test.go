package install

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"chancery.dev/internal/controller/trustbundles"
)

// printed is what an installation prints, as text and by object.
func printed(t *testing.T, i Installation) (text string, objects []*unstructured.Unstructured) {
	t.Helper()
	var out bytes.Buffer
	if err := i.Print(&out); err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(strings.TrimPrefix(out.String(), "---\n"), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
		objects = append(objects, object)
	}
	return out.String(), objects
}

func idOf(o *unstructured.Unstructured) string {
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

// everything is an installation of all that there is.
func everything() Installation {
	i := DefaultInstallation()
	i.Controller, i.Responder, i.Injecting, i.Webhook = true, true, InjectingController, WebhookFail
	return i
}

// TestPrint: what is printed is the same each time, begins with the definitions, has each object once, and no status,
// no empty fields and no objects too large for kubectl apply. All that an object refers to by name is there before it.
func TestPrint(t *testing.T) {
	t.Parallel()
	team := everything()
	team.Namespace, team.NamePrefix, team.LeaderElectionNamespace = "team", "team-", "leases"
	some := DefaultInstallation()
	some.Namespace, some.NamePrefix, some.OnlyNamespaces, some.Controller, some.Responder = "some", "some-", []string{"b", "a"}, true, true
	for name, i := range map[string]Installation{"default": DefaultInstallation(), "everything": everything(), "team": team, "some": some} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, objects := printed(t, i)
			if again, _ := printed(t, i); again != text {
				t.Error("it is printed in another way the second time")
			}
			seen, last := map[string]bool{}, "CustomResourceDefinition"
			for _, o := range objects {
				id := idOf(o)
				if seen[id] {
					t.Errorf("%s is there twice", id)
				}
				seen[id] = true
				if o.GetKind() == "CustomResourceDefinition" && last != o.GetKind() {
					t.Errorf("%s comes after a %s", id, last)
				}
				last = o.GetKind()
				compact, err := json.Marshal(o.Object)
				if err != nil {
					t.Fatal(err)
				}
				if most := 256 << 10; len(compact) > most {
					t.Errorf("%s has %d bytes, an annotation of kubectl apply has %d at most", id, len(compact), most)
				}
				if bytes.Contains(compact, []byte(":null")) || o.Object["status"] != nil {
					t.Errorf("%s has a status, or an empty field", id)
				}
				refers(t, o, seen)
			}
			if len(objects) < 15 {
				t.Errorf("there are %d objects only", len(objects))
			}
		})
	}
}

// refers checks that what an object refers to has been seen.
func refers(t *testing.T, o *unstructured.Unstructured, seen map[string]bool) {
	t.Helper()
	needs := func(kind, namespace, name string) {
		t.Helper()
		if id := kind + " " + namespace + "/" + name; name != "" && !seen[id] {
			t.Errorf("%s refers to %s, which is not there before it", idOf(o), id)
		}
	}
	text := func(path ...string) string {
		value, _, _ := unstructured.NestedString(o.Object, path...)
		return value
	}
	inside := func(kind string) string {
		if kind == "ClusterRole" {
			return ""
		}
		return o.GetNamespace()
	}
	needs(text("roleRef", "kind"), inside(text("roleRef", "kind")), text("roleRef", "name"))
	needs(strings.TrimSuffix(o.GetKind(), "Binding"), "", text("spec", "policyName"))
	needs("ServiceAccount", o.GetNamespace(), text("spec", "template", "spec", "serviceAccountName"))
	needs("ConfigMap", text("spec", "paramRef", "namespace"), text("spec", "paramRef", "name"))
	subjects, _, _ := unstructured.NestedSlice(o.Object, "subjects")
	hooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
	for _, entry := range append(subjects, hooks...) {
		entry := &unstructured.Unstructured{Object: entry.(map[string]any)}
		if service, is, _ := unstructured.NestedStringMap(entry.Object, "clientConfig", "service"); is {
			needs("Service", service["namespace"], service["name"])
			continue
		}
		// The process of the CA injector is not installed, its account is bound before it is made.
		if name := fmt.Sprint(entry.Object["name"]); name != "cert-manager-cainjector" {
			needs("ServiceAccount", fmt.Sprint(entry.Object["namespace"]), name)
		}
	}
}

// TestPrintForAnotherNamespace: an installation with a namespace and a prefix has no object in common with the default
// one but the definitions, and names nothing of that.
func TestPrintForAnotherNamespace(t *testing.T) {
	t.Parallel()
	_, first := printed(t, everything())
	i := everything()
	i.Namespace, i.NamePrefix, i.LeaderElectionNamespace = "team", "team-", "leases"
	_, second := printed(t, i)
	if len(first) != len(second) {
		t.Errorf("%d objects, by default %d", len(second), len(first))
	}
	for _, o := range second {
		id := idOf(o)
		if o.GetKind() != "CustomResourceDefinition" && slices.ContainsFunc(first, func(f *unstructured.Unstructured) bool { return idOf(f) == id }) {
			t.Errorf("%s is that of the default installation", id)
		}
		if o.GetKind() == "CustomResourceDefinition" {
			continue
		}
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{"namespace: cert-manager\n", "kube-system", "cert-manager/", "serviceaccount:cert-manager", "cert-manager.svc"} {
			if strings.Contains(strings.ReplaceAll(string(text), "cert-manager.io/", ""), word) {
				t.Errorf("%s names %s:\n%s", id, word, text)
			}
		}
	}
	if at := slices.IndexFunc(second, func(o *unstructured.Unstructured) bool {
		return idOf(o) == "Role leases/team-chancery-controller-leaderelection"
	}); at < 0 {
		t.Error("there is no right to the lease in its namespace")
	}
}

// TestPrintInSomeNamespaces: an installation for some namespaces gives no right in the cluster but the verbs approve
// and issue, and shares nothing with an installation for the cluster.
func TestPrintInSomeNamespaces(t *testing.T) {
	t.Parallel()
	_, whole := printed(t, everything())
	i := DefaultInstallation()
	i.Namespace, i.NamePrefix, i.OnlyNamespaces, i.Controller, i.Responder = "team", "team-", []string{"shop"}, true, true
	text, objects := printed(t, i)
	bound := map[string]bool{}
	for _, o := range objects {
		id := idOf(o)
		if slices.ContainsFunc(whole, func(f *unstructured.Unstructured) bool { return idOf(f) == id }) {
			t.Errorf("%s is in both", id)
		}
		if role, _, _ := unstructured.NestedString(o.Object, "roleRef", "name"); o.GetKind() == "ClusterRoleBinding" && role != "team-chancery-namespaced-controller" {
			t.Errorf("%s gives %s in the cluster", id, role)
		}
		bound[id] = true
	}
	for _, id := range []string{
		"RoleBinding shop/team-chancery-controller-namespaced", "RoleBinding team/chancery-controller-namespaced",
		"RoleBinding shop/team-chancery-responder-namespaced", "ClusterRoleBinding /team-chancery-namespaced-controller",
		"Role team/chancery-controller-leaderelection",
	} {
		if !bound[id] {
			t.Errorf("there is no %s", id)
		}
	}
	for _, arg := range []string{"- --namespace=shop\n", "- --leader-election-namespace=team\n", "- --acme-http01-responder=team/chancery-responder\n"} {
		if !strings.Contains(text, arg) {
			t.Errorf("no process has %s", arg)
		}
	}
}

// TestPrintInNamespacesOfDefaults: the namespaces that an installation would have by default are namespaces as others
// are where they are named to work in.
func TestPrintInNamespacesOfDefaults(t *testing.T) {
	t.Parallel()
	for where, only := range map[string][]string{"team": {"kube-system", "cert-manager"}, "kube-system": {"shop", "cert-manager"}} {
		i := DefaultInstallation()
		i.Namespace, i.NamePrefix, i.OnlyNamespaces, i.LeaderElectionNamespace = where, "team-", only, "leases"
		_, objects := printed(t, i)
		var got []string
		for _, o := range objects {
			if strings.HasSuffix(o.GetName(), "chancery-controller-namespaced") {
				got = append(got, o.GetNamespace()+"/"+o.GetName())
			}
		}
		want := []string{where + "/chancery-controller-namespaced"}
		for _, namespace := range only {
			want = append(want, namespace+"/team-chancery-controller-namespaced")
		}
		slices.Sort(got)
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Errorf("in %s, for %v: rights are given by %v, want %v", where, only, got, want)
		}
	}
}

// TestPrintForKubernetes: a cluster before 1.36 gets no policies that it does not serve.
func TestPrintForKubernetes(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{"": true, "1.36": true, "v1.36.2": true, "1.40": true, "1.35.9": false, "1.30": false} {
		i := DefaultInstallation()
		i.KubernetesVersion = version
		if text, _ := printed(t, i); strings.Contains(text, "kind: MutatingAdmissionPolicy\n") != want || strings.Contains(text, "kind: MutatingAdmissionPolicyBinding\n") != want {
			t.Errorf("%s: the policy is there: %t", version, !want)
		}
	}
}

// TestInstallationIsChecked: a value that is wrong is refused by the name of its flag, before anything is printed.
func TestInstallationIsChecked(t *testing.T) {
	t.Parallel()
	for flag, set := range map[string]func(*Installation){
		"--namespace":                 func(i *Installation) { i.Namespace = "A" },
		"--name-prefix":               func(i *Installation) { i.NamePrefix = "Team-" },
		"--leader-election-namespace": func(i *Installation) { i.LeaderElectionNamespace = "a/b" },
		"--only-namespaces":           func(i *Installation) { i.OnlyNamespaces = []string{""} },
		"--cainjector nor --webhook":  func(i *Installation) { i.OnlyNamespaces, i.Webhook = []string{"a"}, WebhookFail },
		"--kubernetes-version":        func(i *Installation) { i.KubernetesVersion = "new" },
		"--webhook":                   func(i *Installation) { i.Webhook = "maybe" },
		"--cainjector":                func(i *Installation) { i.Injecting = "maybe" },
	} {
		i := DefaultInstallation()
		set(&i)
		var out bytes.Buffer
		if err := i.Print(&out); err == nil || !strings.Contains(err.Error(), flag) || out.Len() > 0 {
			t.Errorf("%s: %v, after %d bytes", flag, err, out.Len())
		}
	}
}

// TestOwnTokens: the controller may ask for tokens of its own service account only if that is installed.
func TestOwnTokens(t *testing.T) {
	t.Parallel()
	i := DefaultInstallation()
	if text, _ := printed(t, i); strings.Contains(text, "serviceaccounts/token") {
		t.Error("the right is there by default")
	}
	i.OwnTokens, i.Namespace = true, "certs"
	_, objects := printed(t, i)
	var found []string
	for _, o := range objects {
		if rules := fmt.Sprint(o.Object["rules"]); strings.Contains(rules, "serviceaccounts/token") {
			found = append(found, idOf(o)+" "+rules)
		}
	}
	if len(found) != 1 || !strings.HasPrefix(found[0], "Role certs/chancery-controller ") || !strings.Contains(found[0], "resourceNames:[cert-manager] resources:[serviceaccounts/token] verbs:[create]") {
		t.Errorf("%q", found)
	}
}

// TestPodRights: the controller may read and sign requests of Pods only if that is installed, and does then.
func TestPodRights(t *testing.T) {
	t.Parallel()
	i := DefaultInstallation()
	i.Controller = true
	for _, wanted := range []bool{false, true} {
		i.PodCertificates = wanted
		_, objects := printed(t, i)
		reads, writes, runs := "", "", ""
		for _, o := range objects {
			text := fmt.Sprint(o.Object)
			for what, into := range map[string]*string{
				"[apiGroups:[certificates.k8s.io] resources:[podcertificaterequests] verbs:[get list watch]]": &reads,
				"[apiGroups:[certificates.k8s.io] resources:[podcertificaterequests/status] verbs:[patch]]":   &writes, " --pod-certificates": &runs,
			} {
				if strings.Contains(text, what) {
					*into += idOf(o)
				}
			}
		}
		const role = "ClusterRole /chancery-controller"
		if wanted && (reads != role || writes != role || !strings.HasPrefix(runs, "Deployment ")) || !wanted && reads+writes+runs != "" {
			t.Errorf("%t: read by %q, written by %q, signed by %q", wanted, reads, writes, runs)
		}
	}
	i.OnlyNamespaces = []string{"shop"}
	if err := i.Print(&bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "pod-certificates") {
		t.Errorf("in some namespaces: %v", err)
	}
}

// TestTrustBundleRights: the controller may write ClusterTrustBundles only if that is installed, and those of Issuers
// only if these are meant, and does then.
func TestTrustBundleRights(t *testing.T) {
	t.Parallel()
	i := DefaultInstallation()
	i.Controller = true
	for of, want := range map[trustbundles.Issuers]string{
		"": "", trustbundles.None: "",
		trustbundles.ClusterIssuers: "--trust-bundles=cluster-issuers; [cert-manager.io/* clusterissuers.cert-manager.io/*] [attest]; [clustertrustbundles] [list watch create patch delete]",
		trustbundles.All:            "--trust-bundles=all; [cert-manager.io/* clusterissuers.cert-manager.io/* issuers.cert-manager.io/*] [attest]; [clustertrustbundles] [list watch create patch delete]",
	} {
		i.TrustBundles = of
		_, objects := printed(t, i)
		var found []string
		for _, o := range objects {
			rules, _, _ := unstructured.NestedSlice(o.Object, "rules")
			for _, rule := range rules {
				r := rule.(map[string]any)
				switch text := fmt.Sprint(r["resources"], r["verbs"]); {
				case strings.Contains(text, "attest") && idOf(o) == "ClusterRole /chancery-controller":
					found = append(found, fmt.Sprint(r["resourceNames"], " ", r["verbs"]))
				case strings.Contains(text, "clustertrustbundles") && idOf(o) == "ClusterRole /chancery-controller":
					found = append(found, fmt.Sprint(r["resources"], " ", r["verbs"]))
				case strings.Contains(text, "attest"), strings.Contains(text, "clustertrustbundles"):
					t.Errorf("%s has %v", idOf(o), rule)
				}
			}
			if _, flag, runs := strings.Cut(fmt.Sprint(o.Object), " --trust-bundles="); runs {
				found = append(found, "--trust-bundles="+flag[:strings.IndexAny(flag, " ]")])
			}
		}
		slices.Sort(found)
		if got := strings.Join(found, "; "); got != want && of != "" && of != trustbundles.None || len(found) > 0 && want == "" {
			t.Errorf("%q: %s, want %s", of, got, want)
		}
	}
	i.TrustBundles = "some"
	if err := i.Print(&bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "trust-bundles") {
		t.Errorf("another word: %v", err)
	}
	i.TrustBundles, i.OnlyNamespaces = trustbundles.All, []string{"shop"}
	if err := i.Print(&bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "trust-bundles") {
		t.Errorf("in some namespaces: %v", err)
	}
}

// TestContainersKnowTheirLimit: the garbage collector of each container is told the container's limit of memory.
func TestContainersKnowTheirLimit(t *testing.T) {
	t.Parallel()
	_, objects := printed(t, everything())
	deployments := 0
	for _, o := range objects {
		if o.GetKind() != "Deployment" {
			continue
		}
		d := &appsv1.Deployment{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, d); err != nil {
			t.Fatal(err)
		}
		deployments++
		for _, c := range d.Spec.Template.Spec.Containers {
			told := slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
				return e.Name == "CHANCERY_MEMORY_LIMIT" && e.ValueFrom != nil && e.ValueFrom.ResourceFieldRef != nil &&
					e.ValueFrom.ResourceFieldRef.Resource == "limits.memory"
			})
			if !told || c.Resources.Limits.Memory().IsZero() {
				t.Errorf("container %s of %s: told %v, limits %v", c.Name, idOf(o), told, c.Resources.Limits)
			}
		}
	}
	if deployments < 3 {
		t.Errorf("%d Deployments, want those of controller, responder and webhook", deployments)
	}
}
