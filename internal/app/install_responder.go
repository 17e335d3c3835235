package app

import (
	"cmp"
	"context"
	"embed"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// DefaultImage is the image of chancery where nobody names another one. No registry has it: it has to be put on the
// nodes.
const DefaultImage = "localhost/chancery:latest"

// responderName is that of the Service, and of all other objects, of the responder that Install and InstallResponder
// make. A controller that nobody has told of a responder looks for the Service of this name in its own namespace.
const responderName = "chancery-responder"

// workloads are the Deployment of the responder and its disruption budget.
//
//go:embed manifests/responder/*.yaml
var workloads embed.FS

// InstallResponder applies the Deployment of the responder and its disruption budget, server-side. Install has been
// run. An empty image stands for the image that the Deployment has, or DefaultImage. The replicas and the command of
// an existing Deployment are left as they are. Each object is reported to said.
func InstallResponder(ctx context.Context, rc *rest.Config, image string, said func(what string)) error {
	c, err := client.New(rc, client.Options{})
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	objects, err := readManifests(workloads, "manifests/responder/*.yaml")
	if err != nil {
		return err
	}
	for _, object := range objects {
		if object.GetKind() == "Deployment" {
			if err := keepChoices(ctx, c, object, image); err != nil {
				return err
			}
		}
		if err := apply(ctx, c, object, said); err != nil {
			return err
		}
	}
	return nil
}

// keepChoices sets the image of the responder's Deployment, and keeps what an operator has chosen before.
func keepChoices(ctx context.Context, c client.Client, object *unstructured.Unstructured, image string) error {
	wanted, found := &appsv1.Deployment{}, &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, wanted); err != nil {
		return err
	}
	switch err := c.Get(ctx, client.ObjectKeyFromObject(object), found); {
	case apierrors.IsNotFound(err), err == nil && len(found.Spec.Template.Spec.Containers[0].Command) == 0: // cert-manager's own
		image = cmp.Or(image, DefaultImage)
	case err != nil:
		return fmt.Errorf("read the Deployment %s: %w", wanted.Name, err)
	default:
		wanted.Spec.Replicas = found.Spec.Replicas
		running := found.Spec.Template.Spec.Containers[0]
		image = cmp.Or(image, running.Image)
		wanted.Spec.Template.Spec.Containers[0].Command = running.Command // with the flags for TLS-ALPN-01, for example
	}
	wanted.Spec.Template.Spec.Containers[0].Image = image
	changed, err := runtime.DefaultUnstructuredConverter.ToUnstructured(wanted)
	delete(changed, "status")
	object.Object = changed
	return err
}
