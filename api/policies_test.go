package api_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"chancery.dev/api"
)

// eventually polls until a condition holds.
func eventually(t *testing.T, what string, holds func(ctx context.Context) bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) { return holds(ctx), nil })
	if err != nil {
		t.Fatalf("%s: not within %s", what, patience)
	}
}

// waitForPolicies waits until each policy has been seen at work: the API server needs a moment to notice
// a new one.
func waitForPolicies(t *testing.T, d dynamic.Interface) {
	t.Helper()
	// A mutating policy refuses all until the API server has told it the schema.
	create := func(name string, status map[string]any) *unstructured.Unstructured {
		var made *unstructured.Unstructured
		eventually(t, name, func(ctx context.Context) bool {
			o := base(t, name)
			o.SetName("")
			o.SetGenerateName("policy-")
			o, err := resourceFor(d, o).Create(ctx, o, metav1.CreateOptions{})
			if err == nil && status != nil {
				o.Object["status"] = status
				o, err = resourceFor(d, o).UpdateStatus(ctx, o, metav1.UpdateOptions{})
			}
			made = o
			return err == nil
		})
		return made
	}
	dry := metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}
	order, challenge, request := create("order", placedOrder()), create("challenge", nil), create("request", nil)
	edit(t, order, changes{"status.authorizations": nil})
	eventually(t, "order-status", func(ctx context.Context) bool {
		_, err := resourceFor(d, order).UpdateStatus(ctx, order, dry)
		return err != nil
	})
	edit(t, challenge, changes{"spec.solver.dns01.webhook.config": nil})
	eventually(t, "challenge-spec", func(ctx context.Context) bool {
		_, err := resourceFor(d, challenge).Update(ctx, challenge, dry)
		return err != nil
	})
	edit(t, request, changes{"metadata.annotations": map[string]any{"cert-manager.io/x": "y"}})
	eventually(t, "certificaterequest-annotations", func(ctx context.Context) bool {
		_, err := resourceFor(d, request).Update(ctx, request, dry)
		return err != nil
	})
	eventually(t, "certificaterequest-identity", func(ctx context.Context) bool { return fillsIn(ctx, t, d) })
}

// fillsIn reports whether the API server fills in who makes a request.
func fillsIn(ctx context.Context, t *testing.T, d dynamic.Interface) bool {
	t.Helper()
	o := base(t, "request")
	o, err := resourceFor(d, o).Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatal(err)
	}
	name, _, _ := unstructured.NestedString(o.Object, "spec", "username")
	return name != ""
}

func grant(t *testing.T, d dynamic.Interface, name, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	role := &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules,
	}
	binding := &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: "rbac.authorization.k8s.io", Kind: "User", Name: user}},
	}
	for resource, o := range map[string]any{"clusterroles": role, "clusterrolebindings": binding} {
		u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			t.Fatal(err)
		}
		gvr := rbacv1.SchemeGroupVersion.WithResource(resource)
		if _, err := d.Resource(gvr).Create(t.Context(), &unstructured.Unstructured{Object: u}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// requests lets a user do all with CertificateRequests.
func requests() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{"cert-manager.io"}, Resources: []string{"certificaterequests", "certificaterequests/status"}, Verbs: []string{"*"},
	}
}

// signers lets a user approve for signers.
func signers(names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{"cert-manager.io"}, Resources: []string{"signers"}, Verbs: []string{"approve"}, ResourceNames: names,
	}
}

