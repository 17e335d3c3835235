package takeover

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/api"
	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/rig/slow"
	"chancery.dev/kubectl/internal/plugin"
)

// run runs the command as a user does, and returns its output and its exit code.
func (o *original) run(args ...string) (out string, code int) {
	o.t.Helper()
	return o.runBy(unlimited, args...)
}

// runBy is run with another connection.
func (o *original) runBy(wrap func(*rest.Config) *rest.Config, args ...string) (out string, code int) {
	o.t.Helper()
	b := &bytes.Buffer{}
	cmd := command(plugin.Streams{In: strings.NewReader(""), Out: b, ErrOut: b}, wrap)
	cmd.SetArgs(append(args, "--kubeconfig", o.kubeconfig))
	cmd.SetOut(b)
	cmd.SetErr(b)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(o.t.Context())
	var exit plugin.ExitError
	switch {
	case errors.As(err, &exit):
		return b.String(), exit.Code
	case err != nil:
		return b.String() + err.Error(), 1
	default:
		return b.String(), 0
	}
}

// reported is what check prints for programs.
func (o *original) reported(code int, args ...string) *Report {
	o.t.Helper()
	out, got := o.run(append([]string{"check", "-o", "json"}, args...)...)
	r := &Report{}
	if err := json.Unmarshal([]byte(out), r); err != nil || got != code {
		o.t.Fatalf("code %d instead of %d, %v:\n%s", got, code, err, out)
	}
	return r
}

// about returns the findings of a name as lines.
func (r *Report) about(name string) string {
	b := &strings.Builder{}
	for _, f := range r.Findings {
		if f.About == name {
			b.WriteString(string(f.Level) + " " + f.Message + " " + few(f.Objects) + " > " + f.Help + "\n")
		}
	}
	return b.String()
}

