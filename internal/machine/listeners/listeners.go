// Package listeners chooses the listeners for the HTTPRoute of an HTTP-01 challenge, if the parentRefs of the solver
// name no listener. A CA sends its request to port 80, without TLS (RFC 8555 §8.3), so the request does not arrive at a
// listener that accepts only TLS. The package is pure: internal/solver/http01/route reads the Gateways and uses the
// choice. The package uses one thing from a listener's status: whether the Gateway's controller has programmed the
// listener.
package listeners

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// maxRefs is how many parents an HTTPRoute may have.
const maxRefs = 32

// Route is the HTTPRoute to attach.
type Route struct {
	// Namespace is the namespace of the HTTPRoute, and Labels are the labels of the namespace. Choose and Closed read
	// Labels only if NeedsLabels is true.
	Namespace string
	Labels    map[string]string
	// Host is the name that it is for, in lower case; empty for an IP address.
	Host string
}

// Parent is one of the parents that a solver names.
type Parent struct {
	// Ref is how the solver names it.
	Ref gwapiv1.ParentReference
	// AsWritten is set if there is nothing to choose: Ref names a section, or its listeners are not known.
	AsWritten bool
	// Note says why the listeners are not known; mostly empty.
	Note string
	// Namespace is where it is.
	Namespace string
	// Listeners are those of the Gateway or ListenerSet.
	Listeners []Listener
	// Gateway is the parent of a ListenerSet. Choose takes a listener of the Gateway if the ListenerSet has none for
	// HTTP. Gateway is nil if there is none, or if it is not known.
	Gateway *Parent
}

// Listener is a listener of a Gateway or ListenerSet.
type Listener struct {
	gwapiv1.Listener
	// Programmed is set if the Gateway's controller says that it is in use.
	Programmed bool
}

// Choice is where an HTTPRoute attaches.
type Choice struct {
	// Refs are its parentRefs; none if no listener would take it.
	Refs []gwapiv1.ParentReference
	// Lacking tells people, for each parent without a listener for HTTP, which listeners it has and what to add.
	Lacking []string
}

// Target says what a parentRef of an object in a namespace names: a Gateway there, unless it says otherwise.
func Target(ref gwapiv1.ParentReference, namespace string) (gwapiv1.Kind, types.NamespacedName) {
	return or(ref.Kind, "Gateway"), types.NamespacedName{
		Namespace: string(or(ref.Namespace, gwapiv1.Namespace(namespace))), Name: string(ref.Name),
	}
}

// Named reports whether a parentRef leaves nothing to choose: it names a section or port, or
// is of another group than the Gateway API's.
func Named(ref gwapiv1.ParentReference) bool {
	return or(ref.SectionName, "") != "" || ref.Port != nil || ref.Group != nil && *ref.Group != gwapiv1.GroupName
}

// Of returns a Gateway's listeners as those of a Parent.
func Of(g *gwapiv1.Gateway) []Listener {
	var out []Listener
	programmed := map[gwapiv1.SectionName]bool{}
	for _, s := range g.Status.Listeners {
		programmed[s.Name] = programmed[s.Name] || isProgrammed(s.Conditions)
	}
	for _, l := range g.Spec.Listeners {
		out = append(out, Listener{l, programmed[l.Name]})
	}
	return out
}

// OfSet returns a ListenerSet's listeners as those of a Parent.
func OfSet(s *gwapiv1.ListenerSet) []Listener {
	var out []Listener
	programmed := map[gwapiv1.SectionName]bool{}
	for _, s := range s.Status.Listeners {
		programmed[s.Name] = programmed[s.Name] || isProgrammed(s.Conditions)
	}
	for _, l := range s.Spec.Listeners {
		out = append(out, Listener{gwapiv1.Listener(l), programmed[l.Name]})
	}
	return out
}

func isProgrammed(conditions []metav1.Condition) bool {
	return slices.ContainsFunc(conditions, func(c metav1.Condition) bool {
		return c.Type == string(gwapiv1.ListenerConditionProgrammed) && c.Status == metav1.ConditionTrue
	})
}

// NeedsLabels reports whether one of the listeners admits routes by the labels of their namespace.
func NeedsLabels(listeners []Listener) bool {
	return slices.ContainsFunc(listeners, func(l Listener) bool {
		return takesHTTPRoutes(l) && from(l) == gwapiv1.NamespacesFromSelector
	})
}

func takesHTTPRoutes(l Listener) bool { return isHTTP(l) || l.Protocol == gwapiv1.HTTPSProtocolType }

