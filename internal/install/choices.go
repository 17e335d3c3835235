package install

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// WebhookPolicy says whether the webhook is installed, and what the API server does where the webhook does not answer.
type WebhookPolicy string

// The policies.
const (
	// WebhookNone installs nothing, and takes nothing away.
	WebhookNone WebhookPolicy = "none"
	// WebhookIgnore admits requests as they are.
	WebhookIgnore WebhookPolicy = "ignore"
	// WebhookFail refuses requests.
	WebhookFail WebhookPolicy = "fail"
)

// Validate returns an error for a word that is none of these.
func (p WebhookPolicy) Validate() error {
	return oneOf(p, WebhookNone, WebhookIgnore, WebhookFail)
}

// Injecting says which process injects CA bundles.
type Injecting string

// The processes that inject.
const (
	// InjectingNone grants nothing, and takes nothing away.
	InjectingNone Injecting = "none"
	// InjectingOwn is chancery cainjector, with a service account of its own.
	InjectingOwn Injecting = "own"
	// InjectingController is chancery controller --enable-cainjector, with the controller's service account.
	InjectingController Injecting = "controller"
)

// Validate returns an error for a word that is none of these.
func (i Injecting) Validate() error {
	return oneOf(i, InjectingNone, InjectingOwn, InjectingController)
}

// injectorObjects give the role of the CA injector, which is always installed, to the process that injects, and to no
// other.
func (i *Installation) injectorObjects() ([]*unstructured.Unstructured, error) {
	if i.Injecting == InjectingNone {
		return nil, nil
	}
	objects, err := readManifests("manifests/cainjector/*.yaml")
	if err != nil || i.Injecting == InjectingOwn {
		return objects, err
	}
	subject := map[string]any{"kind": "ServiceAccount", "name": accountName, "namespace": defaultNamespace}
	return objects[:1], unstructured.SetNestedSlice(objects[0].Object, []any{subject}, "subjects")
}

// oneOf returns an error for a word that is none of three.
func oneOf[T ~string](word, a, b, c T) error {
	if word != a && word != b && word != c {
		return fmt.Errorf("must be %s, %s or %s, not %q", a, b, c, word)
	}
	return nil
}
