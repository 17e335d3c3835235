package demo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"chancery.dev/examples"
	"chancery.dev/internal/clientside/explain"
)

// owner is the field manager of what the demo applies.
const owner = "chancery-demo"

// clearTimeout bounds the wait until an earlier demo's objects are gone.
const clearTimeout = time.Minute

// issuerPatience is how long a signing request is held back while its issuer is not ready.
const issuerPatience = time.Minute

// The kinds that are asked for a certificate.
const (
	kindCertificate    = "Certificate"
	kindSigningRequest = "CertificateSigningRequest"
	kindPod            = "Pod"
)

// manifest is one object and the file it stands in.
type manifest struct {
	*unstructured.Unstructured
	file string
}

// isPod reports whether it is a Pod for which one of our issuers signs.
func (m manifest) isPod() bool {
	pod := &corev1.Pod{}
	return m.GetKind() == kindPod && runtime.DefaultUnstructuredConverter.FromUnstructured(m.Object, pod) == nil && len(explain.PodVolumes(pod, nil, nil)) > 0
}

// target is what a certificate was asked for with.
type target struct {
	kind string
	types.NamespacedName
}

func (t target) String() string {
	return explain.Name(t.kind, t.Namespace, t.Name)
}

func targetsOf(objects []manifest) []target {
	var targets []target
	for _, o := range objects {
		if k := o.GetKind(); k == kindCertificate || k == kindSigningRequest || o.isPod() {
			targets = append(targets, target{kind: k, NamespacedName: client.ObjectKeyFromObject(o)})
		}
	}
	return targets
}

// read reads all manifests, with the placeholders replaced.
func read(files fs.FS, values map[string]string) ([]manifest, error) {
	names, err := examples.Names(files)
	if err != nil {
		return nil, err
	}
	var objects []manifest
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		expanded, err := examples.Expand(string(text), values)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		found, err := decode(expanded)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, o := range found {
			objects = append(objects, manifest{Unstructured: o, file: name})
		}
	}
	if len(targetsOf(objects)) == 0 {
		return nil, errors.New("nothing to issue: no *.yaml file among the manifests holds a Certificate, a CertificateSigningRequest or a Pod with a certificate")
	}
	return objects, nil
}

func decode(text string) ([]*unstructured.Unstructured, error) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader([]byte(text))))
	var objects []*unstructured.Unstructured
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &o.Object); err != nil {
			return nil, err
		}
		switch {
		case len(o.Object) == 0: // comments only
		case o.GetKind() == "" || o.GetName() == "":
			return nil, errors.New("a document has no kind or no metadata.name")
		default:
			objects = append(objects, o)
		}
	}
}

// apply applies all objects, server-side, and lets n get the certificates of the Pods; n is nil where there are none. A
// signing request waits for its issuer, since one that is not ready fails it for good; but not for ever: then the
// failure is what there is to see.
func apply(ctx context.Context, c client.Client, b *board, n *node, objects []manifest) error {
	for _, o := range objects {
		if o.GetKind() == kindSigningRequest {
			name, _, _ := unstructured.NestedString(o.Object, "spec", "signerName")
			b.awaitIssuer(ctx, name, issuerPatience)
		}
		err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(o.Unstructured), client.ForceOwnership, client.FieldOwner(owner))
		if err != nil {
			return fmt.Errorf("%s: apply %s %s: %w", o.file, o.GetKind(), o.GetName(), err)
		}
		if !o.isPod() {
			continue
		}
		pod := &corev1.Pod{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), pod); err != nil {
			return err
		}
		n.Add(ctx, pod)
	}
	if n == nil {
		return nil
	}
	return n.await(ctx)
}

// clearEarlier takes away what an earlier demo has left in the same data directory: its ACME server, and all that was
// signed there, is gone.
func clearEarlier(ctx context.Context, c client.Client, objects []manifest) error {
	var gone []client.Object
	for _, o := range objects {
		if o.GetKind() == "Namespace" {
			continue
		}
		gone = append(gone, o)
		if o.GetKind() != kindCertificate {
			continue
		}
		if name, _, _ := unstructured.NestedString(o.Object, "spec", "secretName"); name != "" {
			gone = append(gone, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: name}})
		}
	}
	for _, o := range gone {
		if err := remove(ctx, c, o); err != nil {
			return fmt.Errorf("remove an earlier demo's %s: %w", o.GetName(), err)
		}
	}
	return nil
}

// remove deletes an object and waits until it, and all that it owns, is gone.
func remove(ctx context.Context, c client.Client, o client.Object) error {
	err := c.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationForeground), client.GracePeriodSeconds(0)) // no kubelet ends a Pod
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	seen, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%T is no object", o)
	}
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, clearTimeout, true, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(o), seen)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}
