package listeners_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"

	"chancery.dev/internal/machine/listeners"
)

// listener is one on a port, of a protocol, for a hostname, that admits every namespace.
func listener(name string, port int, protocol gwapiv1.ProtocolType, hostname string, changes ...func(*listeners.Listener)) listeners.Listener {
	l := listeners.Listener{Listener: gwapiv1.Listener{Name: gwapiv1.SectionName(name), Port: gwapiv1.PortNumber(port), Protocol: protocol}}
	if hostname != "" {
		l.Hostname = (*gwapiv1.Hostname)(&hostname)
	}
	admitting(gwapiv1.NamespacesFromAll, nil)(&l)
	for _, change := range changes {
		change(&l)
	}
	return l
}

func admitting(from gwapiv1.FromNamespaces, labels map[string]string) func(*listeners.Listener) {
	return func(l *listeners.Listener) {
		l.AllowedRoutes = &gwapiv1.AllowedRoutes{Namespaces: &gwapiv1.RouteNamespaces{From: &from}}
		if labels != nil {
			l.AllowedRoutes.Namespaces.Selector = &metav1.LabelSelector{MatchLabels: labels}
		}
	}
}

func byDefault(l *listeners.Listener) { l.AllowedRoutes = nil }

func programmed(l *listeners.Listener) { l.Programmed = true }

func kinds(kinds ...gwapiv1.RouteGroupKind) func(*listeners.Listener) {
	return func(l *listeners.Listener) { l.AllowedRoutes.Kinds = kinds }
}

// gateway is one in the namespace infra.
func gateway(offered ...listeners.Listener) listeners.Parent {
	infra := gwapiv1.Namespace("infra")
	return listeners.Parent{Ref: gwapiv1.ParentReference{Name: "gw", Namespace: &infra}, Namespace: "infra", Listeners: offered}
}

// set is a ListenerSet in the namespace of the route, of a Gateway.
func set(of *listeners.Parent, offered ...listeners.Listener) listeners.Parent {
	kind := gwapiv1.Kind("ListenerSet")
	return listeners.Parent{Ref: gwapiv1.ParentReference{Name: "set", Kind: &kind}, Namespace: "shop", Listeners: offered, Gateway: of}
}

func written(name, note string) listeners.Parent {
	return listeners.Parent{Ref: gwapiv1.ParentReference{Name: gwapiv1.ObjectName(name)}, AsWritten: true, Note: note}
}

