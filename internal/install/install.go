package install

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/api"
	"chancery.dev/internal/controller/externalissuers"
)

// installOwner is the field manager of what Apply applies.
const installOwner = "chancery-install"

// Apply applies the installation, server-side, and waits until the API server serves the definitions and admits
// CertificateRequests. It is idempotent, upgrades the installation of an older version, and needs an administrator's
// rights. It keeps what an operator has chosen in a Deployment (keepChoices), and reports each object to said.
func (i *Installation) Apply(ctx context.Context, rc *rest.Config, said func(what string)) error {
	all, err := i.objects()
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(apiextensionsv1.AddToScheme(scheme), appsv1.AddToScheme(scheme)); err != nil {
		return err
	}
	c, err := client.New(rc, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	to := &applier{c: c, force: i.ForceConflicts, said: said}
	if err := to.applyAll(ctx, all.definitions); err != nil {
		return err
	}
	for _, crd := range all.definitions {
		if err := established(ctx, c, crd.GetName()); err != nil {
			return err
		}
	}
	if err := to.applyAll(ctx, all.base); err != nil {
		return err
	}
	if len(all.policies) > 0 {
		if err := fillKinds(ctx, rc, i.Namespace); err != nil { // before the policies, which refuse without the table
			return err
		}
		fills, err := to.applyPolicies(ctx, all.policies)
		if err != nil {
			return err
		}
		if err := admits(ctx, c, i.Namespace, fills, said); err != nil {
			return err
		}
	}
	for _, object := range all.workloads {
		if err := to.keepChoices(ctx, object, i.Image); err != nil {
			return err
		}
	}
	return to.applyAll(ctx, all.workloads)
}

// Install applies DefaultInstallation, and takes over fields that others manage.
func Install(ctx context.Context, rc *rest.Config, said func(what string)) error {
	i := DefaultInstallation()
	i.ForceConflicts = true
	return i.Apply(ctx, rc, said)
}

// applier applies objects to an API server.
type applier struct {
	c     client.Client
	force bool
	said  func(what string)
}

func (a *applier) applyAll(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		if err := a.apply(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// applyPolicies applies the admission policies that the cluster serves, and reports whether one of them fills in who
// made a CertificateRequest.
func (a *applier) applyPolicies(ctx context.Context, policies []*unstructured.Unstructured) (fills bool, err error) {
	for _, object := range policies {
		err := a.apply(ctx, object)
		if meta.IsNoMatchError(err) && mutates(object) { // Kubernetes 1.34 and 1.35 serve the beta, where it is switched on
			object.SetAPIVersion("admissionregistration.k8s.io/v1beta1")
			err = a.apply(ctx, object)
		}
		if meta.IsNoMatchError(err) && strings.Contains(object.GetKind(), "AdmissionPolicy") {
			a.said(fmt.Sprintf("skipped %s %s: this cluster does not serve %s", object.GetKind(), object.GetName(), object.GetAPIVersion()))
			continue
		}
		if err != nil {
			return false, err
		}
		fills = fills || mutates(object)
	}
	if !fills {
		a.said("this API server does not fill in who makes a CertificateRequest: the webhook does, which --webhook installs")
	}
	return fills, nil
}

// mutates reports whether an object is a policy that fills in who made a CertificateRequest, or its binding.
func mutates(object *unstructured.Unstructured) bool {
	return strings.HasPrefix(object.GetKind(), "MutatingAdmissionPolicy")
}

// fillKinds fills the table of kinds of external issuers, as the controller does: a controller that is not started yet,
// or has no right to, cannot. Where the API servers of some groups are away, only the controller knows what stays.
func fillKinds(ctx context.Context, rc *rest.Config, namespace string) error {
	clients, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return err
	}
	entries, away, err := externalissuers.Discover(clients.Discovery())
	if err != nil || len(away) > 0 {
		return err
	}
	if err := externalissuers.Write(ctx, clients.CoreV1().ConfigMaps(namespace), externalissuers.Owner, namespace, entries); err != nil {
		return fmt.Errorf("apply ConfigMap %s: %w", api.ExternalIssuersName, err)
	}
	return nil
}

// admits waits until the API server runs the policy that fills in who made a CertificateRequest, if it fills at all: it
// takes a moment to see the policy, looks for new schemas every few seconds only, and in between refuses the kind. An
// API server whose admission plugin MutatingAdmissionPolicy is off stores the policy and never runs it: admits says so,
// and returns no error.
func admits(ctx context.Context, c client.Client, namespace string, fills bool, said func(what string)) error {
	const notYet = "There can be a delay between when CustomResourceDefinitions are created"
	var last error
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		probe := newProbe(namespace, probeRequest)
		last = c.Create(ctx, probe, client.DryRunAll)
		user, _, _ := unstructured.NestedString(probe.Object, "spec", "username")
		if last == nil {
			return user != "" || !fills, nil
		}
		return !strings.Contains(last.Error(), notYet), nil // another refusal is not for us to wait for
	})
	if wait.Interrupted(err) && last == nil && ctx.Err() == nil {
		said("nobody fills in who made a CertificateRequest: the API server runs no MutatingAdmissionPolicy. Switch on its " +
			"feature gate and its admission plugin of that name")
		return nil
	}
	if err != nil {
		return fmt.Errorf("wait until CertificateRequests are admitted: %w", errors.Join(err, last))
	}
	return nil
}

