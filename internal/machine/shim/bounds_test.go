package shim

import (
	"fmt"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/kube/stub"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/bounds"
	"chancery.dev/internal/rig/growth"
)

// entries are those of an Ingress with one Secret and one host each.
func entries(n int) []networkingv1.IngressTLS {
	out := make([]networkingv1.IngressTLS, n)
	for i := range out {
		out[i] = tls(fmt.Sprintf("secret-%d", i), fmt.Sprintf("host-%d.example.com", i))
	}
	return out
}

// hosts are n different hosts.
func hosts(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("host-%d.example.com", i)
	}
	return out
}

// TestTooLarge: above a bound, one thing is said, and nothing is created, changed or deleted, whatever there is. At the
// bound, all is as ever.
func TestTooLarge(t *testing.T) {
	withRefs := func(n int) Object {
		refs := make([]gwapiv1.SecretObjectReference, n)
		for i := range refs {
			refs[i].Name = gwapiv1.ObjectName(fmt.Sprintf("secret-%d", i))
		}
		l := listener("https", "a.example.com", func(l *gwapiv1.Listener) { l.TLS.CertificateRefs = refs })
		return FromGateway(&gwapiv1.Gateway{ObjectMeta: about(issued), Spec: gwapiv1.GatewaySpec{Listeners: []gwapiv1.Listener{l}}}, settings)
	}
	// metadata is of an Ingress with one entry, to whose annotations and labels a label is added.
	metadata := func(n int) Object {
		o := ingress(entries(1), issued)
		o.Labels["fill"] = strings.Repeat("x", n-sizeOfEach(o)-len("fill"))
		return o
	}
	// inAll is of an Ingress with a thousand entries, all of which have the same labels, and with one longer host.
	inAll := func(n int) Object {
		o := ingress(entries(limits.ShimCertificates), issued)
		each := (n - hostBytes(o)) / limits.ShimCertificates
		o.Labels["fill"] = strings.Repeat("x", each-sizeOfEach(o)-len("fill"))
		o.Parts[0].Hosts[0] += strings.Repeat("x", n-hostBytes(o)-each*limits.ShimCertificates)
		return o
	}
	const perEntry = limits.ShimHosts / 100
	spread := func(n int) Object {
		var out []networkingv1.IngressTLS
		for i := 0; n > 0; i, n = i+1, n-perEntry {
			out = append(out, tls(fmt.Sprintf("secret-%d", i), hosts(min(n, perEntry))...))
		}
		return ingress(out, issued)
	}
	outcome := func(t *testing.T, object Object, says string) limits.Outcome {
		t.Helper()
		old := &certmanagerv1.Certificate{}
		old.Name, old.Spec.SecretName = "old", "old"
		old.OwnerReferences = append(old.OwnerReferences, object.Owner)
		a := Decide(State{Object: object, Settings: settings, Certificates: []*certmanagerv1.Certificate{old}}, now)
		switch {
		case len(a.Create) > 0 && len(a.Delete) == 1 && a.TooLarge == "" && len(a.Warnings) == 0:
			return limits.Taken
		case len(a.Create)+len(a.Update)+len(a.Delete)+len(a.Warnings) > 0 || !strings.Contains(a.TooLarge, "nothing is created") || !strings.Contains(a.TooLarge, says):
			t.Errorf("%d to create, %d to update, %d to delete, %q: %q", len(a.Create), len(a.Update), len(a.Delete), a.Warnings, a.TooLarge)
		}
		return limits.Refused
	}
	bounds.Holds(t, "entries", func(n int) limits.Outcome {
		return outcome(t, ingress(entries(n), issued), "spec.tls has more than 1000 entries")
	})
	bounds.Holds(t, "hosts", func(n int) limits.Outcome { return outcome(t, spread(n), "spec.tls has more than 10000 hosts") })
	bounds.Holds(t, "Secrets of entries", func(n int) limits.Outcome {
		return outcome(t, withRefs(n), "spec.listeners names more than 1000 Secrets")
	})
	bounds.Holds(t, "metadata for each", func(n int) limits.Outcome {
		return outcome(t, metadata(n), "of each certificate have more than 131072 bytes")
	})
	bounds.Holds(t, "metadata of all", func(n int) limits.Outcome {
		return outcome(t, inAll(n), "the labels, annotations and hosts of its certificates have more than 4194304 bytes in all")
	})
	const names = `for the Secret "web" would have more than 1000 names`
	bounds.Holds(t, "names of an entry", func(n int) limits.Outcome {
		return outcome(t, ingress([]networkingv1.IngressTLS{tls("web", hosts(n)...)}, issued), names)
	})
	bounds.Holds(t, "names of an entry", func(n int) limits.Outcome {
		return outcome(t, ingress([]networkingv1.IngressTLS{tls("web", hosts(n-1)...)}, issued, "cert-manager.io/alt-names=one-more.example.com"), names)
	})
}

