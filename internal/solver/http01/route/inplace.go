package route

import (
	"context"
	"fmt"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/service"
)

// addPath adds the path of a Challenge to the Ingress that its solver names (spec §5.8, edit in place).
func (r *Router) addPath(ctx context.Context, c *acmev1.Challenge, to backend) error {
	name := c.Spec.Solver.HTTP01.Ingress.Name
	found, err := r.edit(ctx, c, func(in *networkingv1.Ingress) []operation {
		return pathAdded(in, hostOf(c), pathOf(c, to))
	})
	if err == nil {
		return r.applyTemplate(ctx, c, found)
	}
	if apierrors.IsNotFound(err) {
		return fault.After(ingressRetry, ReasonIngressMissing,
			"the Ingress %q, which the solver is to edit in place, does not exist in namespace %q: create it, or correct the solver", name, c.Namespace)
	}
	return err
}

// removePath removes exactly that path, and its rule if the rule has no other path.
func (r *Router) removePath(ctx context.Context, c *acmev1.Challenge) error {
	found, err := r.edit(ctx, c, func(in *networkingv1.Ingress) []operation {
		return pathRemoved(in, hostOf(c), acme.HTTP01Path(c.Spec.Token))
	})
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	return r.removeTemplate(ctx, c, found)
}

// applyTemplate puts the labels and annotations of the solver's ingressTemplate on an Ingress that is edited in place,
// unless they have other values there. Each Challenge owns them by a field manager of its own: they go with the last
// one.
func (r *Router) applyTemplate(ctx context.Context, c *acmev1.Challenge, in *networkingv1.Ingress) error {
	template := c.Spec.Solver.HTTP01.Ingress.IngressTemplate
	if template == nil {
		return nil
	}
	owned := metadataOf(in)
	owned.Labels, owned.Annotations = unset(template.Metadata.Labels, in.Labels), unset(template.Metadata.Annotations, in.Annotations)
	//nolint:staticcheck // an apply configuration says the same in three times the code
	return r.o.Client.Patch(ctx, owned, client.Apply, templateOwner(c))
}

// removeTemplate removes what applyTemplate has put on: the Challenge's field manager owns nothing any more.
func (r *Router) removeTemplate(ctx context.Context, c *acmev1.Challenge, in *networkingv1.Ingress) error {
	if c.Spec.Solver.HTTP01.Ingress.IngressTemplate == nil {
		return nil
	}
	//nolint:staticcheck // as above
	err := r.o.Client.Patch(ctx, metadataOf(in), client.Apply, templateOwner(c))
	if apierrors.IsConflict(err) {
		return nil // the Ingress with this UID is gone
	}
	return err
}

func templateOwner(c *acmev1.Challenge) client.FieldOwner {
	return client.FieldOwner(service.FieldManager + "-" + service.ObjectName(c.UID))
}

// metadataOf identifies an Ingress by its name and UID.
func metadataOf(in *networkingv1.Ingress) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "Ingress"},
		ObjectMeta: metav1.ObjectMeta{Namespace: in.Namespace, Name: in.Name, UID: in.UID},
	}
}

// unset returns the entries that are asked for, without those that are there with another value.
func unset(asked, there map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range asked {
		if old, ok := there[key]; !ok || old == value {
			out[key] = value
		}
	}
	return out
}

// pathAdded puts a path first in the first rule for a host, or in a new rule. It returns nothing if the path is there.
func pathAdded(in *networkingv1.Ingress, host string, path networkingv1.HTTPIngressPath) []operation {
	// Each use has its own value, because later changes of the same Ingress change its rules.
	only := func() *networkingv1.HTTPIngressRuleValue {
		return &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{path}}
	}
	for i := range in.Spec.Rules {
		rule := &in.Spec.Rules[i]
		if rule.Host != host {
			continue
		}
		at := fmt.Sprintf("/spec/rules/%d/http", i)
		if rule.HTTP == nil {
			rule.HTTP = only()
			return []operation{{"add", at, only()}}
		}
		for j, old := range rule.HTTP.Paths {
			if old.Path != path.Path {
				continue
			}
			if old.Backend.Service != nil && *old.Backend.Service == *path.Backend.Service {
				return nil
			}
			rule.HTTP.Paths[j] = path
			return []operation{{"replace", fmt.Sprintf("%s/paths/%d", at, j), path}}
		}
		rule.HTTP.Paths = slices.Insert(rule.HTTP.Paths, 0, path)
		return []operation{{"add", at + "/paths/0", path}}
	}
	rule := func() networkingv1.IngressRule {
		return networkingv1.IngressRule{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: only()}}
	}
	in.Spec.Rules = append(in.Spec.Rules, rule())
	if len(in.Spec.Rules) == 1 {
		return []operation{{"add", "/spec/rules", []networkingv1.IngressRule{rule()}}}
	}
	return []operation{{"add", "/spec/rules/-", rule()}}
}

// pathRemoved removes a path from every rule for a host, and the rules that become empty. It goes from the back, so
// that the places of earlier rules and paths stay the same.
func pathRemoved(in *networkingv1.Ingress, host, path string) []operation {
	var out []operation
	for i, rule := range slices.Backward(in.Spec.Rules) {
		if rule.Host != host || rule.HTTP == nil {
			continue
		}
		found, all := len(out), len(rule.HTTP.Paths)
		for j := all - 1; j >= 0; j-- {
			if rule.HTTP.Paths[j].Path == path {
				out = append(out, operation{Op: "remove", Path: fmt.Sprintf("/spec/rules/%d/http/paths/%d", i, j)})
				rule.HTTP.Paths = slices.Delete(rule.HTTP.Paths, j, j+1)
			}
		}
		if all > 0 && len(rule.HTTP.Paths) == 0 {
			out = append(out[:found], operation{Op: "remove", Path: fmt.Sprintf("/spec/rules/%d", i)})
			in.Spec.Rules = slices.Delete(in.Spec.Rules, i, i+1)
		}
	}
	switch {
	case len(in.Spec.Rules) > 0 || len(out) == 0:
		return out
	case in.Spec.DefaultBackend != nil:
		return []operation{{Op: "remove", Path: "/spec/rules"}}
	default: // an Ingress must have a rule or a default backend: a rule without paths stays
		in.Spec.Rules = []networkingv1.IngressRule{{Host: host}}
		return append(out[:len(out)-1], operation{Op: "remove", Path: "/spec/rules/0/http"})
	}
}
