package shim

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
)

var update = flag.Bool("update", false, "write the golden files")

var now = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

var settings = Settings{
	DefaultIssuer:   cmmeta.IssuerReference{Name: "default", Kind: "ClusterIssuer", Group: "cert-manager.io"},
	AutoAnnotations: []string{certmanagerv1.IngressTLSACMEAnnotation}, ExtraAnnotations: []string{"example.com/team"},
	ExtraProtocols: []string{"example.com/TLS"},
}

// named is a value with a name for the golden tables.
type named[T any] struct {
	name  string
	value T
}

func about(annotations ...string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{
		Namespace: "ns", Name: "web", UID: "uid-web", Labels: map[string]string{"app": "web", applySetLabel: "set"}, Annotations: map[string]string{},
	}
	for _, a := range annotations {
		key, value, _ := strings.Cut(a, "=")
		m.Annotations[key] = value
	}
	return m
}

const issued = certmanagerv1.IngressIssuerAnnotation + "=ca"

func ingress(tls []networkingv1.IngressTLS, annotations ...string) Object {
	return FromIngress(&networkingv1.Ingress{ObjectMeta: about(annotations...), Spec: networkingv1.IngressSpec{TLS: tls}})
}

func tls(secret string, hosts ...string) networkingv1.IngressTLS {
	return networkingv1.IngressTLS{SecretName: secret, Hosts: hosts}
}

func ingresses() []named[Object] {
	one := []networkingv1.IngressTLS{tls("web", "a.example.com", "192.0.2.1", "a.example.com")}
	deleted := &networkingv1.Ingress{ObjectMeta: about(issued), Spec: networkingv1.IngressSpec{TLS: one}}
	deleted.DeletionTimestamp = &metav1.Time{Time: now}
	foreground := &networkingv1.Ingress{ObjectMeta: about(issued), Spec: networkingv1.IngressSpec{TLS: one}}
	foreground.Finalizers = []string{metav1.FinalizerDeleteDependents}
	return []named[Object]{
		{"Ingress, issuer", ingress(one, issued)},
		{"Ingress, cluster issuer", ingress(one, "cert-manager.io/cluster-issuer=ca")},
		{"Ingress, external issuer", ingress(one, issued, "cert-manager.io/issuer-kind=Step", "cert-manager.io/issuer-group=example.com")},
		{"Ingress, issuer and cluster issuer", ingress(one, issued, "cert-manager.io/cluster-issuer=ca")},
		{"Ingress, cluster issuer with a kind", ingress(one, "cert-manager.io/cluster-issuer=ca", "cert-manager.io/issuer-kind=Issuer")},
		{"Ingress, issuer without a name", ingress(one, "cert-manager.io/issuer=")},
		{"Ingress, tls-acme", ingress(one, "kubernetes.io/tls-acme=true")},
		{"Ingress, tls-acme is 1, with a kind", ingress(one, "kubernetes.io/tls-acme=1", "cert-manager.io/issuer-kind=Issuer")},
		{"Ingress, tls-acme is off", ingress(one, "kubernetes.io/tls-acme=false")},
		{"Ingress, no annotation", ingress(one)},
		{"Ingress, no annotation and no Secret", ingress(nil)},
		{"Ingress, annotation and no Secret", ingress(nil, issued)},
		{"Ingress, being deleted", FromIngress(deleted)},
		{"Ingress, deletion in the foreground", FromIngress(foreground)},
		{"Ingress, two Secrets", ingress([]networkingv1.IngressTLS{tls("web", "a.example.com"), tls("more", "b.example.com")}, issued)},
		{"Ingress, one Secret twice", ingress([]networkingv1.IngressTLS{tls("web", "a.example.com"), tls("web", "b.example.com")}, issued)},
		{"Ingress, an entry without hosts", ingress([]networkingv1.IngressTLS{tls("web"), tls("more", "b.example.com")}, issued)},
		{"Ingress, an entry without a Secret", ingress([]networkingv1.IngressTLS{tls("", "a.example.com"), tls("more", "b.example.com")}, issued)},
		{"Ingress, bad annotations", ingress(one, issued, "cert-manager.io/duration=1m", "cert-manager.io/usages=flying")},
		{"Ingress, extra annotation", ingress(one, issued, "example.com/team=red", "example.com/other=blue")},
		{"Ingress, names by annotations", ingress(one, issued, "cert-manager.io/alt-names=b.example.com,a.example.com", "cert-manager.io/ip-sans=192.0.2.1,192.0.2.2")},
		{"Ingress, edit in place", ingress(one, issued, acmev1.HTTP01EditInPlaceAnnotation+"=true")},
		{"Ingress, edit in place is yes", ingress(one, issued, acmev1.HTTP01EditInPlaceAnnotation+"=yes")},
		{"Ingress, class", ingress(one, issued, acmev1.HTTP01IngressClassAnnotation+"=nginx")},
		{"Ingress, class name", ingress(one, issued, acmev1.HTTP01IngressClassNameAnnotation+"=nginx")},
		{"Ingress, class and class name", ingress(one, issued, acmev1.HTTP01IngressClassAnnotation+"=nginx", acmev1.HTTP01IngressClassNameAnnotation+"=nginx")},
	}
}

