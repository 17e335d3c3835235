package engine

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/growth"
)

// TestPickGrows: what calls cost that come while there is no room, and the choice of one of them once there is, grows
// with their number, whichever lanes, namespaces and urgencies they have, and if nobody wants most of them any more.
func TestPickGrows(t *testing.T) {
	for name, of := range map[string]func(i int, uid *types.UID, namespace *string, call *Call){
		"as many lanes":            func(i int, _ *types.UID, _ *string, call *Call) { call.Lane.Name = fmt.Sprint("lane ", i) },
		"as many namespaces":       func(i int, _ *types.UID, namespace *string, _ *Call) { *namespace = fmt.Sprint("n-", i) },
		"as many urgencies":        func(i int, _ *types.UID, _ *string, call *Call) { call.Urgency = i },
		"one line":                 func(int, *types.UID, *string, *Call) {},
		"one object, other inputs": func(i int, uid *types.UID, _ *string, call *Call) { *uid, call.Inputs = "one", fmt.Sprint(i) },
	} {
		t.Run(name, func(t *testing.T) {
			growth.Linear(t, 10_000, func(n int) func() {
				type wanted struct {
					owner owner
					call  Call
				}
				all := make([]wanted, n)
				for i := range all {
					uid, namespace, call := types.UID(fmt.Sprint(i)), "shop", Call{Name: "ask", Lane: Lane{Name: "lane", Limit: 1}}
					of(i, &uid, &namespace, &call)
					all[i] = wanted{owner{uid: uid, name: types.NamespacedName{Namespace: namespace, Name: "web"}}, call}
				}
				return func() {
					c := newCalls(t.Context(), Options{CallsAtOnce: limits.Calls, Now: time.Now})
					c.lanes["lane"] = &lane{running: 2, lines: map[line][]*call{}, turns: map[string]uint64{}, namespaces: map[string]int{}}
					c.running = load{limits.Calls, limits.CallBytes}
					c.namespaces["shop"] = c.running
					for _, w := range all {
						c.start(w.owner, w.call)
					}
					c.running, c.namespaces["shop"], c.lanes["lane"].running = load{}, load{}, 0
					if _, next := c.pick(); next == nil {
						t.Fatal("none may start")
					}
				}
			})
		})
	}
}
