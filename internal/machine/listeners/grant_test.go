package listeners

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"
	gwapiv1beta1 "sigs.k8s.io/gateway-api/apis/v1beta1"
)

// TestGranted changes one field after the other of a grant that is enough.
func TestGranted(t *testing.T) {
	responder := types.NamespacedName{Namespace: "cert-manager", Name: "chancery-responder"}
	for name, c := range map[string]struct {
		change func(*gwapiv1beta1.ReferenceGrant)
		want   bool
	}{
		"by name":          {func(*gwapiv1beta1.ReferenceGrant) {}, true},
		"all Services":     {func(g *gwapiv1beta1.ReferenceGrant) { g.Spec.To[0].Name = nil }, true},
		"another name":     {func(g *gwapiv1beta1.ReferenceGrant) { *g.Spec.To[0].Name = "another" }, false},
		"Secrets":          {func(g *gwapiv1beta1.ReferenceGrant) { g.Spec.To[0].Kind = "Secret" }, false},
		"another group":    {func(g *gwapiv1beta1.ReferenceGrant) { g.Spec.To[0].Group = "multicluster.x-k8s.io" }, false},
		"from elsewhere":   {func(g *gwapiv1beta1.ReferenceGrant) { g.Spec.From[0].Namespace = "bank" }, false},
		"from TLSRoutes":   {func(g *gwapiv1beta1.ReferenceGrant) { g.Spec.From[0].Kind = "TLSRoute" }, false},
		"from another API": {func(g *gwapiv1beta1.ReferenceGrant) { g.Spec.From[0].Group = "example.com" }, false},
		"elsewhere":        {func(g *gwapiv1beta1.ReferenceGrant) { g.Namespace = "shop" }, false},
		"which is going":   {func(g *gwapiv1beta1.ReferenceGrant) { g.DeletionTimestamp = &metav1.Time{} }, false},
		"second of several": {func(g *gwapiv1beta1.ReferenceGrant) {
			g.Spec.From = append([]gwapiv1.ReferenceGrantFrom{{Kind: "Gateway"}}, g.Spec.From...)
		}, true},
	} {
		service := gwapiv1.ObjectName(responder.Name)
		grant := gwapiv1beta1.ReferenceGrant{
			ObjectMeta: metav1.ObjectMeta{Namespace: responder.Namespace},
			Spec: gwapiv1.ReferenceGrantSpec{
				From: []gwapiv1.ReferenceGrantFrom{{Group: gwapiv1.GroupName, Kind: "HTTPRoute", Namespace: "shop"}},
				To:   []gwapiv1.ReferenceGrantTo{{Kind: "Service", Name: &service}},
			},
		}
		c.change(&grant)
		if got := Granted([]gwapiv1beta1.ReferenceGrant{{}, grant}, "shop", responder); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
