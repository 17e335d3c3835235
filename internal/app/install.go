package app

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	acv1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"chancery.dev/api"
	"chancery.dev/internal/controller/kinds"
)

//go:generate go tool -modfile=../../tools/go.mod controller-gen rbac:roleName=chancery-controller,fileName=controller-role.yaml paths=../... output:rbac:dir=manifests

// manifests are the namespace, the service account and its rights; the role of the
// controller is generated from the markers beside the code that needs them.
//
//go:embed manifests/*.yaml
var manifests embed.FS

// installOwner is the field manager of what Install applies.
const installOwner = "chancery-install"

// Install applies the resource definitions, the admission policies and the rights of the controller, server-side, and
// waits until the definitions are served. It is idempotent, upgrades what an older version has installed, and needs an
// administrator's rights. Each object is reported to said.
func Install(ctx context.Context, rc *rest.Config, said func(what string)) error {
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return err
	}
	c, err := client.New(rc, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	crds, err := api.CRDs()
	if err != nil {
		return err
	}
	for _, crd := range crds {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
		if err != nil {
			return err
		}
		delete(object, "status")
		if err := apply(ctx, c, &unstructured.Unstructured{Object: object}, said); err != nil {
			return err
		}
	}
	for _, crd := range crds {
		if err := established(ctx, c, crd.Name); err != nil {
			return err
		}
	}
	objects, err := readManifests(manifests, "manifests/*.yaml")
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := apply(ctx, c, object, said); err != nil {
			return err
		}
	}
	if err := applyKinds(ctx, rc, said); err != nil { // before the policies, which refuse without the table
		return err
	}
	fills, err := applyPolicies(ctx, c, said)
	if err != nil {
		return err
	}
	return admits(ctx, c, fills, said)
}

// applyPolicies applies the admission policies that the cluster serves, and reports whether one of them fills in who
// made a CertificateRequest.
func applyPolicies(ctx context.Context, c client.Client, said func(string)) (fills bool, err error) {
	policies, err := api.Policies()
	if err != nil {
		return false, err
	}
	for _, object := range policies {
		mutates := strings.HasPrefix(object.GetKind(), "MutatingAdmissionPolicy")
		err := apply(ctx, c, object, said)
		if meta.IsNoMatchError(err) && mutates { // Kubernetes 1.34 and 1.35 serve the beta, where it is switched on
			object.SetAPIVersion("admissionregistration.k8s.io/v1beta1")
			err = apply(ctx, c, object, said)
		}
		if meta.IsNoMatchError(err) && strings.Contains(object.GetKind(), "AdmissionPolicy") {
			said(fmt.Sprintf("skipped %s %s: this cluster does not serve %s", object.GetKind(), object.GetName(), object.GetAPIVersion()))
			continue
		}
		if err != nil {
			return false, err
		}
		fills = fills || mutates
	}
	if !fills {
		said("this API server does not fill in who makes a CertificateRequest: the webhook does, which --webhook installs")
	}
	return fills, nil
}

// applyKinds applies the table of kinds of external issuers, as the controller does: without the table, the API server
// refuses every write of a request, and a controller that is not started yet, or has no right to, cannot fill it.
func applyKinds(ctx context.Context, rc *rest.Config, said func(string)) error {
	clients, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return err
	}
	entries, away, err := kinds.Discover(clients.Discovery())
	if err != nil {
		return err
	}
	owner := kinds.Owner
	if len(away) > 0 { // what the controller knows of them stays
		entries, owner = nil, installOwner
	}
	table := acv1.ConfigMap(api.ExternalIssuersName, api.ExternalIssuersNamespace).WithData(entries)
	_, err = clients.CoreV1().ConfigMaps(api.ExternalIssuersNamespace).Apply(ctx, table, metav1.ApplyOptions{FieldManager: owner, Force: true})
	if err != nil {
		return fmt.Errorf("apply ConfigMap %s: %w", api.ExternalIssuersName, err)
	}
	said("applied ConfigMap " + api.ExternalIssuersName)
	return nil
}

// admits waits until the API server runs the policy that fills in who made a CertificateRequest, if it fills at all: it
// takes a moment to see the policy, looks for new schemas every few seconds only, and in between refuses the kind. An
// API server whose admission plugin MutatingAdmissionPolicy is off stores the policy and never runs it: admits says so,
// and returns no error.
func admits(ctx context.Context, c client.Client, fills bool, said func(what string)) error {
	const notYet = "There can be a delay between when CustomResourceDefinitions are created"
	var last error
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		probe := newProbe("cert-manager", probeRequest)
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

func apply(ctx context.Context, c client.Client, object *unstructured.Unstructured, said func(string)) error {
	// Two installations at once may get in each other's way at the first try.
	err := retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() error {
		return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()), client.ForceOwnership, client.FieldOwner(installOwner))
	})
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("apply %s %s: %w: install needs an administrator's kubeconfig", object.GetKind(), object.GetName(), err)
	}
	if err != nil {
		return fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	said(fmt.Sprintf("applied %s %s", object.GetKind(), object.GetName()))
	return nil
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

// readManifests reads the embedded manifests, each of one or more documents.
func readManifests(from embed.FS, pattern string) ([]*unstructured.Unstructured, error) {
	files, err := fs.Glob(from, pattern)
	if err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	for _, file := range files {
		text, err := from.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, document := range strings.Split(string(text), "\n---\n") {
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

// oneOf returns an error for a word that is none of three.
func oneOf[T ~string](word, a, b, c T) error {
	if word != a && word != b && word != c {
		return fmt.Errorf("must be %s, %s or %s, not %q", a, b, c, word)
	}
	return nil
}