// sizeOfEach is how many bytes the labels and annotations of each Certificate of an Object have.
func sizeOfEach(o Object) (n int) {
	for _, texts := range []map[string]string{o.Labels, o.Annotations} {
		for key, value := range texts {
			n += len(key) + len(value)
		}
	}
	return n
}

// hostBytes is how many bytes the hosts of an Object have, each of whose parts has one Secret.
func hostBytes(o Object) (n int) {
	for _, part := range o.Parts {
		for _, host := range part.Hosts {
			n += len(host)
		}
	}
	return n
}

// TestTooLargeWithoutAnnotation: who asks for nothing, and has nothing, hears nothing; who has certificates keeps them.
func TestTooLargeWithoutAnnotation(t *testing.T) {
	o := ingress(entries(limits.ShimEntries + 1))
	if a := Decide(State{Object: o, Settings: settings}, now); a.TooLarge != "" || len(a.Warnings) > 0 {
		t.Errorf("%+v", a)
	}
	old := &certmanagerv1.Certificate{}
	old.Name, old.Spec.SecretName = "old", "old"
	old.OwnerReferences = append(old.OwnerReferences, o.Owner)
	if a := Decide(State{Object: o, Settings: settings, Certificates: []*certmanagerv1.Certificate{old}}, now); a.TooLarge == "" || len(a.Delete) > 0 {
		t.Errorf("%+v", a)
	}
}

// TestStubIsLeftAlone: of a Certificate that is too large for the cache nothing is known that could be corrected.
func TestStubIsLeftAlone(t *testing.T) {
	o := ingress(entries(1), issued)
	there := made(o, func(crt *certmanagerv1.Certificate) {
		crt.Labels = map[string]string{"a": strings.Repeat("x", limits.ObjectBytes)}
	})
	if _, err := stub.Bound(func(obj any) (any, error) { return obj, nil })(there[0]); err != nil {
		t.Fatal(err)
	}
	if a := Decide(State{Object: o, Settings: settings, Certificates: there}, now); len(a.Create)+len(a.Update)+len(a.Delete)+len(a.Warnings) > 0 {
		t.Errorf("%+v", a)
	}
}

// TestAnnotationLost: the Certificates of an Ingress stay when it loses its annotation, as long as it names their
// Secrets.
func TestAnnotationLost(t *testing.T) {
	old := made(ingress(entries(2), issued), func(*certmanagerv1.Certificate) {})
	a := Decide(State{Object: ingress(entries(1)), Settings: settings, Certificates: old}, now)
	if len(a.Create)+len(a.Update)+len(a.Warnings) > 0 || len(a.Delete) != 1 || a.Delete[0].Name != "secret-1" {
		t.Errorf("%+v", a)
	}
}

// TestWarningsAreFew: however much is wrong with an object, it has a few short events.
func TestWarningsAreFew(t *testing.T) {
	same := make([]networkingv1.IngressTLS, limits.ShimEntries)
	bare := make([]networkingv1.IngressTLS, limits.ShimEntries)
	for i := range same {
		same[i], bare[i] = tls("web", "a.example.com"), tls("", "a.example.com")
	}
	ignored := strings.Repeat("nobody-"+strings.Repeat("x", 1000)+"y,", 100)
	gateway := &gwapiv1.Gateway{ObjectMeta: about(issued, "cert-manager.io/ignore-tls-listeners="+ignored)}
	for i := range 64 {
		gateway.Spec.Listeners = append(gateway.Spec.Listeners, listener(fmt.Sprintf("l-%d", i), "a.example.com"))
	}
	long := strings.Repeat("x", 100_000)
	others := made(ingress([]networkingv1.IngressTLS{tls("web", "other.example.com")}, issued), func(c *certmanagerv1.Certificate) { c.OwnerReferences = nil })
	for name, s := range map[string]State{
		"one Secret in each entry":    {Object: ingress(same, issued)},
		"no Secret in any entry":      {Object: ingress(bare, issued)},
		"listeners to ignore":         {Object: FromGateway(gateway, settings)},
		"names of somebody else":      {Object: ingress([]networkingv1.IngressTLS{tls("web", hosts(500)...)}, issued), Certificates: others},
		"long names of somebody else": {Object: ingress([]networkingv1.IngressTLS{tls("web", "a.example.com")}, issued, "cert-manager.io/uri-sans=spiffe://"+long), Certificates: others},
		"many names":                  {Object: ingress(entries(1), issued, "cert-manager.io/alt-names="+strings.Repeat("a,", 100_000)+"a")},
		"long annotations": {Object: ingress(entries(1), issued, "cert-manager.io/alt-names=/"+long, "cert-manager.io/usages="+long, "cert-manager.io/duration="+long,
			`cert-manager.io/secret-template={"`+long+`": 1}`, "cert-manager.io/private-key-algorithm="+long, "cert-manager.io/ip-sans="+long, "cert-manager.io/revision-history-limit="+long)},
	} {
		s.Settings = settings
		warnings := Decide(s, now).Warnings
		if len(warnings) == 0 || len(warnings) > limits.Listed+1 {
			t.Errorf("%s: %d warnings", name, len(warnings))
		}
		for _, w := range warnings {
			if len(w) > limits.EventBytes {
				t.Errorf("%s: %d bytes: %s…", name, len(w), w[:200])
			}
		}
	}
	bounds.Holds(t, "warnings", func(n int) limits.Outcome {
		warnings := Decide(State{Object: ingress(bare[:n], issued), Settings: settings}, now).Warnings
		if last := warnings[len(warnings)-1]; last == fmt.Sprintf("and %d more", n-limits.Listed) {
			return limits.Cut
		}
		return bounds.Without(n, len(warnings))
	})
}

