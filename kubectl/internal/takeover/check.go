package takeover

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/api"
	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/app"
	"chancery.dev/internal/cli"
	"chancery.dev/internal/controller/injection"
)

// What findings are about.
const (
	aboutInstallation = "installation"
	aboutOwner        = "owner"
	aboutSwitches     = "switches"
	aboutDefinitions  = "definitions"
	aboutWebhook      = "webhook"
	aboutApprovers    = "approvers"
	aboutInjector     = "injector"
	aboutShims        = "shims"
	aboutHTTP01       = "http01"
	aboutDNS01        = "dns01"
	aboutVault        = "vault"
	aboutRestarts     = "restarts"
	aboutCertificates = "certificates"
)

// checker fills a report.
type checker struct {
	cluster
	Report

	options *options
	in      *installation
}

// check reads the cluster and says what a takeover would change. It writes nothing.
func check(ctx context.Context, c client.Client, o *options, now time.Time) (*Report, error) {
	k := &checker{cluster: cluster{c}, options: o, Report: Report{Switches: map[string][]cli.Fate{}, Findings: []Finding{}}}
	in, elsewhere, err := k.installed(ctx)
	if err != nil {
		return nil, err
	}
	k.in = in
	switch {
	case in.controller != nil:
		k.installation(elsewhere)
	case len(elsewhere) > 0:
		f := k.add(aboutInstallation, Red, "cert-manager is not in the namespace %s, where takeover works, but elsewhere", home)
		f.Objects, f.Help = elsewhere, "use the chart for this installation: see docs/chart.md"
		k.judge(nil)
		return &k.Report, nil
	default:
		k.add(aboutInstallation, Red, "there is no Deployment %s/%s, so there is nothing to take over", home, controllerName).Help = "chancery install"
		k.judge(nil)
		return &k.Report, nil
	}
	for _, look := range []func(context.Context) error{
		k.begun, k.owners, k.switches, k.definitions, k.webhooks, k.approvers, k.injected, k.shims, k.solvers, k.vault, k.restarts,
		func(ctx context.Context) error { return k.certificates(ctx, now) },
	} {
		if err := look(ctx); err != nil {
			return nil, err
		}
	}
	k.judge(o.accept)
	return &k.Report, nil
}

func (k *checker) installation(elsewhere []string) {
	container := mainContainer(k.in.controller)
	account := k.in.controller.Spec.Template.Spec.ServiceAccountName
	switch {
	case isOurs(k.in.controller):
		k.add(aboutInstallation, Red, "%s/%s runs Chancery already, from the image %s", home, controllerName, container.Image)
	case account != controllerName:
		k.add(aboutInstallation, Red, "%s/%s has the service account %q, and chancery install grants rights to %q", home, controllerName, account, controllerName).
			Help = "use the chart for this installation: see docs/chart.md"
	default:
		k.add(aboutInstallation, OK, "%s/%s runs %s", home, controllerName, container.Image)
	}
	if i := k.in.injector; i != nil && !k.options.keepInjector && i.Spec.Template.Spec.ServiceAccountName != injectorName {
		k.add(aboutInstallation, Red, "%s/%s has the service account %q, and chancery install grants rights to %q", home, injectorName, i.Spec.Template.Spec.ServiceAccountName, injectorName).
			Help = "use the chart for this installation, or --keep-cainjector"
	}
	if len(elsewhere) > 0 {
		k.add(aboutInstallation, Note, "there are other installations, which stay as they are").Objects = elsewhere
	}
	if k.options.image == "" && !isOurs(k.in.controller) {
		k.add(aboutInstallation, Note, "apply needs the image of Chancery: --image")
	}
}

// begun says how far an earlier command has come.
func (k *checker) begun(ctx context.Context) error {
	r, err := k.recorded(ctx)
	if r == nil || err != nil {
		return err
	}
	const back = "kubectl chancery takeover rollback goes back"
	switch {
	case len(r.Undone) > 0:
		k.add(aboutInstallation, Red, "a rollback is under way").Help = "kubectl chancery takeover rollback goes on"
	case slices.Contains(r.Done, lastStep):
		k.add(aboutInstallation, Note, "a takeover of %s is done", r.Begun.Format(time.RFC3339)).Help = back
	default:
		k.add(aboutInstallation, Red, "a takeover of %s is under way", r.Begun.Format(time.RFC3339)).Help = "kubectl chancery takeover apply goes on, and " + back
	}
	return nil
}