// Choose takes, from each parent, the listener for HTTP at which the CA's request arrives. It also takes the listener
// for HTTPS if that works: some gateways redirect from HTTP to HTTPS on their own. If no parent has a listener for
// HTTP, the parents with one for HTTPS stay as they are written: something in front of them may redirect.
func Choose(parents []Parent, route Route) Choice {
	var c Choice
	var secure, only []gwapiv1.ParentReference
	for _, p := range parents {
		if p.AsWritten {
			c.Refs = append(c.Refs, p.Ref)
			if p.Note != "" {
				c.Lacking = append(c.Lacking, p.Note)
			}
			continue
		}
		if p.Closed(route) {
			c.Lacking = append(c.Lacking, p.String()+" "+closed(route))
			continue
		}
		plain, tls := p.sections(route)
		if len(plain) == 0 {
			c.Lacking = append(c.Lacking, p.lacks(route))
		}
		if len(tls) > 0 {
			only = append(only, p.Ref)
		}
		c.Refs, secure = append(c.Refs, plain...), append(secure, tls...)
	}
	if len(c.Refs) == 0 {
		c.Refs = only
		return c
	}
	c.Refs = distinct(append(c.Refs, secure...), route.Namespace)
	return c
}

// Closed reports whether a parent is in another namespace than the route, and has no listener that admits HTTPRoutes of
// the route's namespace. A parent that does not exist is closed, too. A user who may write a solver may name any
// parent, and gets the same message for every closed parent: the message does not tell whether the parent exists.
func (p Parent) Closed(route Route) bool {
	return p.Namespace != route.Namespace && !slices.ContainsFunc(p.Listeners, func(l Listener) bool {
		return takesHTTPRoutes(l) && p.excludes(l, route) == ""
	})
}

// closed says that a parent is Closed, and what helps.
func closed(route Route) string {
	return fmt.Sprintf("does not exist, or admits no HTTPRoutes of namespace %[1]s: ask whoever manages it for a listener that does "+
		"(allowedRoutes.namespaces), or name one of namespace %[1]s", route.Namespace)
}

// sections returns the listener for HTTP and the one for HTTPS, as parentRefs: those of its
// Gateway, where a ListenerSet has none for HTTP.
func (p Parent) sections(route Route) (plain, secure []gwapiv1.ParentReference) {
	if l := p.best(gwapiv1.HTTPProtocolType, route); l != nil {
		plain = append(plain, sectioned(p.Ref, l))
	}
	if l := p.best(gwapiv1.HTTPSProtocolType, route); l != nil {
		secure = append(secure, sectioned(p.Ref, l))
	}
	if len(plain) == 0 && p.Gateway != nil {
		if instead, too := p.Gateway.sections(route); len(instead) > 0 {
			return instead, append(secure, too...)
		}
	}
	return plain, secure
}

func sectioned(ref gwapiv1.ParentReference, l *Listener) gwapiv1.ParentReference {
	ref.SectionName = &l.Name
	return ref
}

// distinct removes duplicates, and all beyond the number that a route may have.
func distinct(refs []gwapiv1.ParentReference, namespace string) []gwapiv1.ParentReference {
	type section struct {
		group   gwapiv1.Group
		kind    gwapiv1.Kind
		place   types.NamespacedName
		section gwapiv1.SectionName
		port    gwapiv1.PortNumber
	}
	seen := map[section]bool{}
	refs = slices.DeleteFunc(refs, func(r gwapiv1.ParentReference) bool {
		kind, place := Target(r, namespace)
		key := section{or(r.Group, gwapiv1.GroupName), kind, place, or(r.SectionName, ""), or(r.Port, 0)}
		again := seen[key]
		seen[key] = true
		return again
	})
	return refs[:min(len(refs), maxRefs)]
}

// best returns the listener of a protocol that a request for the route's host comes to, of those that would take the
// route: on the protocol's port first, then that with the closest hostname. One for HTTPS counts once it works.
func (p Parent) best(protocol gwapiv1.ProtocolType, route Route) *Listener {
	port := gwapiv1.PortNumber(80)
	if protocol == gwapiv1.HTTPSProtocolType {
		port = 443
	}
	var best *Listener
	for i := range p.Listeners {
		l := &p.Listeners[i]
		if l.Protocol != protocol || protocol == gwapiv1.HTTPSProtocolType && !l.Programmed || p.refuses(*l, route) != "" {
			continue
		}
		if best == nil || isBetter(l, best, port) {
			best = l
		}
	}
	return best
}

func isBetter(l, than *Listener, port gwapiv1.PortNumber) bool {
	if here, there := l.Port == port, than.Port == port; here != there {
		return here
	}
	return closeness(l) > closeness(than)
}

// closeness orders the hostnames of listeners that all match: an exact one, then the longest wildcard, then none.
func closeness(l *Listener) int {
	host := or(l.Hostname, "")
	if host == "" || strings.HasPrefix(string(host), "*") {
		return len(host)
	}
	return len(host) + 1
}

