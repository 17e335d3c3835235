package preflight

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/clientside/preflight"
	"chancery.dev/internal/machine/shim"
	"chancery.dev/kubectl/internal/plugin"
)

// input is a Certificate to check.
type input struct {
	// manifest is the Certificate as a file has it; nil if it is of the cluster.
	manifest    *unstructured.Unstructured
	certificate *certmanagerv1.Certificate
}

// read returns the Certificates that the arguments and --filename name.
func (o *options) read(ctx context.Context, c client.Client, streams plugin.Streams, namespace string, args []string) ([]input, error) {
	var inputs []input
	files := slices.Clone(o.files)
	for _, arg := range args {
		if isFile(arg) {
			files = append(files, arg)
			continue
		}
		crt := &certmanagerv1.Certificate{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: arg}, crt); err != nil {
			return nil, fmt.Errorf("%w; see which there are: kubectl chancery list", err)
		}
		inputs = append(inputs, input{certificate: crt})
	}
	for _, file := range files {
		found, err := readFile(file, streams.In, namespace)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		inputs = append(inputs, found...)
	}
	return inputs, nil
}

// isFile reports whether an argument is a file, and not the name of a Certificate.
func isFile(arg string) bool {
	return arg == "-" || strings.ContainsRune(arg, os.PathSeparator) || slices.ContainsFunc([]string{".yaml", ".yml", ".json"}, func(end string) bool {
		return strings.HasSuffix(arg, end)
	})
}

// readFile reads the Certificates of a file, and those that its Ingresses and Gateways ask for. The file is YAML or
// JSON, and may have lists.
func readFile(file string, stdin io.Reader, namespace string) (inputs []input, err error) {
	from := stdin
	if file != "-" {
		opened, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer func() { _ = opened.Close() }() // it was only read
		from = opened
	}
	add := func(o runtime.Object) error {
		found, err := inputsOf(o, namespace)
		inputs = append(inputs, found...)
		return err
	}
	for d := yaml.NewYAMLOrJSONDecoder(from, 4096); ; {
		u := &unstructured.Unstructured{}
		switch err := d.Decode(&u.Object); {
		case errors.Is(err, io.EOF):
			return inputs, nil
		case err != nil:
			return nil, err
		case u.IsList():
			err = u.EachListItem(add)
			if err != nil {
				return nil, err
			}
		default:
			if err := add(u); err != nil {
				return nil, err
			}
		}
	}
}

// inputsOf returns the Certificate that an object is, or those that it asks for by annotations; none for other kinds.
func inputsOf(o runtime.Object, namespace string) ([]input, error) {
	u, is := o.(*unstructured.Unstructured)
	if !is {
		return nil, nil
	}
	if u.GetNamespace() == "" {
		u.SetNamespace(namespace)
	}
	read := func(into any) error {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into); err != nil {
			return fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
		}
		return nil
	}
	settings := shim.Settings{ // the defaults of the controller
		DefaultIssuer:   cmmeta.IssuerReference{Kind: cmmeta.DefaultIssuerKind, Group: cmmeta.DefaultIssuerGroup},
		AutoAnnotations: []string{certmanagerv1.IngressTLSACMEAnnotation},
	}
	switch u.GroupVersionKind().GroupKind() {
	case certmanagerv1.SchemeGroupVersion().WithKind(certmanagerv1.CertificateKind).GroupKind():
		crt := &certmanagerv1.Certificate{}
		return []input{{u, crt}}, read(crt)
	case networkingv1.SchemeGroupVersion.WithKind(shim.KindIngress).GroupKind():
		ingress := &networkingv1.Ingress{}
		if err := read(ingress); err != nil {
			return nil, err
		}
		return askedBy(shim.FromIngress(ingress), settings)
	case schema.GroupKind{Group: gwapiv1.GroupName, Kind: shim.KindGateway}:
		gateway := &gwapiv1.Gateway{}
		if err := read(gateway); err != nil {
			return nil, err
		}
		return askedBy(shim.FromGateway(gateway, settings), settings)
	}
	return nil, nil
}

// askedBy are the Certificates that the controller would make for an Ingress or a Gateway; an error if it would make
// none and says why.
func askedBy(o shim.Object, settings shim.Settings) (inputs []input, err error) {
	action := shim.Decide(shim.State{Object: o, Settings: settings}, time.Now())
	for _, crt := range action.Create {
		inputs = append(inputs, input{certificate: crt})
	}
	if len(inputs) == 0 && len(action.Warnings) > 0 {
		return nil, fmt.Errorf("%s %s: %s", o.Owner.Kind, o.Owner.Name, strings.Join(action.Warnings, "; "))
	}
	return inputs, nil
}

// dryRun has the API server judge a manifest, and fill in defaults; nothing is stored.
func dryRun(ctx context.Context, c client.Client, in *input) preflight.Finding {
	f := preflight.Finding{Check: "manifest", Outcome: preflight.OK, Message: "the API server takes it (dry run)"}
	strict := client.FieldValidation("Strict")
	u := in.manifest.DeepCopy()
	err := c.Create(ctx, u, client.DryRunAll, strict)
	if apierrors.IsAlreadyExists(err) {
		live := in.manifest.DeepCopy()
		if err = c.Get(ctx, client.ObjectKeyFromObject(live), live); err == nil {
			u = in.manifest.DeepCopy()
			u.SetResourceVersion(live.GetResourceVersion())
			err = c.Update(ctx, u, client.DryRunAll, strict)
		}
	}
	switch {
	case apierrors.IsForbidden(err):
		f.Outcome, f.Message = preflight.NotChecked, "you may not make Certificates in the namespace: "+err.Error()
	case err != nil:
		f.Outcome, f.Message, f.WhatToDo = preflight.Failed, err.Error(), "Correct the manifest"
	default:
		filled := &certmanagerv1.Certificate{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, filled); err == nil {
			in.certificate = filled
		}
	}
	return f
}