// deployments are those of the installation that are there.
func (k *checker) deployments() (out []*appsv1.Deployment) {
	for _, d := range []*appsv1.Deployment{k.in.controller, k.in.injector, k.in.webhook} {
		if d != nil {
			out = append(out, d)
		}
	}
	return out
}

// owners finds who else writes the Deployments: that owner would undo a takeover, or be undone by it.
func (k *checker) owners(context.Context) error {
	owners := map[string]string{}
	for _, d := range k.deployments() {
		if who, help := ownerOf(d); who != "" {
			owners[who] = strings.ReplaceAll(help, "IMAGE", orImage(k.options.image))
		}
	}
	for _, who := range slices.Sorted(maps.Keys(owners)) {
		k.add(aboutOwner, Red, "%s writes the Deployments. Make the switch there; takeover apply does not work against it", who).Help = owners[who]
	}
	if len(owners) == 0 {
		k.add(aboutOwner, OK, "neither Helm, Argo CD nor Flux writes the Deployments")
	}
	return nil
}

func orImage(image string) string {
	if image == "" {
		return "IMAGE"
	}
	return image
}

// ownerOf says who writes an object beside the user, and how the switch is made there.
func ownerOf(o client.Object) (who, help string) {
	labels, notes := o.GetLabels(), o.GetAnnotations()
	var managers []string
	for _, m := range o.GetManagedFields() {
		managers = append(managers, strings.ToLower(m.Manager))
	}
	const flux = "toolkit.fluxcd.io/name"
	release, namespace := notes["meta.helm.sh/release-name"], notes["meta.helm.sh/release-namespace"]
	app, _, _ := strings.Cut(notes["argocd.argoproj.io/tracking-id"], ":")
	if app == "" {
		app = labels["argocd.argoproj.io/instance"]
	}
	switch {
	case labels["helm."+flux] != "" || slices.Contains(managers, "helm-controller"):
		name, in := labels["helm."+flux], labels["helm.toolkit.fluxcd.io/namespace"]
		return "Flux (HelmRelease " + in + "/" + name + ")", fmt.Sprintf("name the chart of Chancery and chancery.image=IMAGE in the HelmRelease, and: flux reconcile helmrelease %s --namespace %s --with-source", name, in)
	case labels["kustomize."+flux] != "" || slices.Contains(managers, "kustomize-controller"):
		name, in := labels["kustomize."+flux], labels["kustomize.toolkit.fluxcd.io/namespace"]
		return "Flux (Kustomization " + in + "/" + name + ")", fmt.Sprintf("put what helm template writes of the chart of Chancery in the place of the manifests, and: flux reconcile kustomization %s --namespace %s --with-source", name, in)
	case app != "" || slices.ContainsFunc(managers, func(m string) bool { return strings.HasPrefix(m, "argocd") }):
		return "Argo CD (Application " + app + ")", "name the chart of Chancery and chancery.image=IMAGE in the Application, and: argocd app sync " + app
	case release != "" || slices.Contains(managers, "helm"):
		return "Helm (release " + namespace + "/" + release + ")",
			fmt.Sprintf("helm upgrade %s deploy/chart --namespace %s --reset-then-reuse-values --set chancery.image=IMAGE", release, namespace)
	default:
		return "", ""
	}
}

// switches says what becomes of flags, feature gates and configuration files.
func (k *checker) switches(context.Context) error {
	of := map[string]*cli.Switches{controllerName: k.in.switches, injectorName: k.in.injectorSwitches}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		s := of[name]
		if s == nil || name == injectorName && k.options.keepInjector {
			continue
		}
		k.Switches[name] = s.Fates
		var refused, unmet []string
		for _, f := range s.Fates {
			switch {
			case f.Refused:
				refused = append(refused, f.Switch+" ("+f.Why+")")
			case f.Unmet:
				unmet = append(unmet, f.Switch+" ("+f.Why+")")
			}
		}
		if len(refused) > 0 {
			f := k.add(aboutSwitches, Red, "%s has switches that Chancery does not start with", name)
			f.Objects, f.Help = refused, "take them out of the Deployment first"
		}
		if len(unmet) > 0 {
			k.add(aboutSwitches, Note, "%s has switches that change nothing in Chancery", name).Objects = unmet
		}
		if len(refused)+len(unmet) == 0 {
			k.add(aboutSwitches, OK, "all switches of %s mean the same", name)
		}
	}
	if added := kept(k.in); len(added) > 0 {
		k.add(aboutSwitches, Note, "apply adds switches, because the defaults of Chancery are others").Objects = added
	}
	return nil
}