func TestIdentityIsFilledIn(t *testing.T) {
	admin := client(t)
	grant(t, admin, "identity", "ann", requests())
	ann := clientAs(t, "ann")
	for name, set := range map[string]changes{
		"left empty": nil,
		"foreign": {
			"spec.username": "bob", "spec.uid": "1", "spec.groups": strs("system:masters"),
			"spec.extra": map[string]any{"x": strs("y")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := base(t, "request")
			edit(t, o, set)
			var got *unstructured.Unstructured
			eventually(t, "permission", func(ctx context.Context) bool {
				var err error
				got, err = resourceFor(ann, o).Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				return err == nil
			})
			want := base(t, "request")
			edit(t, want, changes{
				"spec.username": "ann", "spec.uid": "uid-of-ann", "spec.groups": strs("testers", "system:authenticated"),
				"spec.extra": map[string]any{"example.com/scopes": strs("one", "two")},
			})
			if diff := cmp.Diff(want.Object["spec"], got.Object["spec"]); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
		})
	}
}

// TestForeignIdentityIsRefused takes the filling in away, as on API servers before 1.36.
func TestForeignIdentityIsRefused(t *testing.T) {
	d := client(t)
	policies, err := api.Policies()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range policies {
		if p.GetKind() != "MutatingAdmissionPolicyBinding" {
			continue
		}
		r := d.Resource(p.GroupVersionKind().GroupVersion().WithResource(resourceOf(p.GetKind())))
		if err := r.Delete(t.Context(), p.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx := context.WithoutCancel(t.Context())
			if _, err := r.Create(ctx, p, metav1.CreateOptions{}); err != nil {
				t.Error(err)
			}
			err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true,
				func(ctx context.Context) (bool, error) { return fillsIn(ctx, t, d), nil })
			if err != nil {
				t.Errorf("filling in does not come back: %v", err)
			}
		})
	}
	create := func(ctx context.Context, set changes) (*unstructured.Unstructured, error) {
		o := base(t, "request")
		edit(t, o, set)
		return resourceFor(d, o).Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	}
	eventually(t, "no more filling in", func(ctx context.Context) bool { return !fillsIn(ctx, t, d) })
	for _, c := range []struct {
		name string
		set  changes
		want string
	}{
		{"empty", nil, ""},
		{"own", changes{"spec.username": "kubernetes-admin"}, ""},
		{"foreign user", changes{"spec.username": "bob"}, "spec.username: must be your own"},
		{"foreign uid", changes{"spec.uid": "1"}, "spec.uid: must be your own"},
		{"foreign groups", changes{"spec.groups": strs("nobody")}, "spec.groups: must be your own"},
		{"foreign extra", changes{"spec.extra": map[string]any{"x": strs("y")}}, "spec.extra: must be your own"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := create(t.Context(), c.set)
			check(t, err, c.want)
		})
	}
}

func TestApprovalNeedsPermission(t *testing.T) {
	admin := client(t)
	const denied = `Forbidden: user "%" does not have permissions to set approved/denied conditions for issuer `
	for i, c := range []struct {
		name    string
		issuer  map[string]any
		signers []string
		want    string
	}{
		{"nothing", map[string]any{"name": "ca"}, nil, denied + "{ca Issuer cert-manager.io}"},
		{"all issuers", map[string]any{"name": "ca"}, []string{"issuers.cert-manager.io/*"}, ""},
		{"the issuer", map[string]any{"name": "ca"}, []string{"issuers.cert-manager.io/default.ca"}, ""},
		{"another namespace's", map[string]any{"name": "ca"}, []string{"issuers.cert-manager.io/other.ca"}, denied + "{ca Issuer cert-manager.io}"},
		{"all cluster issuers", map[string]any{"name": "ca", "kind": "ClusterIssuer"}, []string{"clusterissuers.cert-manager.io/*"}, ""},
		{"the cluster issuer", map[string]any{"name": "ca", "kind": "ClusterIssuer"}, []string{"clusterissuers.cert-manager.io/ca"}, ""},
		{"another kind", map[string]any{"name": "ca", "kind": "ClusterIssuer"}, []string{"issuers.cert-manager.io/*"}, denied + "{ca ClusterIssuer cert-manager.io}"},
		{"unknown kind", map[string]any{"name": "x", "kind": "Foo", "group": "example.com"}, []string{"foos.example.com/*"}, "Forbidden: referenced signer resource does not exist: {x Foo example.com}"},
		{"known kind, all", step("Step"), []string{"stepissuers.certmanager.step.sm/*"}, ""},
		{"known kind, one", step("Step"), []string{"stepissuers.certmanager.step.sm/default.x"}, ""},
		{"known kind, by its name alone", step("Step"), []string{"stepissuers.certmanager.step.sm/x"}, denied + "{x StepIssuer certmanager.step.sm}"},
		{"known kind, another group", step("Step"), []string{"stepissuers.example.com/*"}, denied + "{x StepIssuer certmanager.step.sm}"},
		{"known cluster kind, one", step("StepCluster"), []string{"stepclusterissuers.certmanager.step.sm/x"}, ""},
		{"known cluster kind, as if namespaced", step("StepCluster"), []string{"stepclusterissuers.certmanager.step.sm/default.x"}, denied + "{x StepClusterIssuer certmanager.step.sm}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			user := "approver-" + string(rune('a'+i))
			rules := []rbacv1.PolicyRule{requests()}
			if c.signers != nil {
				rules = append(rules, signers(c.signers...))
			}
			grant(t, admin, user, user, rules...)
			approve(t, admin, clientAs(t, user), user, c.issuer, c.want)
		})
	}
}