func listener(name, host string, change ...func(*gwapiv1.Listener)) gwapiv1.Listener {
	l := gwapiv1.Listener{
		Name: gwapiv1.SectionName(name), Hostname: new(gwapiv1.Hostname(host)), Protocol: gwapiv1.HTTPSProtocolType,
		TLS: &gwapiv1.ListenerTLSConfig{Mode: new(gwapiv1.TLSModeTerminate), CertificateRefs: []gwapiv1.SecretObjectReference{{Name: "web"}}},
	}
	for _, c := range change {
		c(&l)
	}
	return l
}

func listeners() []named[[]gwapiv1.Listener] {
	protocol := func(p gwapiv1.ProtocolType) func(*gwapiv1.Listener) {
		return func(l *gwapiv1.Listener) { l.Protocol = p }
	}
	mode := func(m gwapiv1.TLSModeType) func(*gwapiv1.Listener) {
		return func(l *gwapiv1.Listener) { l.TLS.Mode = &m }
	}
	refs := func(r ...gwapiv1.SecretObjectReference) func(*gwapiv1.Listener) {
		return func(l *gwapiv1.Listener) { l.TLS.CertificateRefs = r }
	}
	return []named[[]gwapiv1.Listener]{
		{"one listener", []gwapiv1.Listener{listener("https", "a.example.com")}},
		{"two that share a Secret", []gwapiv1.Listener{listener("a", "a.example.com"), listener("b", "b.example.com"), listener("again", "a.example.com")}},
		{"one for HTTP", []gwapiv1.Listener{listener("http", "a.example.com", protocol(gwapiv1.HTTPProtocolType))}},
		{"one for TLS", []gwapiv1.Listener{listener("tls", "a.example.com", protocol(gwapiv1.TLSProtocolType))}},
		{"one of an extra protocol", []gwapiv1.Listener{listener("extra", "a.example.com", protocol("example.com/TLS"))}},
		{"one of an extra protocol in other letters", []gwapiv1.Listener{listener("extra", "a.example.com", protocol("example.com/tls"))}},
		{"one that passes through", []gwapiv1.Listener{listener("pass", "a.example.com", mode(gwapiv1.TLSModePassthrough))}},
		{"one of another mode", []gwapiv1.Listener{listener("odd", "a.example.com", mode("Odd"))}},
		{"one without a mode", []gwapiv1.Listener{listener("https", "a.example.com", func(l *gwapiv1.Listener) { l.TLS.Mode = nil })}},
		{"one without tls", []gwapiv1.Listener{listener("bare", "a.example.com", func(l *gwapiv1.Listener) { l.TLS = nil })}},
		{"one without a host", []gwapiv1.Listener{listener("bare", ""), listener("https", "a.example.com")}},
		{"one without references", []gwapiv1.Listener{listener("bare", "a.example.com", refs())}},
		{"one with two references", []gwapiv1.Listener{listener("https", "a.example.com", refs(gwapiv1.SecretObjectReference{Name: "web"},
			gwapiv1.SecretObjectReference{Name: "more", Kind: new(gwapiv1.Kind("Secret")), Group: new(gwapiv1.Group("core")), Namespace: new(gwapiv1.Namespace("ns"))}))}},
		{"one with a reference to elsewhere", []gwapiv1.Listener{listener("far", "a.example.com", refs(gwapiv1.SecretObjectReference{Name: "web"},
			gwapiv1.SecretObjectReference{Name: "far", Namespace: new(gwapiv1.Namespace("other"))}))}},
		{"one with a reference to another kind", []gwapiv1.Listener{listener("kind", "a.example.com",
			refs(gwapiv1.SecretObjectReference{Name: "web", Kind: new(gwapiv1.Kind("ConfigMap"))}))}},
		{"an ignored one", []gwapiv1.Listener{listener("ignored", "a.example.com"), listener("https", "b.example.com", refs(gwapiv1.SecretObjectReference{Name: "more"}))}},
	}
}