// kept are the switches that keep defaults of cert-manager which Chancery does not have.
func kept(in *installation) (flags []string) {
	s := in.switches
	if isOurs(in.controller) {
		return nil
	}
	if !s.Sets("cluster-resource-namespace") {
		flags = append(flags, "--cluster-resource-namespace=kube-system")
	}
	return append(flags, "--csr-needs-feature-gate")
}

func kindOf(group, kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}
}

// definitions says what becomes of the custom resource definitions.
func (k *checker) definitions(ctx context.Context) error {
	ours, err := api.CRDs()
	if err != nil {
		return err
	}
	var replaced, owned []string
	for _, our := range ours {
		found := &unstructured.Unstructured{}
		found.SetGroupVersionKind(kindOf("apiextensions.k8s.io", "CustomResourceDefinition"))
		err := k.Get(ctx, client.ObjectKey{Name: our.Name}, found)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		theirs := &apiextensionsv1.CustomResourceDefinition{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, theirs); err != nil {
			return fmt.Errorf("read the definition %s: %w", our.Name, err)
		}
		fields, rules, _ := app.CompareDefinitions(our, theirs)
		if lacks := slices.Concat(fields, rules); len(lacks) > 0 {
			replaced = append(replaced, our.Name)
		}
		if who, _ := ownerOf(found); who != "" {
			owned = append(owned, our.Name+" ("+who+")")
		}
		stored, _, _ := unstructured.NestedStringSlice(found.Object, "status", "storedVersions")
		if slices.ContainsFunc(stored, func(v string) bool { return v != "v1" }) {
			k.add(aboutDefinitions, Red, "%s has objects stored in versions that Chancery does not serve: %s", our.Name, strings.Join(stored, ", ")).
				Help = "cmctl upgrade migrate-api-version"
		}
	}
	if len(owned) > 0 {
		k.add(aboutOwner, Red, "definitions are written by others, who would put their own back").Objects = owned
	}
	if len(replaced) == 0 {
		k.add(aboutDefinitions, OK, "the definitions are those of Chancery")
		return nil
	}
	k.add(aboutDefinitions, OK, "%d definitions are replaced; their objects stay", len(replaced)).Objects = replaced
	return nil
}

// fills reports whether the API server runs MutatingAdmissionPolicies.
func (k *checker) fills() bool {
	_, err := k.RESTMapper().RESTMapping(schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "MutatingAdmissionPolicy"})
	return err == nil
}

// approvers finds who approves requests beside the built-in approver.
func (k *checker) approvers(ctx context.Context) error {
	by := map[string]int{}
	list := &certmanagerv1.CertificateRequestList{}
	if err := k.pages(ctx, list, func() {
		for i := range list.Items {
			conditions := list.Items[i].Status.Conditions
			for _, t := range []certmanagerv1.CertificateRequestConditionType{certmanagerv1.CertificateRequestConditionApproved, certmanagerv1.CertificateRequestConditionDenied} {
				if c := certmanagerv1.FindCertificateRequestCondition(conditions, t); c != nil && c.Reason != certmanagerv1.CertificateRequestReasonApproved {
					by[c.Reason]++
				}
			}
		}
	}); err != nil {
		return err
	}
	reasons := slices.Sorted(maps.Keys(by))
	switch {
	case len(reasons) == 0:
		k.add(aboutApprovers, OK, "the built-in approver has approved all requests")
	case !k.fills():
		f := k.add(aboutApprovers, Red, "others approve requests, by the user who made them, and this API server does not fill in that user without a webhook")
		f.Objects, f.Help = reasons, "use the chart, which installs the webhook of Chancery: see docs/chart.md"
	default:
		k.add(aboutApprovers, Note, "others approve or deny requests, and go on doing so").Objects = reasons
	}
	return nil
}