// TestShimGrows: what an object costs grows with its size.
func TestShimGrows(t *testing.T) {
	owned := func(n int) State {
		o := ingress(entries(n), issued)
		return State{Object: o, Settings: settings, Certificates: made(o, func(*certmanagerv1.Certificate) {})}
	}
	decide := func(s State) func() { return func() { Decide(s, now) } }
	for name, tc := range map[string]struct {
		bound   int
		prepare func(int) func()
	}{
		"reduction and index": {limits.ShimEntries, func(n int) func() {
			in := &networkingv1.Ingress{ObjectMeta: about(issued), Spec: networkingv1.IngressSpec{TLS: entries(n)}}
			return func() { o := FromIngress(in); o.Secrets() }
		}},
		"creation":      {limits.ShimEntries, func(n int) func() { return decide(State{Object: ingress(entries(n), issued), Settings: settings}) }},
		"nothing to do": {limits.ShimEntries, func(n int) func() { return decide(owned(n)) }},
		"deletion": {limits.ShimCertificates, func(n int) func() {
			s := owned(n)
			s.Object = ingress(nil, issued)
			return decide(s)
		}},
		"annotation lost": {limits.ShimCertificates, func(n int) func() {
			s := owned(n)
			s.Annotations = nil
			return decide(s)
		}},
		"one Secret in each entry": {limits.ShimEntries, func(n int) func() {
			list := entries(n)
			for i := range list {
				list[i].SecretName = "web"
			}
			return decide(State{Object: ingress(list, issued), Settings: settings})
		}},
		"hosts of one certificate": {limits.CertificateNames, func(n int) func() {
			return decide(State{Object: ingress([]networkingv1.IngressTLS{tls("web", hosts(n)...)}, issued), Settings: settings})
		}},
		"names of somebody else": {limits.CertificateNames, func(n int) func() {
			o := ingress([]networkingv1.IngressTLS{tls("web", hosts(n)...)}, issued)
			others := made(o, func(c *certmanagerv1.Certificate) {
				c.OwnerReferences = nil
				for i := range c.Spec.DNSNames {
					c.Spec.DNSNames[i] = "x" + c.Spec.DNSNames[i]
				}
			})
			return decide(State{Object: o, Settings: settings, Certificates: others})
		}},
		"names by annotations": {limits.CertificateNames, func(n int) func() {
			return decide(State{Object: ingress(entries(1), issued, "cert-manager.io/alt-names="+strings.Join(hosts(n), ",")), Settings: settings})
		}},
		"listeners that are ignored": {limits.ShimEntries, func(n int) func() {
			g := &gwapiv1.Gateway{ObjectMeta: about(issued, "cert-manager.io/ignore-tls-listeners="+strings.Join(hosts(n), ","))}
			for _, host := range hosts(n) {
				g.Spec.Listeners = append(g.Spec.Listeners, listener(host, host))
			}
			return func() { Decide(State{Object: FromGateway(g, settings), Settings: settings}, now) }
		}},
	} {
		t.Run(name, func(t *testing.T) { growth.Linear(t, tc.bound, tc.prepare) })
	}
}

// TestFarAboveTheBound: an Ingress as the API server takes it at most, with 110,000 entries, costs next to nothing, and
// no more than one that is just above the bound.
func TestFarAboveTheBound(t *testing.T) {
	cost := func(n int) growth.Cost {
		in := &networkingv1.Ingress{ObjectMeta: about(issued), Spec: networkingv1.IngressSpec{TLS: entries(n)}}
		return growth.Measure(func() {
			o := FromIngress(in)
			if len(o.Secrets()) > 0 || Decide(State{Object: o, Settings: settings}, now).TooLarge == "" {
				t.Fatal("it is not too large")
			}
		})
	}
	const most = 100
	if c := cost(110_000); c.Allocations > most || c.Bytes > most*limits.EventBytes {
		t.Errorf("110,000 entries cost %s", c)
	}
}