func gateways() []named[Object] {
	var out []named[Object]
	for _, l := range listeners() {
		g := &gwapiv1.Gateway{ObjectMeta: about(issued), Spec: gwapiv1.GatewaySpec{Listeners: l.value}}
		if l.name == "an ignored one" {
			g.Annotations[certmanagerv1.GatewayIgnoreListenersAnnotation] = "ignored, "
		}
		out = append(out, named[Object]{"Gateway, " + l.name, FromGateway(g, settings)})
	}
	bare := &gwapiv1.Gateway{ObjectMeta: about("kubernetes.io/tls-acme=true"), Spec: gwapiv1.GatewaySpec{Listeners: listeners()[0].value}}
	return append(out, named[Object]{"Gateway, tls-acme", FromGateway(bare, settings)})
}

func listenerSets() []named[Object] {
	set := func(annotations ...string) *gwapiv1.ListenerSet {
		l := listener("https", "a.example.com")
		return &gwapiv1.ListenerSet{ObjectMeta: about(annotations...), Spec: gwapiv1.ListenerSetSpec{
			ParentRef: gwapiv1.ParentGatewayReference{Name: "edge"},
			Listeners: []gwapiv1.ListenerEntry{{Name: l.Name, Hostname: l.Hostname, Protocol: l.Protocol, TLS: l.TLS}},
		}}
	}
	parent := func(annotations ...string) *gwapiv1.Gateway {
		g := &gwapiv1.Gateway{ObjectMeta: about(annotations...)}
		g.Namespace, g.Name = "edges", "edge"
		return g
	}
	external := []string{"cert-manager.io/issuer=parents", "cert-manager.io/issuer-kind=Step", "cert-manager.io/issuer-group=example.com"}
	return []named[Object]{
		{"ListenerSet, issuer", FromListenerSet(set(issued), parent(), settings)},
		{"ListenerSet, no Gateway", FromListenerSet(set(issued), nil, settings)},
		{"ListenerSet, issuer of the Gateway", FromListenerSet(set(), parent(external...), settings)},
		{"ListenerSet, issuer of both", FromListenerSet(set(issued), parent(external...), settings)},
		{"ListenerSet, issuer of none", FromListenerSet(set(), parent(), settings)},
		{"ListenerSet, fallback is 1, ignores a listener that is not there", FromListenerSet(
			set(issued, acmev1.HTTP01ParentRefFallbackAnnotation+"=1", "cert-manager.io/ignore-tls-listeners=httpss,"), parent(), settings)},
		{"ListenerSet, fallback to the Gateway", FromListenerSet(set(issued, acmev1.HTTP01ParentRefFallbackAnnotation+"=true"), parent(), settings)},
	}
}

func objects() []named[Object] { return slices.Concat(ingresses(), gateways(), listenerSets()) }