// webhooks says what becomes of the webhook.
func (k *checker) webhooks(ctx context.Context) error {
	for _, kind := range []string{injectedValidating, injectedMutating} {
		found := &unstructured.Unstructured{}
		found.SetGroupVersionKind(kindOf("admissionregistration.k8s.io", kind))
		err := k.Get(ctx, client.ObjectKey{Name: webhookName}, found)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if err == nil {
			k.add(aboutWebhook, OK, "the %s %s goes: the API server does its work itself", kind, webhookName)
		}
	}
	if !k.fills() {
		k.add(aboutWebhook, Note, "this API server does not fill in who makes a CertificateRequest: a policy refuses requests that name somebody else").
			Help = "see docs/install.md#a-webhook-on-older-versions if an approver needs the user"
	}
	if k.in.webhook != nil {
		k.add(aboutWebhook, OK, "the Deployment %s stays, without Pods", webhookName)
	}
	return nil
}

// The kinds of webhook configurations.
const (
	injectedValidating = "ValidatingWebhookConfiguration"
	injectedMutating   = "MutatingWebhookConfiguration"
)

// injected finds the objects that CA bundles are injected into.
func (k *checker) injected(ctx context.Context) error {
	var users []string
	for _, gvk := range injection.Kinds() {
		if err := k.each(ctx, gvk, func(o *unstructured.Unstructured) {
			for _, a := range []string{certmanagerv1.InjectCAFromAnnotation, certmanagerv1.InjectCAFromSecretAnnotation, certmanagerv1.InjectAPIServerCAAnnotation} {
				if o.GetAnnotations()[a] != "" && o.GetName() != webhookName {
					users = append(users, gvk.Kind+" "+o.GetName())
					return
				}
			}
		}); err != nil {
			return err
		}
	}
	switch {
	case len(users) == 0:
		k.add(aboutInjector, OK, "no object of others has CA bundles injected")
	case k.in.injector == nil:
		k.add(aboutInjector, Note, "there is no Deployment %s, although objects ask for CA bundles", injectorName).Objects = users
	case k.options.keepInjector:
		k.add(aboutInjector, OK, "cert-manager's injector is kept, and goes on injecting CA bundles").Objects = users
	default:
		k.add(aboutInjector, OK, "Chancery's injector takes the place of cert-manager's; the bundles stay").Objects = users
	}
	return nil
}

// shims finds the objects that Certificates are made from.
func (k *checker) shims(ctx context.Context) error {
	var users []string
	for _, gvk := range []schema.GroupVersionKind{
		kindOf("networking.k8s.io", "Ingress"), kindOf("gateway.networking.k8s.io", "Gateway"), kindOf("gateway.networking.k8s.io", "ListenerSet"),
	} {
		if err := k.each(ctx, gvk, func(o *unstructured.Unstructured) {
			for _, a := range []string{certmanagerv1.IngressIssuerAnnotation, certmanagerv1.IngressClusterIssuerAnnotation, certmanagerv1.IngressTLSACMEAnnotation} {
				if o.GetAnnotations()[a] != "" {
					users = append(users, gvk.Kind+" "+nameOf(o))
					return
				}
			}
		}); err != nil {
			return err
		}
	}
	k.add(aboutShims, OK, "%d Ingresses, Gateways and ListenerSets ask for Certificates, and go on doing so", len(users)).Objects = users
	return nil
}

