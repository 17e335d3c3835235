package service

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/rig/golden"
)

var now = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// named is one value of one aspect of a State.
type named struct {
	name string
	set  func(*State)
}

func existing(change func(*corev1.Service)) func(*State) {
	return func(s *State) {
		s.Service = New("ns", corev1.ServiceTypeClusterIP, nil)
		s.Service.UID = "present"
		change(s.Service)
	}
}

// ofChallenge makes a Service that of the pod of one Challenge, controlled by the Challenge with a UID.
func ofChallenge(owner types.UID) func(*corev1.Service) {
	return func(s *corev1.Service) {
		c := &acmev1.Challenge{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "challenge"}}
		c.Spec.Solver.HTTP01 = &acmev1.HTTP01Solver{}
		*s = *NewPodService(c, nil)
		s.UID, s.OwnerReferences[0].UID = "present", owner
	}
}

func servicesThere() []named {
	return []named{
		{"absent", func(s *State) {
			s.Service = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: clusterIPName}}
		}},
		{"ours", existing(func(*corev1.Service) {})},
		{"being deleted", existing(func(s *corev1.Service) { s.DeletionTimestamp = &metav1.Time{Time: now} })},
		{"with a selector", existing(func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "theirs"} })},
		{"without our label", existing(func(s *corev1.Service) { s.Labels = nil })},
		{"absent, of one pod", func(s *State) {
			s.Service = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: ObjectName("challenge")}}
		}},
		{"of one pod", existing(ofChallenge("challenge"))},
		{"of one pod, but of another Challenge", existing(ofChallenge("another"))},
		{"by another name", existing(func(s *corev1.Service) { s.Name = Prefix + "-x7k2p" })},
	}
}

func needsOf() []named {
	idle := func(d time.Duration) func(*State) { return func(s *State) { s.Idle = now.Add(-d) } }
	return []named{
		{"needed", func(s *State) { s.Needed = true }},
		{"needed again", func(s *State) { s.Needed, s.Idle = true, now.Add(-time.Hour) }},
		{"not needed", func(*State) {}},
		{"not needed for 9m", idle(9 * time.Minute)},
		{"not needed for 10m", idle(10 * time.Minute)},
		{"not needed for an hour", idle(time.Hour)},
		{"not needed from a time to come", idle(-time.Hour)},
	}
}

// endpointSlice is one with a single ready address; of the Service with that UID, if it has one.
func endpointSlice(name string, owner types.UID, port int32, address string) discoveryv1.EndpointSlice {
	out := discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: clusterIPName}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: &port}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}},
	}
	if owner != "" {
		yes := true
		out.OwnerReferences = []metav1.OwnerReference{{Kind: "Service", Name: clusterIPName, UID: owner, Controller: &yes}}
	}
	return out
}

func respondersThere() []named {
	no := false
	unready := endpointSlice("responder-a", "", 8089, "192.0.2.2")
	unready.Endpoints[0].Conditions.Ready = &no
	six := endpointSlice("responder-b", "", 8089, "2001:db8::1")
	six.AddressType = discoveryv1.AddressTypeIPv6
	with := func(of ...discoveryv1.EndpointSlice) func(*State) { return func(s *State) { s.Responder = of } }
	return []named{
		{"none", with()},
		{"none that is ready", with(unready)},
		{"IPv4", with(endpointSlice("responder-a", "", 8089, "192.0.2.1"), unready)},
		{"both families", with(endpointSlice("responder-a", "", 8089, "192.0.2.1"), six)},
	}
}

func slicesThere() []named {
	with := func(owner types.UID, port int32, address string, change func(*discoveryv1.EndpointSlice)) func(*State) {
		return func(s *State) {
			slice := endpointSlice(clusterIPName+"-ipv4", owner, port, address)
			change(&slice)
			s.Slices = []*discoveryv1.EndpointSlice{&slice}
		}
	}
	same := func(*discoveryv1.EndpointSlice) {}
	return []named{
		{"none", func(*State) {}},
		{"IPv4 as wanted", with("present", 8089, "192.0.2.1", same)},
		{"IPv4 at an old address", with("present", 8089, "192.0.2.9", same)},
		{"IPv4 at an old port", with("present", 80, "192.0.2.1", same)},
		{"IPv4 of the Service before", with("before", 8089, "192.0.2.1", same)},
		{"IPv4 of nobody", with("", 8089, "192.0.2.1", same)},
		{"IPv4 for another Service", with("present", 8089, "192.0.2.1", func(s *discoveryv1.EndpointSlice) {
			s.Labels[discoveryv1.LabelServiceName] = "another"
		})},
	}
}