// made returns what an Object that asks for certificates has made before.
func made(o Object, change func(*certmanagerv1.Certificate)) []*certmanagerv1.Certificate {
	asks := o
	asks.Idle, asks.Annotations = false, map[string]string{certmanagerv1.IngressIssuerAnnotation: "ca"}
	out := Decide(State{Object: asks, Settings: settings}, now).Create
	for _, crt := range out {
		crt.UID, crt.ResourceVersion = types.UID("uid-"+crt.Name), "1"
		change(crt)
	}
	return out
}

// others are Certificates that exist before a decision.
func others() []named[func(Object) []*certmanagerv1.Certificate] {
	as := func(change func(*certmanagerv1.Certificate)) func(Object) []*certmanagerv1.Certificate {
		return func(o Object) []*certmanagerv1.Certificate { return made(o, change) }
	}
	single := func(change func(*certmanagerv1.Certificate)) func(Object) []*certmanagerv1.Certificate {
		return func(o Object) []*certmanagerv1.Certificate {
			crt := &certmanagerv1.Certificate{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "old", UID: "uid-old", OwnerReferences: []metav1.OwnerReference{o.Owner}},
				Spec:       certmanagerv1.CertificateSpec{SecretName: "old", DNSNames: []string{"old.example.com"}},
			}
			change(crt)
			return []*certmanagerv1.Certificate{crt}
		}
	}
	disown := func(c *certmanagerv1.Certificate) { c.OwnerReferences = nil }
	return []named[func(Object) []*certmanagerv1.Certificate]{
		{"nothing", func(Object) []*certmanagerv1.Certificate { return nil }},
		{"made by issuer ca", as(func(*certmanagerv1.Certificate) {})},
		{"made for another host", as(func(c *certmanagerv1.Certificate) { c.Spec.DNSNames, c.Labels = []string{"x.example.com"}, nil })},
		{"made, and being deleted", as(func(c *certmanagerv1.Certificate) { c.DeletionTimestamp = &metav1.Time{Time: now} })},
		{"a person's", as(disown)},
		{"a person's, for another host", as(func(c *certmanagerv1.Certificate) { disown(c); c.Spec.DNSNames = []string{"x.example.com"} })},
		{"a person's, with a wildcard", as(func(c *certmanagerv1.Certificate) {
			disown(c)
			c.Spec.DNSNames, c.Spec.IPAddresses = []string{"*.example.com"}, []string{"192.0.2.1", "192.0.2.2"}
		})},
		{"another Ingress's, for another host", as(func(c *certmanagerv1.Certificate) {
			c.OwnerReferences[0].Name, c.OwnerReferences[0].UID = "other", "uid-other"
			c.Spec.DNSNames = []string{"x.example.com"}
		})},
		{"an own one of old", single(func(*certmanagerv1.Certificate) {})},
		{"an own one of old, being deleted", single(func(c *certmanagerv1.Certificate) { c.DeletionTimestamp = &metav1.Time{Time: now} })},
		{"an own one of old in the Secret", single(func(c *certmanagerv1.Certificate) { c.Spec.SecretName = "web" })},
		{"an own one of the name in another Secret", single(func(c *certmanagerv1.Certificate) { c.Name = "web" })},
		{"somebody's of old", single(disown)},
	}
}

// states visits every combination of an object and Certificates that exist.
func states(visit func(object, existing string, s State)) {
	for _, o := range objects() {
		for _, e := range others() {
			visit(o.name, e.name, State{Object: o.value, Settings: settings, Certificates: e.value(o.value)})
		}
	}
}

func describe(a Action) string {
	var words []string
	for _, crt := range a.Create {
		spec := crt.Spec
		words = append(words, fmt.Sprintf("create %s for %s%s by %s %s.%s, labels %v, annotations %v", crt.Name, spec.DNSNames, spec.IPAddresses,
			spec.IssuerRef.Kind, spec.IssuerRef.Name, spec.IssuerRef.Group, crt.Labels, crt.Annotations))
	}
	for _, c := range a.Update {
		words = append(words, fmt.Sprintf("update %s: %s", c.New.Name, strings.Join(c.Fields, " ")))
	}
	for _, crt := range a.Delete {
		words = append(words, "delete "+crt.Name)
	}
	for _, w := range a.Warnings {
		words = append(words, "warn: "+w)
	}
	if !a.Wake.IsZero() {
		words = append(words, "wake in "+a.Wake.Sub(now).String())
	}
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, "\n    ")
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s differs: go test ./internal/machine/shim -update, and read the diff", file)
	}
}

