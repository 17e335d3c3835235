package listeners

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"

	"chancery.dev/internal/rig/growth"
)

// TestChooseGrows: to choose a listener of a Gateway costs as much as it has, whatever its status says of each.
func TestChooseGrows(t *testing.T) {
	growth.Linear(t, 1000, func(n int) func() {
		g := &gwapiv1.Gateway{}
		for i := range n {
			name, host := gwapiv1.SectionName(fmt.Sprint("l-", i)), gwapiv1.Hostname(fmt.Sprintf("h-%d.example.com", i))
			g.Spec.Listeners = append(g.Spec.Listeners, gwapiv1.Listener{Name: name, Hostname: &host, Port: 80, Protocol: gwapiv1.HTTPProtocolType})
			g.Status.Listeners = append(g.Status.Listeners, gwapiv1.ListenerStatus{Name: name, Conditions: []metav1.Condition{{
				Type: string(gwapiv1.ListenerConditionProgrammed), Status: metav1.ConditionTrue,
			}}})
		}
		route := Route{Namespace: "shop", Host: fmt.Sprintf("h-%d.example.com", n-1)}
		return func() {
			p := Parent{Ref: gwapiv1.ParentReference{Name: "edge"}, Namespace: "shop", Listeners: Of(g)}
			if c := Choose([]Parent{p}, route); len(c.Refs) != 1 || !p.Listeners[n-1].Programmed {
				t.Fatalf("%+v", c)
			}
		}
	})
}