// shown is a choice's parentRefs, shortly.
func shown(refs []gwapiv1.ParentReference) string {
	var out []string
	for _, r := range refs {
		s := string(r.Name)
		if r.SectionName != nil {
			s += "/" + string(*r.SectionName)
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

const (
	plain = gwapiv1.HTTPProtocolType
	https = gwapiv1.HTTPSProtocolType
	tls   = gwapiv1.TLSProtocolType
)

// row is a choice for the host www.example.test of namespace shop, which is labelled tier=web.
type row struct {
	parents []listeners.Parent
	host    string
	refs    string
	lacking []string
}

func rows() map[string]row {
	const rest = " that admits www.example.test and HTTPRoutes of namespace shop"
	group, other := gwapiv1.Group(gwapiv1.GroupName), gwapiv1.Group("example.com")
	one := func(offered ...listeners.Listener) []listeners.Parent {
		return []listeners.Parent{gateway(offered...)}
	}
	mine := func(name string, change ...func(*listeners.Listener)) listeners.Listener {
		return listener(name, 80, plain, "", change...)
	}
	own := func(offered ...listeners.Listener) []listeners.Parent {
		p := gateway(offered...)
		p.Namespace = "shop"
		return []listeners.Parent{p}
	}
	secured := gateway(listener("tls", 443, https, ""))
	shared := gateway(mine("web"), listener("tls", 443, https, ""))
	return map[string]row{
		"HTTP beside HTTPS":                 {parents: one(listener("tls", 443, https, ""), mine("web")), refs: "gw/web"},
		"HTTPS stays once it works":         {parents: one(listener("tls", 443, https, "", programmed), mine("web")), refs: "gw/web gw/tls"},
		"HTTPS for others goes":             {parents: one(listener("tls", 443, https, "x.test", programmed), mine("web")), refs: "gw/web"},
		"passthrough goes":                  {parents: one(listener("tls", 443, tls, "", programmed), mine("web")), refs: "gw/web"},
		"port 80 first":                     {parents: one(listener("alt", 8080, plain, "www.example.test"), mine("web")), refs: "gw/web"},
		"another port, without 80":          {parents: one(listener("alt", 8080, plain, "")), refs: "gw/alt"},
		"the closest hostname":              {parents: one(mine("any"), listener("wild", 80, plain, "*.example.test"), listener("exact", 80, plain, "www.example.test")), refs: "gw/exact"},
		"the longest wildcard":              {parents: one(listener("short", 80, plain, "*.test"), listener("long", 80, plain, "*.example.test"), mine("any")), refs: "gw/long"},
		"a wildcard of many":                {parents: one(listener("wild", 80, plain, "*.test")), refs: "gw/wild"},
		"an exact one beats its wildcard":   {parents: one(listener("wild", 80, plain, "*.example.test"), listener("exact", 80, plain, "a.example.test")), host: "a.example.test", refs: "gw/exact"},
		"the closest that admits":           {parents: one(mine("any"), listener("exact", 80, plain, "www.example.test", byDefault)), refs: "gw/any"},
		"a selector that matches":           {parents: one(mine("web", admitting(gwapiv1.NamespacesFromSelector, map[string]string{"tier": "web"}))), refs: "gw/web"},
		"a kind that is named":              {parents: one(mine("web", kinds(gwapiv1.RouteGroupKind{Group: &group, Kind: "GRPCRoute"}, gwapiv1.RouteGroupKind{Kind: "HTTPRoute"}))), refs: "gw/web"},
		"an address":                        {parents: one(listener("named", 80, plain, "www.example.test"), mine("any")), host: "-", refs: "gw/any"},
		"a ListenerSet's own":               {parents: []listeners.Parent{set(&shared, mine("own", byDefault))}, refs: "set/own"},
		"a ListenerSet by its Gateway":      {parents: []listeners.Parent{set(&shared, listener("tls", 443, https, ""))}, refs: "gw/web"},
		"what a Gateway redirects to, too":  {parents: []listeners.Parent{set(&shared, listener("own", 443, https, "", programmed))}, refs: "gw/web set/own"},
		"two ListenerSets of one Gateway":   {parents: []listeners.Parent{set(&shared), set(&shared)}, refs: "gw/web", lacking: nil},
		"as written":                        {parents: []listeners.Parent{written("x", ""), gateway(mine("web"))}, refs: "x gw/web"},
		"as written, for want of knowledge": {parents: []listeners.Parent{written("x", "the Gateway shop/x does not exist")}, refs: "x", lacking: []string{"the Gateway shop/x does not exist"}},
		"one of two": {
			parents: []listeners.Parent{gateway(listener("tls", 443, https, "")), set(nil, mine("own"))}, refs: "set/own",
			lacking: []string{"Gateway infra/gw: listener tls is HTTPS; add one with protocol HTTP on port 80" + rest},
		},
		"HTTPS that works, alone": {
			parents: one(listener("tls", 443, https, "", programmed)), refs: "gw",
			lacking: []string{"Gateway infra/gw: listener tls is HTTPS; add one with protocol HTTP on port 80" + rest},
		},
		"HTTPS that waits for its certificate": {
			parents: one(listener("tls", 443, https, "")),
			lacking: []string{"Gateway infra/gw: listener tls is HTTPS; add one with protocol HTTP on port 80" + rest},
		},
		"a ListenerSet and its Gateway": {
			parents: []listeners.Parent{set(&secured, listener("own", 8443, tls, ""))},
			lacking: []string{"ListenerSet shop/set: listener own is TLS; its Gateway infra/gw: listener tls is HTTPS; add one to either with protocol HTTP on port 80" + rest},
		},
		"nothing": {parents: own(), lacking: []string{"Gateway shop/gw: it has no listeners; add one with protocol HTTP on port 80" + rest}},
		"each refuses": {
			parents: one(listener("tls", 443, https, ""), mine("same", byDefault), listener("host", 80, plain, "*.www.example.test"), mine("kind", kinds(gwapiv1.RouteGroupKind{Group: &other, Kind: "HTTPRoute"}))),
			lacking: []string{"Gateway infra/gw: listener same admits routes of namespace infra only (allowedRoutes.namespaces), listener host is for *.www.example.test only, " +
				"listener kind admits no HTTPRoutes (allowedRoutes.kinds), and so on (4 listeners); change that, or add one with protocol HTTP on port 80" + rest},
		},
		"by namespace": {
			parents: own(mine("select", admitting(gwapiv1.NamespacesFromSelector, map[string]string{"tier": "db"})), mine("none", admitting(gwapiv1.NamespacesFromNone, nil))),
			lacking: []string{"Gateway shop/gw: listener select admits namespaces by a selector (allowedRoutes.namespaces), which shop does not match, " +
				"listener none admits no routes (allowedRoutes.namespaces); change that, or add one with protocol HTTP on port 80" + rest},
		},
		"an address, where all have names": {
			parents: one(listener("web", 80, plain, "www.example.test")), host: "-",
			lacking: []string{"Gateway infra/gw: listener web is for www.example.test only; change that, or add one with protocol HTTP on port 80 that admits every host and HTTPRoutes of namespace shop"},
		},
	}
}

func TestChoose(t *testing.T) {
	for name, c := range rows() {
		t.Run(name, func(t *testing.T) {
			route := listeners.Route{Namespace: "shop", Labels: map[string]string{"tier": "web"}, Host: "www.example.test"}
			switch c.host {
			case "":
			case "-":
				route.Host = ""
			default:
				route.Host = c.host
			}
			got := listeners.Choose(c.parents, route)
			if diff := cmp.Diff(c.refs, shown(got.Refs)); diff != "" {
				t.Errorf("parentRefs (-want +got): %s", diff)
			}
			if diff := cmp.Diff(c.lacking, got.Lacking); diff != "" {
				t.Errorf("lacking (-want +got): %s", diff)
			}
		})
	}
}

// TestClosedParentsAreAlike: what is said of a parent in another namespace that takes no routes of the Challenge's does
// not depend on whether it exists, nor on its listeners.
func TestClosedParentsAreAlike(t *testing.T) {
	of := gwapiv1.Namespace("infra")
	kind := gwapiv1.Kind("ListenerSet")
	foreignSet := func(offered ...listeners.Listener) listeners.Parent {
		admits := gateway(listener("web", 80, plain, ""))
		return listeners.Parent{
			Ref: gwapiv1.ParentReference{Name: "gw", Namespace: &of, Kind: &kind}, Namespace: "infra", Listeners: offered, Gateway: &admits,
		}
	}
	closed := [][]listeners.Listener{
		{},
		{listener("same", 80, plain, "", byDefault)},
		{listener("same", 443, https, "secret.example.test", byDefault, programmed)},
		{listener("select", 80, plain, "www.example.test", admitting(gwapiv1.NamespacesFromSelector, map[string]string{"tier": "db"}))},
		{listener("none", 80, plain, "", admitting(gwapiv1.NamespacesFromNone, nil)), listener("pass", 443, tls, "")},
	}
	route := listeners.Route{Namespace: "shop", Labels: map[string]string{"tier": "web"}, Host: "www.example.test"}
	for name, of := range map[string]func(...listeners.Listener) listeners.Parent{
		"Gateway":         gateway,
		"ListenerSet":     foreignSet,
		"own ListenerSet": func(l ...listeners.Listener) listeners.Parent { g := gateway(l...); return set(&g) },
		"another's, no HTTP": func(l ...listeners.Listener) listeners.Parent {
			g := gateway(l...)
			return set(&g, listener("tls", 443, https, ""))
		},
		"another's, not here": func(l ...listeners.Listener) listeners.Parent {
			g := gateway(l...)
			return set(&g, listener("x", 80, plain, "x.test"))
		},
	} {
		absent := listeners.Choose([]listeners.Parent{of()}, route)
		if len(absent.Lacking) != 1 || !strings.Contains(absent.Lacking[0], "/gw does not exist, or admits no HTTPRoutes of namespace shop") {
			t.Errorf("%s that does not exist: %q", name, absent.Lacking)
		}
		for _, offered := range closed {
			if diff := cmp.Diff(absent, listeners.Choose([]listeners.Parent{of(offered...)}, route)); diff != "" {
				t.Errorf("%s with %v differs from one that does not exist (-absent +got): %s", name, offered[0].Name, diff)
			}
		}
	}
}

// TestNoMoreThanARouteMayHave keeps those for HTTP where there are too many.
func TestNoMoreThanARouteMayHave(t *testing.T) {
	var parents []listeners.Parent
	for n := range 20 {
		p := gateway(listener("web", 80, plain, ""), listener("tls", 443, https, "", programmed))
		p.Ref.Name = gwapiv1.ObjectName(fmt.Sprint("gw", n))
		parents = append(parents, p)
	}
	refs := listeners.Choose(parents, listeners.Route{Namespace: "shop", Host: "www.example.test"}).Refs
	if len(refs) != 32 || shown(refs[19:21]) != "gw19/web gw0/tls" {
		t.Errorf("%d: %s", len(refs), shown(refs))
	}
}

// TestRead takes the listeners from objects, and says when the namespace's labels matter.
func TestRead(t *testing.T) {
	ready := []metav1.Condition{{Type: "Programmed", Status: metav1.ConditionTrue}}
	web, own := listener("web", 80, plain, "").Listener, listener("tls", 443, https, "x.test", programmed)
	g := &gwapiv1.Gateway{
		Spec:   gwapiv1.GatewaySpec{Listeners: []gwapiv1.Listener{web, own.Listener}},
		Status: gwapiv1.GatewayStatus{Listeners: []gwapiv1.ListenerStatus{{Name: "tls", Conditions: ready}, {Name: "web"}}},
	}
	want := []listeners.Listener{{Listener: web}, own}
	if diff := cmp.Diff(want, listeners.Of(g)); diff != "" {
		t.Errorf("of a Gateway (-want +got): %s", diff)
	}
	s := &gwapiv1.ListenerSet{
		Spec: gwapiv1.ListenerSetSpec{Listeners: []gwapiv1.ListenerEntry{
			{Name: web.Name, Port: web.Port, Protocol: web.Protocol, AllowedRoutes: web.AllowedRoutes},
			{Name: own.Name, Port: own.Port, Protocol: own.Protocol, AllowedRoutes: own.AllowedRoutes, Hostname: own.Hostname},
		}},
		Status: gwapiv1.ListenerSetStatus{Listeners: []gwapiv1.ListenerEntryStatus{{Name: "tls", Conditions: ready}}},
	}
	if diff := cmp.Diff(want, listeners.OfSet(s)); diff != "" {
		t.Errorf("of a ListenerSet (-want +got): %s", diff)
	}
	selective := listener("web", 80, plain, "", admitting(gwapiv1.NamespacesFromSelector, map[string]string{}))
	if listeners.NeedsLabels(want) || !listeners.NeedsLabels(append(want, selective)) {
		t.Error("labels matter to a selector alone")
	}
}