// TestDecide writes down each decision, and for which of the Certificates that exist it is made.
func TestDecide(t *testing.T) {
	var order, decisions []string
	table := map[string][]string{} // what exists, by object and decision
	states(func(object, existing string, s State) {
		if !slices.Contains(order, object) {
			order = append(order, object)
		}
		decision := describe(Decide(s, now))
		if !slices.Contains(decisions, decision) {
			decisions = append(decisions, decision)
		}
		table[object+decision] = append(table[object+decision], existing)
	})
	var out strings.Builder
	for _, object := range order {
		fmt.Fprintf(&out, "%s\n", object)
		for _, decision := range decisions {
			if existing := table[object+decision]; len(existing) == len(others()) {
				fmt.Fprintf(&out, "  whatever there is:\n    %s\n", decision)
			} else if len(existing) > 0 {
				fmt.Fprintf(&out, "  %s:\n    %s\n", strings.Join(existing, "; "), decision)
			}
		}
	}
	golden(t, "testdata/decide.txt", out.String())
}

// after returns the state once an action is done, and the watch shows it.
func after(s State, a Action) State {
	s.Certificates = slices.DeleteFunc(slices.Clone(s.Certificates), func(c *certmanagerv1.Certificate) bool {
		return slices.Contains(a.Delete, c) || slices.ContainsFunc(a.Update, func(u Change) bool { return u.Old == c })
	})
	s.Certificates = append(s.Certificates, a.Create...)
	for _, u := range a.Update {
		s.Certificates = append(s.Certificates, u.New)
	}
	return s
}

// TestInvariants says what must hold of every decision, whatever the state.
func TestInvariants(t *testing.T) {
	states(func(object, existing string, s State) {
		encoded, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		a := Decide(s, now)
		expect := func(ok bool, what string) {
			if !ok {
				t.Errorf("%s, %s: %s: %s", object, existing, what, describe(a))
			}
		}
		again, err := json.Marshal(s)
		expect(err == nil && string(encoded) == string(again), "the state was changed")
		own := func(c *certmanagerv1.Certificate) bool {
			return len(c.OwnerReferences) == 1 && c.OwnerReferences[0].UID == s.Owner.UID && c.DeletionTimestamp == nil
		}
		names := map[string]bool{}
		for _, c := range s.Certificates {
			names[c.Name] = true
		}
		for _, c := range a.Create {
			expect(!names[c.Name] && own(c) && c.Spec.SecretName == c.Name && c.Namespace == s.Namespace, "creates what is there, or is not its own")
			expect(slices.Contains(s.Secrets(), c.Name), "creates what is not asked for")
			expect(len(c.Spec.DNSNames)+len(c.Spec.IPAddresses) > 0 && c.Labels[applySetLabel] == "", "creates a Certificate without names, or in an ApplySet")
			names[c.Name] = true
		}
		for _, u := range a.Update {
			expect(own(u.Old) && own(u.New) && len(u.Fields) > 0, "updates what it does not own")
		}
		for _, c := range a.Delete {
			expect(own(c) && !slices.Contains(s.Secrets(), c.Spec.SecretName), "deletes what it does not own, or what is in use")
		}
		if strings.Contains(object, "bad annotations") || s.Idle {
			expect(len(a.Create)+len(a.Update)+len(a.Delete) == 0, "acts on what is wrong, or idle")
		}
		second := Decide(after(s, a), now)
		expect(len(second.Create)+len(second.Update)+len(second.Delete) == 0, "decides again: "+describe(second))
		expect(slices.Equal(second.Warnings, a.Warnings), "warns of something else then: "+describe(second))
	})
}