// states visits every combination of the aspects.
func states(visit func(name [4]string, s State)) {
	for _, service := range servicesThere() {
		for _, need := range needsOf() {
			for _, responder := range respondersThere() {
				for _, slice := range slicesThere() {
					var s State
					for _, aspect := range []named{service, need, responder, slice} {
						aspect.set(&s)
					}
					visit([4]string{service.name, need.name, responder.name, slice.name}, s)
				}
			}
		}
	}
}

func describe(a Action) string {
	var words []string
	if a.Create != nil {
		words = append(words, "create the Service")
	}
	for _, slice := range a.Apply {
		words = append(words, fmt.Sprintf("apply %s to %v", slice.AddressType, addressesOf(slice)))
	}
	for _, slice := range a.Remove {
		words = append(words, "remove "+string(slice.AddressType))
	}
	if a.Pod {
		words = append(words, "delete the pod")
	}
	if a.Delete {
		words = append(words, "delete the Service")
	}
	if !a.Idle.IsZero() {
		words = append(words, "idle for "+now.Sub(a.Idle).String())
	}
	if !a.Wake.IsZero() {
		words = append(words, "wake in "+a.Wake.Sub(now).String())
	}
	if a.Done {
		words = append(words, "done")
	}
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, ", ")
}

// TestDecideTable is exhaustive over what is there and who needs it. Aspects that make no difference are left out.
func TestDecideTable(t *testing.T) {
	var out strings.Builder
	table := map[string][]string{} // the decisions under a heading
	lines := map[string][]string{}
	var headings []string
	states(func(name [4]string, s State) {
		heading, said := name[0]+", "+name[1], describe(Decide(s, now))
		if table[heading] == nil {
			headings = append(headings, heading)
		}
		table[heading] = append(table[heading], said)
		lines[heading] = append(lines[heading], fmt.Sprintf("  responder has %s, slices: %s: %s\n", name[2], name[3], said))
	})
	for _, heading := range headings {
		if said := slices.Compact(slices.Clone(table[heading])); len(said) == 1 {
			fmt.Fprintf(&out, "%s: %s\n", heading, said[0])
			continue
		}
		fmt.Fprintf(&out, "%s\n%s", heading, strings.Join(lines[heading], ""))
	}
	golden.Check(t, "decide.txt", out.String())
}

// TestInvariants says what must hold of every decision, whatever the state.
func TestInvariants(t *testing.T) {
	states(func(name [4]string, s State) {
		before := fmt.Sprintf("%+v", s)
		a := Decide(s, now)
		expect := func(ok bool, what string) {
			if !ok {
				t.Errorf("%q: %s: %s", name, what, describe(a))
			}
		}
		there := s.Service.UID != ""
		one, shared := ofOne(s.Service), slices.Contains(Names(), s.Service.Name)
		mine := there && s.Service.DeletionTimestamp == nil && (one || len(s.Service.Spec.Selector) == 0 &&
			s.Service.Labels[acmev1.HTTP01SolverLabel] == "true" && shared)
		expect(fmt.Sprintf("%+v", s) == before, "the state was changed")
		expect((a.Create != nil) == (!there && s.Needed && shared), "a Service is made when one is needed and missing, and only then")
		expect(a.Create == nil || a.Create.Name == s.Service.Name && a.Create.Namespace == s.Service.Namespace, "makes another name")
		expect(mine || !a.Delete && len(a.Apply)+len(a.Remove) == 0, "touches what is not ours")
		expect(!s.Needed || !a.Delete && len(a.Remove) == 0 && a.Idle.IsZero(), "takes away what is needed")
		expect(!a.Delete || now.Sub(s.Idle) >= KeptFor && !s.Idle.IsZero(), "deletes before it was idle for long enough")
		expect(!a.Delete || len(a.Apply) == 0, "puts right what it deletes")
		expect(a.Pod == (a.Delete && one) && (!one || len(a.Apply) == 0), "takes a Service for that of one pod, or the other way round")
		expect(a.Wake.IsZero() == a.Idle.IsZero(), "an idle Service is looked at again, and no other")
		expect(a.Wake.IsZero() || a.Wake.After(now) && !a.Wake.After(now.Add(KeptFor)), "wakes at another time than the end of being idle")
		expect(!a.Done || a.Idle.IsZero() && a.Wake.IsZero() && a.Create == nil, "is done with something to do")
		for _, slice := range a.Remove {
			expect(Owns(s.Service.UID, slice), "removes an EndpointSlice of somebody else")
		}
		for _, slice := range a.Apply {
			expect(Owns(s.Service.UID, slice) && slice.Labels[discoveryv1.LabelServiceName] == s.Service.Name, "an EndpointSlice is not the Service's")
			for _, address := range addressesOf(slice) {
				expect(strings.Contains(before, address), "leads to an address that nobody has")
				expect(address != "192.0.2.2" && address != "192.0.2.9", "leads to an address that is not ready")
			}
		}
		// What was decided is decided no more once it is done; and a Service that is kept leads to the responder.
		if !mine || a.Delete {
			return
		}
		for _, slice := range a.Apply {
			s.Slices = append(slices.DeleteFunc(s.Slices, func(old *discoveryv1.EndpointSlice) bool { return old.Name == slice.Name }), slice)
		}
		s.Idle = a.Idle
		again := Decide(s, now)
		expect(len(again.Apply) == 0 && again.Idle.Equal(a.Idle) && again.Wake.Equal(a.Wake), "decides again: "+describe(again))
		expect(one || Answers(s.Responder) == slices.ContainsFunc(s.Slices, func(slice *discoveryv1.EndpointSlice) bool {
			return Owns(s.Service.UID, slice) && len(slice.Endpoints) > 0
		}), "does not lead to the responder")
	})
}

