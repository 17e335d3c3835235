package listeners

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"
	gwapiv1beta1 "sigs.k8s.io/gateway-api/apis/v1beta1"
)

// Granted reports whether one of the ReferenceGrants of a Service's namespace lets the HTTPRoutes of another namespace
// lead to the Service.
func Granted(grants []gwapiv1beta1.ReferenceGrant, from string, to types.NamespacedName) bool {
	return slices.ContainsFunc(grants, func(g gwapiv1beta1.ReferenceGrant) bool {
		return g.Namespace == to.Namespace && g.DeletionTimestamp == nil &&
			slices.ContainsFunc(g.Spec.From, func(f gwapiv1.ReferenceGrantFrom) bool {
				return f.Group == gwapiv1.GroupName && f.Kind == "HTTPRoute" && string(f.Namespace) == from
			}) &&
			slices.ContainsFunc(g.Spec.To, func(t gwapiv1.ReferenceGrantTo) bool {
				return t.Group == "" && t.Kind == "Service" && (t.Name == nil || string(*t.Name) == to.Name)
			})
	})
}