// refuses says why a listener that speaks HTTP would not take the route; empty if it would.
func (p Parent) refuses(l Listener, route Route) string {
	if host := strings.ToLower(string(or(l.Hostname, ""))); !matches(host, route.Host) {
		return fmt.Sprintf("is for %s only", host)
	}
	if allowed := l.AllowedRoutes; allowed != nil && len(allowed.Kinds) > 0 && !slices.ContainsFunc(allowed.Kinds, isHTTPRoute) {
		return "admits no HTTPRoutes (allowedRoutes.kinds)"
	}
	return p.excludes(l, route)
}

// excludes says why a listener would not take routes of the route's namespace; empty if it would.
func (p Parent) excludes(l Listener, route Route) string {
	switch from(l) {
	case gwapiv1.NamespacesFromAll:
		return ""
	case gwapiv1.NamespacesFromSelector:
		selector, err := metav1.LabelSelectorAsSelector(l.AllowedRoutes.Namespaces.Selector)
		if err == nil && selector.Matches(labels.Set(route.Labels)) {
			return ""
		}
		return fmt.Sprintf("admits namespaces by a selector (allowedRoutes.namespaces), which %s does not match", route.Namespace)
	case gwapiv1.NamespacesFromSame:
		if p.Namespace == route.Namespace {
			return ""
		}
		return fmt.Sprintf("admits routes of namespace %s only (allowedRoutes.namespaces)", p.Namespace)
	default:
		return "admits no routes (allowedRoutes.namespaces)"
	}
}

// matches reports whether a listener's hostname admits a host. A wildcard stands for one or more labels.
func matches(listener, host string) bool {
	if suffix, wild := strings.CutPrefix(listener, "*"); wild {
		return strings.HasSuffix(host, suffix) && len(host) > len(suffix)
	}
	return listener == "" || listener == host
}

func isHTTPRoute(k gwapiv1.RouteGroupKind) bool {
	return k.Kind == "HTTPRoute" && or(k.Group, gwapiv1.GroupName) == gwapiv1.GroupName
}

// from says which namespaces a listener admits routes of.
func from(l Listener) gwapiv1.FromNamespaces {
	if l.AllowedRoutes == nil || l.AllowedRoutes.Namespaces == nil {
		return gwapiv1.NamespacesFromSame
	}
	return or(l.AllowedRoutes.Namespaces.From, gwapiv1.NamespacesFromSame)
}

// maxNamed is how many listeners of a parent are named.
const maxNamed = 3

// lacks says what the listeners of a parent are, and what to add.
func (p Parent) lacks(route Route) string {
	said, add := fmt.Sprintf("%s: %s", p, p.listed(route)), "add one"
	near := p.Listeners
	switch {
	case p.Gateway == nil:
	case p.Gateway.Closed(route):
		said += fmt.Sprintf("; its %s %s", p.Gateway, closed(route))
	default:
		said += fmt.Sprintf("; its %s: %s", p.Gateway, p.Gateway.listed(route))
		near, add = append(slices.Clone(near), p.Gateway.Listeners...), "add one to either"
	}
	if slices.ContainsFunc(near, isHTTP) {
		add = "change that, or " + add
	}
	host := route.Host
	if host == "" {
		host = "every host"
	}
	return fmt.Sprintf("%s; %s with protocol HTTP on port 80 that admits %s and HTTPRoutes of namespace %s", said, add, host, route.Namespace)
}

// listed says why each listener does not do, those for HTTP first: they are nearest to what is needed.
func (p Parent) listed(route Route) string {
	var listeners []Listener
	for _, l := range p.Listeners {
		if isHTTP(l) {
			listeners = append(listeners, l)
		}
	}
	listeners = append(listeners, slices.DeleteFunc(slices.Clone(p.Listeners), isHTTP)...)
	var said []string
	for i, l := range listeners {
		if i == maxNamed {
			said = append(said, fmt.Sprintf("and so on (%d listeners)", len(listeners)))
			break
		}
		why := "is " + string(l.Protocol)
		if isHTTP(l) {
			why = p.refuses(l, route)
		}
		said = append(said, fmt.Sprintf("listener %s %s", l.Name, why))
	}
	if len(said) == 0 {
		return "it has no listeners"
	}
	return strings.Join(said, ", ")
}

func isHTTP(l Listener) bool { return l.Protocol == gwapiv1.HTTPProtocolType }

// String names a parent for people.
func (p Parent) String() string {
	return fmt.Sprintf("%s %s/%s", or(p.Ref.Kind, "Gateway"), p.Namespace, p.Ref.Name)
}

func or[T comparable](p *T, otherwise T) T {
	var zero T
	if p == nil || *p == zero {
		return otherwise
	}
	return *p
}