// TestCheck: check says what a takeover meets, and its code says whether apply may run.
func TestCheck(t *testing.T) {
	slow.Test(t, slow.Takeover)
	t.Parallel()
	o := newOriginal(t)
	f := o.fill(40)
	kept := &unstructured.Unstructured{} // was applied over ours, which left the annotation
	kept.SetGroupVersionKind(kindOf("apiextensions.k8s.io", "CustomResourceDefinition"))
	if err := o.client.Get(t.Context(), client.ObjectKey{Name: "orders.acme.cert-manager.io"}, kept); err != nil {
		t.Fatal(err)
	}
	kept.SetAnnotations(map[string]string{api.DefinitionAnnotation: "1"})
	if err := o.client.Update(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	green := o.reported(0, "--image="+ourImage)
	if c := green.Certificates; c.Total != 40 || len(c.Reissued)+len(c.Planned)+len(c.Due)+len(c.UnderWay)+len(c.Rewritten) != 0 {
		t.Errorf("Certificates: %+v", c)
	}
	expect := func(r *Report, about, want string) {
		t.Helper()
		if got := r.about(about); !strings.Contains(got, want) {
			t.Errorf("about %s check does not say %q, but:\n%s", about, want, got)
		}
	}
	expect(green, aboutSwitches, "--cluster-resource-namespace=kube-system, --csr-needs-feature-gate")
	expect(green, aboutDefinitions, "ok 6 definitions are replaced")
	expect(green, aboutWebhook, "ok the ValidatingWebhookConfiguration cert-manager-webhook goes")
	expect(green, aboutOwner, "ok neither Helm, Argo CD nor Flux")

	d := &appsv1.Deployment{}
	key := client.ObjectKey{Namespace: home, Name: controllerName}
	if err := o.client.Get(t.Context(), key, d); err != nil {
		t.Fatal(err)
	}
	d.Annotations = map[string]string{"meta.helm.sh/release-name": "cm", "meta.helm.sh/release-namespace": home}
	d.Spec.Template.Spec.Containers[0].Args = append(d.Spec.Template.Spec.Containers[0].Args, "--feature-gates=ServerSideApply=true", "--nonsense")
	if err := o.client.Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	o.create(&certmanagerv1.ClusterIssuer{ObjectMeta: objectMeta("", "acme"), Spec: certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{
		Server: "https://acme.example.com", Solvers: []acmev1.ACMEChallengeSolver{
			{HTTP01: &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{}}},
			{DNS01: &acmev1.DNS01Solver{Route53: &acmev1.Route53Provider{}}},
		},
	}}})
	secret := &corev1.Secret{}
	if err := o.client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "crt-3"}, secret); err != nil {
		t.Fatal(err)
	}
	if err := o.client.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	red := o.reported(2, "--image="+ourImage)
	expect(red, aboutOwner, "red Helm (release cert-manager/cm) writes the Deployments")
	expect(red, aboutOwner, "> helm upgrade cm deploy/chart --namespace cert-manager --reset-then-reuse-values --set chancery.image="+ourImage)
	expect(red, aboutSwitches, "red cert-manager has switches that Chancery does not start with --nonsense")
	expect(red, aboutSwitches, "note cert-manager has switches that change nothing in Chancery ServerSideApply=true (statuses are written by patches)")
	expect(red, aboutDNS01, "red cloud DNS providers need chancery-dns beside the controller ClusterIssuer acme, solver 2")
	expect(red, aboutHTTP01, "ok HTTP-01 is answered by two Pods")
	expect(red, aboutCertificates, "red 1 of 40 Certificates would be renewed at once default/crt-3")
	if got, want := red.verdict(), "RED: takeover apply refuses until these red findings are gone: owner. "+
		"To take red findings as they are: --accept certificates,dns01,switches"; got != want {
		t.Errorf("the verdict is %q\nwant %q", got, want)
	}
	if out, code := o.run("apply", "--image="+ourImage); code != redCode || !strings.Contains(out, "nothing was changed") && !strings.Contains(out, "RED") {
		t.Errorf("apply ended with %d although the check is red:\n%s", code, out)
	}
	if r, err := (cluster{o.client}).recorded(t.Context()); err != nil || r != nil {
		t.Errorf("apply has begun although the check is red: %+v, %v", r, err)
	}
	red = o.reported(2, "--accept=switches,certificates", "--dns-image=x")
	for _, f := range red.Findings {
		if f.Level == Red && !f.Accepted && f.About != aboutOwner {
			t.Errorf("%s is red although it is accepted", f.About)
		}
	}
	if out, code := o.run("check", "--accept=owner"); code != 1 {
		t.Errorf("an owner must not be accepted: %d %s", code, out)
	}
	f.replaceCA()
	if got := o.reported(2).Certificates; len(got.Planned) != 39 {
		t.Errorf("with another CA, %d Certificates are planned to be issued again: %+v", len(got.Planned), got)
	}
}

// TestCheckOwners: who writes the Deployments is found, with the place where the switch is made.
func TestCheckOwners(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		labels, annotations map[string]string
		manager, want       string
	}{
		{want: ""},
		{annotations: map[string]string{"argocd.argoproj.io/tracking-id": "certs:apps/Deployment:cert-manager/cert-manager"}, want: "Argo CD (Application certs)"},
		{manager: "argocd-controller", want: "Argo CD (Application )"},
		{labels: map[string]string{"helm.toolkit.fluxcd.io/name": "cm", "helm.toolkit.fluxcd.io/namespace": "flux"}, annotations: map[string]string{"meta.helm.sh/release-name": "cm"}, want: "Flux (HelmRelease flux/cm)"},
		{labels: map[string]string{"kustomize.toolkit.fluxcd.io/name": "infra", "kustomize.toolkit.fluxcd.io/namespace": "flux"}, want: "Flux (Kustomization flux/infra)"},
		{annotations: map[string]string{"meta.helm.sh/release-name": "cm", "meta.helm.sh/release-namespace": "x"}, want: "Helm (release x/cm)"},
	} {
		d := &appsv1.Deployment{}
		d.Labels, d.Annotations = c.labels, c.annotations
		if c.manager != "" {
			d.ManagedFields = managedBy(c.manager)
		}
		if who, help := ownerOf(d); who != c.want || (help == "") != (who == "") {
			t.Errorf("%+v is said to be written by %q (%s), want %q", c, who, help, c.want)
		}
	}
}