// TestSliceOf: an EndpointSlice has each address once, in order, no more of them than the API server takes, and the
// port that the responder calls http.
func TestSliceOf(t *testing.T) {
	many := endpointSlice("many", "", 9090, "192.0.2.1")
	name, other := "http", int32(9402)
	metrics := "metrics"
	many.Ports[0].Name = &name
	many.Ports = append([]discoveryv1.EndpointPort{{Name: &metrics, Port: &other}}, many.Ports...)
	for n := range 2 * maxEndpoints {
		address := fmt.Sprintf("10.0.%d.%d", n/200%5, n%200)
		many.Endpoints = append(many.Endpoints, discoveryv1.Endpoint{Addresses: []string{address, "not an address"}})
	}
	service := New("ns", corev1.ServiceTypeNodePort, nil)
	got := sliceOf(service, discoveryv1.AddressTypeIPv4, []discoveryv1.EndpointSlice{many})
	if len(got.Endpoints) != maxEndpoints || got.Endpoints[0].Addresses[0] != "10.0.0.0" || got.Endpoints[1].Addresses[0] != "10.0.0.1" {
		t.Errorf("%d endpoints, the first are %+v", len(got.Endpoints), got.Endpoints[:2])
	}
	if *got.Ports[0].Port != 9090 {
		t.Errorf("port %d", *got.Ports[0].Port)
	}
}

// TestNew: a Service by each of the names has the type that the name says, and our label whatever is asked for.
func TestNew(t *testing.T) {
	extra := map[string]string{"team": "web", acmev1.HTTP01SolverLabel: "overridden"}
	for _, name := range Names() {
		s := New("ns", typeOf(name), extra)
		if s.Name != name || Usable(s) != nil || s.Labels["team"] != "web" || extra[acmev1.HTTP01SolverLabel] != "overridden" {
			t.Errorf("%s: %+v", name, s.ObjectMeta)
		}
	}
	for asked, want := range map[corev1.ServiceType]string{"": Prefix, corev1.ServiceTypeNodePort: Prefix, corev1.ServiceTypeClusterIP: clusterIPName} {
		for _, http := range []*acmev1.HTTP01Solver{
			{Ingress: &acmev1.HTTP01IngressSolver{ServiceType: asked}}, {GatewayHTTPRoute: &acmev1.HTTP01GatewaySolver{ServiceType: asked}},
		} {
			c := &acmev1.Challenge{Spec: acmev1.ChallengeSpec{Solver: acmev1.ACMEChallengeSolver{HTTP01: http}}}
			if got := (Pods{}).Of(c).Name; got != want {
				t.Errorf("a solver that asks for %q leads to %q, want %q", asked, got, want)
			}
		}
	}
}