func (a *applier) apply(ctx context.Context, object *unstructured.Unstructured) error {
	options := []client.ApplyOption{client.FieldOwner(installOwner)}
	if a.force {
		options = append(options, client.ForceOwnership)
	}
	// Two installations at once may get in each other's way at the first try.
	again := func(err error) bool { return apierrors.IsConflict(err) && len(externalissuers.Conflicts(err)) == 0 }
	err := retry.OnError(retry.DefaultBackoff, again, func() error {
		return a.c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()), options...)
	})
	what := object.GetKind() + " " + object.GetName()
	switch conflicts := externalissuers.Conflicts(err); {
	case len(conflicts) > 0:
		return fmt.Errorf("apply %s: others manage fields of it: %s: --force-conflicts takes these fields over", what, summary(conflicts))
	case apierrors.IsForbidden(err):
		return fmt.Errorf("apply %s: %w: install needs an administrator's kubeconfig", what, err)
	case err != nil:
		return fmt.Errorf("apply %s: %w", what, err)
	}
	a.said("applied " + what)
	return nil
}

// summary names the first fields, and what manages each.
func summary(conflicts []metav1.StatusCause) string {
	const most = 3
	var fields []string
	for _, c := range conflicts[:min(most, len(conflicts))] {
		fields = append(fields, fmt.Sprintf("%s (%s)", c.Field, c.Message))
	}
	if more := len(conflicts) - most; more > 0 {
		fields = append(fields, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(fields, ", ")
}

// established waits until the API server serves a definition.
func established(ctx context.Context, c client.Client, name string) error {
	last := ""
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := c.Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
			return false, err
		}
		if deleted := crd.DeletionTimestamp; deleted != nil {
			return false, fmt.Errorf("it is being deleted since %s, with all its objects: run install again once kubectl get crd does not list it; "+
				"an object with a finalizer holds it up", deleted.UTC().Format(time.RFC3339))
		}
		for _, condition := range crd.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				return true, nil
			}
			if condition.Status == apiextensionsv1.ConditionFalse {
				last = " (" + condition.Message + ")"
			}
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("wait until the API server serves %s: %w%s", name, err, last)
	}
	return nil
}

// containers is the path to the containers of a Deployment.
var containers = []string{"spec", "template", "spec", "containers"}

// keepChoices keeps what an operator has chosen earlier in a Deployment: the replicas, the command and, unless image
// names another one, the image.
func (a *applier) keepChoices(ctx context.Context, object *unstructured.Unstructured, image string) error {
	if object.GetKind() != "Deployment" {
		return nil
	}
	found := &appsv1.Deployment{}
	err := a.c.Get(ctx, client.ObjectKeyFromObject(object), found)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the Deployment %s: %w", object.GetName(), err)
	}
	running := found.Spec.Template.Spec.Containers[0]
	if len(running.Command) == 0 { // cert-manager's own
		return nil
	}
	err = editFirst(object, func(container map[string]any) {
		command := []any{}
		for _, word := range running.Command { // with the flags for TLS-ALPN-01, for example
			command = append(command, word)
		}
		container["command"] = command
		if image == "" {
			container["image"] = running.Image
			replace(container, func(_, text string) string { return strings.ReplaceAll(text, DefaultImage, running.Image) })
		}
	}, containers...)
	if replicas := found.Spec.Replicas; err == nil && replicas != nil {
		err = unstructured.SetNestedField(object.Object, int64(*replicas), "spec", "replicas")
	}
	return err
}