// restarts finds Pods of others that use a ServiceAccount which apply would make anew.
func (k *checker) restarts(ctx context.Context) error {
	missing := map[string]bool{}
	for _, name := range []string{controllerName, injectorName} {
		err := k.Get(ctx, client.ObjectKey{Namespace: home, Name: name}, &corev1.ServiceAccount{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		missing[name] = err != nil
	}
	pods := &corev1.PodList{}
	if err := k.List(ctx, pods, client.InNamespace(home)); err != nil {
		return err
	}
	var restarted []string
	for i := range pods.Items {
		if missing[pods.Items[i].Spec.ServiceAccountName] {
			restarted = append(restarted, nameOf(&pods.Items[i]))
		}
	}
	if len(restarted) > 0 {
		k.add(aboutRestarts, Note, "Pods must restart, because their ServiceAccount is made anew").Objects = restarted
		return nil
	}
	k.add(aboutRestarts, OK, "the ServiceAccounts stay: no Pod has to restart but those of cert-manager")
	return nil
}

// certificates says what would be issued again.
func (k *checker) certificates(ctx context.Context, now time.Time) error {
	f, err := k.forecast(ctx, k.in, now)
	if err != nil {
		return err
	}
	k.Certificates = f
	said := func(list []Reissue) (out []string) {
		for _, r := range list {
			out = append(out, fmt.Sprintf("%s at %s (%s)", r.Certificate, r.At.Format(time.RFC3339), r.Why))
		}
		return out
	}
	if len(f.Reissued) > 0 {
		k.add(aboutCertificates, Red, "%d of %d Certificates would be renewed at once", len(f.Reissued), f.Total).Objects = said(f.Reissued)
	} else {
		k.add(aboutCertificates, OK, "0 of %d Certificates would be renewed because of the takeover", f.Total)
	}
	for _, more := range []struct {
		what    string
		objects []string
	}{
		{"are renewed early, because their issuer has another CA now", said(f.Planned)},
		{"are due for renewal now, with cert-manager too", f.Due},
		{"are being issued, or are not ready: Chancery takes that further", f.UnderWay},
		{"have their Secret written again, with the same certificate and the same key", f.Rewritten},
	} {
		if len(more.objects) > 0 {
			k.add(aboutCertificates, Note, "%d Certificates %s", len(more.objects), more.what).Objects = more.objects
		}
	}
	return nil
}

// solvers says what becomes of the solvers of ACME issuers.
func (k *checker) solvers(ctx context.Context) error {
	issuers, err := k.allIssuers(ctx)
	if err != nil {
		return err
	}
	var of solverUse
	for _, issuer := range issuers {
		if issuer.GetSpec().ACME == nil {
			continue
		}
		kind := certmanagerv1.IssuerKind
		if issuer.GetNamespace() == "" {
			kind = certmanagerv1.ClusterIssuerKind
		}
		for i, s := range issuer.GetSpec().ACME.Solvers {
			of.add(fmt.Sprintf("%s %s, solver %d", kind, nameOf(issuer), i+1), s)
		}
	}
	for _, found := range []struct {
		about, what string
		solvers     []string
	}{
		{aboutHTTP01, "HTTP-01 is answered by two Pods that apply adds, chancery-responder", of.http},
		{aboutHTTP01, "solvers with a podTemplate keep a Pod for each challenge", of.pods},
		{aboutDNS01, "DNS webhooks are called as they are", of.hooks},
	} {
		if len(found.solvers) > 0 {
			k.add(found.about, OK, "%s", found.what).Objects = found.solvers
		}
	}
	switch {
	case len(of.clouds) == 0:
	case k.options.dnsImage == "":
		f := k.add(aboutDNS01, Red, "cloud DNS providers need chancery-dns beside the controller")
		f.Objects, f.Help = of.clouds, "name its image by --dns-image; see docs/dns-providers.md#install-chancery-dns"
	default:
		k.add(aboutDNS01, OK, "chancery-dns writes the records of cloud DNS providers").Objects = of.clouds
	}
	return nil
}

// solverUse names solvers by what a takeover means to them.
type solverUse struct{ http, pods, hooks, clouds []string }

func (u *solverUse) add(name string, s acmev1.ACMEChallengeSolver) {
	if h := s.HTTP01; h != nil {
		u.http = append(u.http, name)
		if h.Ingress != nil && h.Ingress.PodTemplate != nil || h.GatewayHTTPRoute != nil && h.GatewayHTTPRoute.PodTemplate != nil {
			u.pods = append(u.pods, name)
		}
	}
	switch d := s.DNS01; {
	case d == nil, d.AcmeDNS != nil, d.RFC2136 != nil:
	case d.Webhook != nil:
		u.hooks = append(u.hooks, name)
	default:
		u.clouds = append(u.clouds, name)
	}
}