// step is an issuer of a kind that the table knows from the start.
func step(prefix string) map[string]any {
	return map[string]any{"name": "x", "kind": prefix + "Issuer", "group": "certmanager.step.sm"}
}

// TestExternalKindsCanBeAdded: an operator adds a kind whose plural nobody would guess, and it counts.
func TestExternalKindsCanBeAdded(t *testing.T) {
	admin := client(t)
	issuer := map[string]any{"name": "x", "kind": "Policy", "group": "added.example.com"}
	table := admin.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(api.ExternalIssuersNamespace)
	set := func(value string) {
		patch := `{"data":{"Policy.added.example.com":` + value + `}}`
		if _, err := table.Patch(t.Context(), api.ExternalIssuersName, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	grant(t, admin, "added", "added", requests(), signers("policies.added.example.com/default.x"))
	// says waits until approving is answered so; the table is read through a watch.
	says := func(want string) {
		o := base(t, "request")
		o.SetName("")
		o.SetGenerateName("added-")
		edit(t, o, changes{"spec.issuerRef": issuer})
		o, err := resourceFor(admin, o).Create(t.Context(), o, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		o.Object["status"] = conditions(condition("Approved", "True"))
		as := clientAs(t, "added")
		eventually(t, want, func(ctx context.Context) bool {
			_, err := resourceFor(as, o).UpdateStatus(ctx, o, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
			return want == "" && err == nil || want != "" && err != nil && strings.Contains(err.Error(), want)
		})
	}
	says(`referenced signer resource does not exist: {x Policy added.example.com}`)
	set(`"policies Namespaced"`)
	says("")
	set(`"policies"`)
	says(`key Policy.added.example.com: must be "<plural> Namespaced" or "<plural> Cluster", not "policies"`)
	set(`null`)
	says(`referenced signer resource does not exist`)
}

// approve lets a user approve a new request, and checks what the API server says.
func approve(t *testing.T, admin, as dynamic.Interface, user string, issuer map[string]any, want string) {
	t.Helper()
	o := base(t, "request")
	o.SetName("")
	o.SetGenerateName("approve-")
	edit(t, o, changes{"spec.issuerRef": issuer})
	o, err := resourceFor(admin, o).Create(t.Context(), o, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "permission", func(ctx context.Context) bool {
		_, err := resourceFor(as, o).Get(ctx, o.GetName(), metav1.GetOptions{})
		return err == nil
	})
	o.Object["status"] = conditions(condition("Ready", "False"))
	o, err = resourceFor(as, o).UpdateStatus(t.Context(), o, metav1.UpdateOptions{})
	if err != nil {
		t.Fatalf("other conditions need no permission: %v", err)
	}
	for _, kind := range []string{"Approved", "Denied"} {
		o.Object["status"] = conditions(condition("Ready", "False"), condition(kind, "True"))
		_, err := resourceFor(as, o).UpdateStatus(t.Context(), o, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		checkEnd(t, err, want, user)
	}
}

// TestOrdersAndChallengesNeedPermission: to create an Order or a Challenge takes the verb issue in the whole cluster,
// beside the right to create it.
func TestOrdersAndChallengesNeedPermission(t *testing.T) {
	admin := client(t)
	acme := func(verb string, resources ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{"acme.cert-manager.io"}, Resources: resources, Verbs: []string{verb}}
	}
	all := acme("create", "orders", "challenges")
	grant(t, admin, "creates", "creates", all)
	grant(t, admin, "places", "places", all, acme("issue", "orders"))
	grant(t, admin, "solves", "solves", all, acme("issue", "challenges"))
	for user, may := range map[string]string{"creates": "", "places": "order", "solves": "challenge"} {
		as := clientAs(t, user)
		for _, kind := range []string{"order", "challenge"} {
			o, last := base(t, kind), ""
			o.SetName("")
			o.SetGenerateName("issue-")
			eventually(t, user+" and the right to a "+kind, func(ctx context.Context) bool {
				_, err := resourceFor(as, o).Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				if err == nil {
					return may == kind
				}
				last = err.Error()
				return may != kind && strings.Contains(last, `user "`+user+`" cannot issue resource "`+kind+`s" in API group "acme.cert-manager.io" at the cluster scope`)
			})
		}
	}
}

// TestCACertificatesNeedPermissionOnDemand: where the operator has set it, a CA certificate from a ClusterIssuer takes
// the verb reference on the issuer.
func TestCACertificatesNeedPermissionOnDemand(t *testing.T) {
	admin := client(t)
	settings := admin.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(api.ExternalIssuersNamespace)
	set := func(value string) {
		patch := `{"data":{"caCertificates":` + value + `}}`
		if _, err := settings.Patch(context.WithoutCancel(t.Context()), api.AdmissionSettingsName, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { set("null") })
	all := rbacv1.PolicyRule{APIGroups: []string{"cert-manager.io"}, Resources: []string{"certificates", "certificaterequests"}, Verbs: []string{"create", "update", "get"}}
	may := func(verb, name string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{"cert-manager.io"}, Resources: []string{"signers"}, Verbs: []string{verb}, ResourceNames: []string{name}}
	}
	grant(t, admin, "ca-nobody", "ca-nobody", all)
	grant(t, admin, "ca-other", "ca-other", all, may("reference", "other"))
	grant(t, admin, "ca-named", "ca-named", all, may("reference", "ca"))
	grant(t, admin, "ca-any", "ca-any", all, may("reference", "*"))
	grant(t, admin, "ca-approver", "ca-approver", all, may("approve", "clusterissuers.cert-manager.io/*"))
	ask := func(user, kind string, set changes, want string) {
		t.Helper()
		o := base(t, kind)
		edit(t, o, changes{"spec.issuerRef": map[string]any{"name": "ca", "kind": "ClusterIssuer"}})
		edit(t, o, set)
		o.SetName("")
		o.SetGenerateName("ca-")
		as, last := clientAs(t, user), ""
		defer func() {
			if t.Failed() {
				t.Log(last)
			}
		}()
		eventually(t, user+" and a "+kind, func(ctx context.Context) bool {
			_, err := resourceFor(as, o).Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil && ctx.Err() == nil {
				last = err.Error()
			}
			return err == nil && want == "" || err != nil && want != "" && strings.Contains(last, want)
		})
	}
	ca := changes{"spec.isCA": true}
	ask("ca-nobody", "certificate", ca, "")
	set(`"reference"`)
	for _, kind := range []string{"certificate", "request"} {
		denied := `may not ask ClusterIssuer "ca" for a CA certificate`
		ask("ca-nobody", kind, ca, denied)
		ask("ca-nobody", kind, changes{"spec.usages": strs("cert sign")}, denied)
		ask("ca-other", kind, ca, denied)
		ask("ca-nobody", kind, nil, "")
		ask("ca-nobody", kind, changes{"spec.isCA": true, "spec.issuerRef": map[string]any{"name": "ca"}}, "")
		for _, user := range []string{"ca-named", "ca-any"} {
			ask(user, kind, ca, "")
		}
	}
	// Whoever may approve, as the controller may, makes requests for Certificates that were judged, and Certificates for
	// everybody who annotates an Ingress.
	ask("ca-approver", "request", ca, "")
	ask("ca-approver", "certificate", ca, `spec.isCA: user "ca-approver" may not ask`)
	ask("ca-approver", "certificate", changes{"spec.usages": strs("cert sign")}, `spec.usages, "cert sign": user "ca-approver" may not ask`)
	set(`"sometimes"`)
	ask("ca-any", "certificate", ca, `key caCertificates: must be any or reference, not "sometimes"`)
	set(`"reference"`)
	for _, user := range []string{"ca-nobody", "ca-approver"} {
		becomesCA(t, admin, user)
	}
}

// becomesCA has a user change Certificates that are there: what one is already may stay, and nothing of a CA is added.
func becomesCA(t *testing.T, admin dynamic.Interface, user string) {
	t.Helper()
	cluster, own := map[string]any{"name": "ca", "kind": "ClusterIssuer"}, map[string]any{"name": "ca"}
	plain, ca, signs := changes{"spec.issuerRef": cluster}, changes{"spec.issuerRef": cluster, "spec.isCA": true}, changes{"spec.issuerRef": cluster, "spec.usages": strs("cert sign")}
	denied := `user "` + user + `" may not ask ClusterIssuer "ca" for a CA certificate`
	for _, c := range []struct {
		what    string
		was     changes
		becomes changes
		want    string
	}{
		{"isCA on a plain one", plain, changes{"spec.isCA": true}, denied},
		{"cert sign on a plain one", plain, changes{"spec.usages": strs("digital signature", "cert sign")}, denied},
		{"isCA beside cert sign", signs, changes{"spec.isCA": true}, denied},
		{"cert sign beside isCA", ca, changes{"spec.usages": strs("cert sign")}, denied},
		{"isCA in the place of cert sign", signs, changes{"spec.isCA": true, "spec.usages": strs("server auth")}, denied},
		{"another issuer", changes{"spec.issuerRef": own, "spec.isCA": true}, changes{"spec.issuerRef": cluster}, denied},
		{"another issuer beside cert sign", changes{"spec.issuerRef": own, "spec.usages": strs("cert sign")}, changes{"spec.issuerRef": cluster}, denied},
		{"another ClusterIssuer", changes{"spec.issuerRef": map[string]any{"name": "other", "kind": "ClusterIssuer"}, "spec.isCA": true}, changes{"spec.issuerRef": cluster}, denied},
		{"other names for a CA", ca, changes{"spec.dnsNames": strs("other.example.com")}, ""},
		{"other names beside cert sign", signs, changes{"spec.dnsNames": strs("other.example.com")}, ""},
		{"no CA any more", ca, changes{"spec.isCA": false}, ""},
	} {
		o := base(t, "certificate")
		o.SetName("")
		o.SetGenerateName("becomes-ca-")
		edit(t, o, c.was)
		o, err := resourceFor(admin, o).Create(t.Context(), o, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		edit(t, o, c.becomes)
		as, last := resourceFor(clientAs(t, user), o), ""
		eventually(t, user+" and "+c.what+": "+c.want, func(ctx context.Context) bool {
			_, err := as.Update(ctx, o, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
			last = fmt.Sprint(err)
			return err == nil && c.want == "" || c.want != "" && strings.Contains(last, c.want)
		})
	}
}