// TestEveryFieldIsCompared: whatever of a Certificate an annotation can set is put right when somebody changes it, and
// the rest is left alone.
func TestEveryFieldIsCompared(t *testing.T) {
	s := State{Object: ingresses()[0].value, Settings: settings}
	for _, c := range []named[func(*certmanagerv1.Certificate)]{
		{"spec.commonName", func(c *certmanagerv1.Certificate) { c.Spec.CommonName = "x" }},
		{"spec.dnsNames", func(c *certmanagerv1.Certificate) { c.Spec.DNSNames = nil }},
		{"spec.ipAddresses", func(c *certmanagerv1.Certificate) { c.Spec.IPAddresses = nil }},
		{"spec.uris", func(c *certmanagerv1.Certificate) { c.Spec.URIs = []string{"a:b"} }},
		{"spec.emailAddresses", func(c *certmanagerv1.Certificate) { c.Spec.EmailAddresses = []string{"a@b"} }},
		{"spec.subject", func(c *certmanagerv1.Certificate) { c.Spec.Subject = &certmanagerv1.X509Subject{SerialNumber: "1"} }},
		{"spec.secretName", func(c *certmanagerv1.Certificate) { c.Spec.SecretName = "x" }},
		{"spec.secretTemplate", func(c *certmanagerv1.Certificate) { c.Spec.SecretTemplate = &certmanagerv1.CertificateSecretTemplate{} }},
		{"spec.usages", func(c *certmanagerv1.Certificate) { c.Spec.Usages = []certmanagerv1.KeyUsage{"any"} }},
		{"spec.duration", func(c *certmanagerv1.Certificate) { c.Spec.Duration = &metav1.Duration{Duration: time.Hour} }},
		{"spec.renewBefore", func(c *certmanagerv1.Certificate) { c.Spec.RenewBefore = &metav1.Duration{Duration: time.Hour} }},
		{"spec.renewBeforePercentage", func(c *certmanagerv1.Certificate) { c.Spec.RenewBeforePercentage = new(int32(5)) }},
		{"spec.revisionHistoryLimit", func(c *certmanagerv1.Certificate) { c.Spec.RevisionHistoryLimit = new(int32(5)) }},
		{"spec.privateKey", func(c *certmanagerv1.Certificate) {
			c.Spec.PrivateKey = &certmanagerv1.CertificatePrivateKey{RotationPolicy: "Never"}
		}},
		{"spec.issuerRef", func(c *certmanagerv1.Certificate) { c.Spec.IssuerRef.Group = "example.com" }},
		{"labels", func(c *certmanagerv1.Certificate) { c.Labels["x"] = "y" }},
		{"", func(c *certmanagerv1.Certificate) {
			c.Spec.IssuerRef.Group, c.Spec.IssuerRef.Kind, c.Spec.Usages = "", "", nil
		}},
		{"", func(c *certmanagerv1.Certificate) {
			c.Spec.PrivateKey, c.Spec.Subject = &certmanagerv1.CertificatePrivateKey{}, &certmanagerv1.X509Subject{}
		}},
		{"", func(c *certmanagerv1.Certificate) { c.Spec.Keystores = &certmanagerv1.CertificateKeystores{} }},
		{"", func(c *certmanagerv1.Certificate) { c.Annotations = map[string]string{"x": "y"} }},
	} {
		s.Certificates = made(s.Object, c.value)
		a := Decide(s, now)
		if c.name == "" {
			if describe(a) != "nothing" {
				t.Errorf("a change that is nobody's business: %s", describe(a))
			}
			continue
		}
		if len(a.Update) != 1 || !slices.Equal(a.Update[0].Fields, []string{c.name}) {
			t.Errorf("%s: %s", c.name, describe(a))
			continue
		}
		if again := Decide(after(s, a), now); describe(again) != "nothing" {
			t.Errorf("%s, again: %s", c.name, describe(again))
		}
	}
	s.Certificates = made(s.Object, func(c *certmanagerv1.Certificate) {
		c.Spec.DNSNames, c.Spec.Keystores, c.Annotations = nil, &certmanagerv1.CertificateKeystores{}, map[string]string{"x": "y"}
	})
	if u := Decide(s, now).Update[0].New; u.Spec.Keystores == nil || u.Annotations["x"] != "y" {
		t.Error("an update takes away what others have set")
	}
}

// TestOverridesExclude: an override that was asked for before goes when another one is asked for, or when the Ingress
// is not to be edited in place any more.
func TestOverridesExclude(t *testing.T) {
	was := func(annotations ...string) func(*certmanagerv1.Certificate) {
		return func(c *certmanagerv1.Certificate) { c.Annotations = about(annotations...).Annotations }
	}
	inPlace := []string{acmev1.OverrideIngressNameAnnotation + "=web", certmanagerv1.IssueTemporaryAnnotation + "=true", "x=y"}
	one := []networkingv1.IngressTLS{tls("web", "a.example.com")}
	for _, c := range []struct {
		name   string
		object Object
		was    []string
		want   string
	}{
		{"in place no more", ingress(one, issued), inPlace, "map[x:y]"},
		{"class for in place", ingress(one, issued, acmev1.HTTP01IngressClassAnnotation+"=nginx"), inPlace, "map[acme.cert-manager.io/http01-override-ingress-class:nginx x:y]"},
		{"another name stays", ingress(one, issued), []string{acmev1.OverrideIngressNameAnnotation + "=other"}, ""},
		{"the fallback goes", gateways()[0].value, []string{
			acmev1.ParentRefKindAnnotation + "=Gateway", acmev1.ParentRefNameAnnotation + "=web", acmev1.ParentRefNamespaceAnnotation + "=edges",
		}, "map[acme.cert-manager.io/http01-parentrefkind:Gateway acme.cert-manager.io/http01-parentrefname:web]"},
	} {
		s := State{Object: c.object, Settings: settings, Certificates: made(c.object, was(c.was...))}
		a, got := Decide(s, now), ""
		if len(a.Update) == 1 {
			got = fmt.Sprint(a.Update[0].New.Annotations)
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if again := Decide(after(s, a), now); len(again.Update) > 0 {
			t.Errorf("%s, again: %s", c.name, describe(again))
		}
	}
}

// TestOtherWriters: where another writer undoes each update, the writes become rare; where admission undoes them, they
// end.
func TestOtherWriters(t *testing.T) {
	undone := func(version int) State {
		s := State{Object: ingresses()[0].value, Settings: settings}
		s.Certificates = made(s.Object, func(c *certmanagerv1.Certificate) {
			c.ResourceVersion, c.Spec.DNSNames = fmt.Sprint(version), []string{"x.example.com"}
		})
		return s
	}
	attempt, writes, version, at := Attempt{}, 0, 1, now
	for end := now.Add(24 * time.Hour); at.Before(end); {
		version++
		s := undone(version)
		s.Before = map[string]Attempt{"web": attempt}
		a := Decide(s, at)
		if len(a.Update) == 0 {
			if !a.Wake.After(at) || len(a.Warnings) != 1 {
				t.Fatalf("a pause without an end or a word: %s", describe(a))
			}
			at = a.Wake
			continue
		}
		writes++
		version++
		a.Update[0].New.ResourceVersion = fmt.Sprint(version)
		attempt = attempt.Next(a.Update[0], at)
	}
	if writes < 24 || writes > 36 {
		t.Errorf("%d writes in a day against another writer", writes)
	}
	s := undone(1)
	s.Certificates[0].ResourceVersion = attempt.Version // what the API server has answered
	s.Before = map[string]Attempt{"web": attempt}
	if a := Decide(s, at.Add(time.Hour)); len(a.Update) != 0 || !a.Wake.IsZero() || len(a.Warnings) != 1 {
		t.Errorf("against admission: %s", describe(a))
	}
	s.Object = ingress([]networkingv1.IngressTLS{tls("web", "new.example.com")}, issued)
	if a := Decide(s, at); len(a.Update) != 1 {
		t.Errorf("what is wanted anew: %s", describe(a))
	}
}
