package injection

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig/golden"
)

var now = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// cas are certificates by their common name, made once: "old" and "new" are valid, "past" has expired, "future" is not
// valid yet.
var cas = sync.OnceValue(func() map[string][]byte {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	out := map[string][]byte{"key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("secret")})}
	for i, c := range []struct {
		name       string
		begin, end time.Duration
	}{{"old", -time.Hour, time.Hour}, {"new", -time.Minute, 48 * time.Hour}, {"past", -time.Hour, -time.Second}, {"future", time.Hour, 48 * time.Hour}} {
		template := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i + 1)), Subject: pkix.Name{CommonName: c.name}, NotBefore: now.Add(c.begin), NotAfter: now.Add(c.end),
		}
		raw, err := x509.CreateCertificate(rand.Reader, template, template, crypto.Signer(key).Public(), key)
		if err != nil {
			panic(err)
		}
		out[c.name] = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
	}
	return out
})

// text joins PEM texts by the names of cas; every other word stands for itself.
func text(words ...string) []byte {
	var out []byte
	for _, word := range words {
		if known, ok := cas()[word]; ok {
			out = append(out, known...)
		} else {
			out = append(out, word+"\n"...)
		}
	}
	return out
}

// words is the inverse of text, for the golden file.
func words(bundle []byte) string {
	s := string(bundle)
	for name, known := range cas() {
		s = strings.ReplaceAll(s, string(known), "‹"+name+"›")
	}
	return strings.ReplaceAll(strings.TrimSpace(s), "\n", "⏎")
}

// named is one value of one aspect of a State.
type named struct {
	name string
	set  func(*State)
}

func annotated() []named {
	with := func(pairs ...string) func(*State) {
		return func(s *State) {
			s.Annotations = map[string]string{"other": "x"}
			for i := 0; i < len(pairs); i += 2 {
				s.Annotations[pairs[i]] = pairs[i+1]
			}
		}
	}
	const fromSecret, from, server = certmanagerv1.InjectCAFromSecretAnnotation, certmanagerv1.InjectCAFromAnnotation, certmanagerv1.InjectAPIServerCAAnnotation
	return []named{
		{"not annotated", with()},
		{"from Secret", with(fromSecret, "ns/name")},
		{"from Certificate", with(from, "ns/name")},
		{"from API server", with(server, "true")},
		{"all three", with(fromSecret, "ns/name", from, "ns/other", server, "true")},
		{"Secret without namespace", with(fromSecret, "name")},
		{"malformed Secret before Certificate", with(fromSecret, "", from, "ns/name")},
		{"Certificate with a path", with(from, "ns/name/x")},
		{"Certificate without name", with(from, "ns/")},
		{"API server: false", with(server, "false")},
		{"API server: yes", with(server, "yes")},
	}
}

func givens() []named {
	secret := func(change func(*corev1.Secret)) func(*State) {
		return func(s *State) {
			source, _ := SourceOf(s.Annotations)
			given := &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
					certmanagerv1.AllowDirectInjectionAnnotation: "true", certmanagerv1.CertificateNameAnnotation: "name",
				}},
				Data: map[string][]byte{"ca.crt": text("new"), "tls.key": text("key")},
			}
			change(given)
			s.Given = GivenBySecret(source, "target", given)
		}
	}
	ca := func(words ...string) func(*State) {
		return secret(func(s *corev1.Secret) { s.Data["ca.crt"] = text(words...) })
	}
	return []named{
		{"a CA", ca("new")},
		{"a CA, settled", func(s *State) { ca("new")(s); s.Settled = true }},
		{"two CAs, with comments", ca("# root", "new", "# next", "future", "new")},
		{"a CA and an expired one", ca("past", "new")},
		{"a CA and a key", ca("key", "new")},
		{"an expired CA", ca("past")},
		{"a key", ca("key")},
		{"no PEM", ca("hello")},
		{"a certificate cut short", ca(string(text("new")[:100]))},
		{"a large text", func(s *State) { s.Given = Given{CA: bytes.Repeat(text("new"), 1+pki.MaxBundlePEM/len(text("new")))} }},
		{"white space", ca(" ")},
		{"a Secret without annotations", secret(func(s *corev1.Secret) { s.Annotations = nil })},
		{"no Secret", func(s *State) {
			source, _ := SourceOf(s.Annotations)
			s.Given = GivenBySecret(source, "target", nil)
		}},
		{"no Secret for a minute", func(s *State) {
			source, _ := SourceOf(s.Annotations)
			s.Given, s.Since = GivenBySecret(source, "target", nil), now.Add(-Grace)
		}},
		{"no Secret since a time to come", func(s *State) {
			source, _ := SourceOf(s.Annotations)
			s.Given, s.Since = GivenBySecret(source, "target", nil), now.Add(time.Hour)
		}},
		{"an ignored namespace", func(s *State) { s.Given.Ignored = true }},
	}
}

func targets() []named {
	slots := func(bundles ...[]byte) func(*State) {
		return func(s *State) {
			s.Target = &Target{}
			for i, b := range bundles {
				s.Target.Slots = append(s.Target.Slots, Slot{fmt.Sprint("w", i), b})
			}
		}
	}
	return []named{
		{"unread", func(*State) {}},
		{"being deleted", func(s *State) { s.Deleting = true }},
		{"no slot", func(s *State) { s.Target = &Target{Obstacle: "it has no webhooks"} }},
		{"empty", slots(nil)},
		{"a line end", slots([]byte("\n"))},
		{"the new CA", slots(text("new"))},
		{"the old CA", slots(text("old"))},
		{"both", slots(text("old", "new"))},
		{"both the other way round", slots(text("new", "old"))},
		{"old, expired, junk, to come", slots(text("old", "past", "junk", "future"))},
		{"junk", slots([]byte("junk"))},
		{"two: old and empty", slots(text("old"), nil)},
		{"two: both right", slots(text("new"), text("old", "new"))},
		{"both, applied by cert-manager", func(s *State) { slots(text("old", "new"))(s); s.Target.Held = true }},
		{"large", slots(bytes.Repeat([]byte("x"), pki.MaxBundlePEM+1))},
		{"nearly large", slots(bytes.Join([][]byte{text("old"), bytes.Repeat([]byte("x"), pki.MaxBundlePEM-1000)}, nil))},
	}
}

// states visits every combination of the aspects.
func states(visit func(name [3]string, s State)) {
	for _, annotation := range annotated() {
		for _, given := range givens() {
			for _, target := range targets() {
				var s State
				for _, aspect := range []named{annotation, given, target} {
					aspect.set(&s)
				}
				visit([3]string{annotation.name, given.name, target.name}, s)
			}
		}
	}
}

// grouped are names by their outcome, in the order of the first of each.
type grouped struct {
	order []string
	names map[string][]string
}

func (g *grouped) add(outcome, name string) {
	if g.names == nil {
		g.names = map[string][]string{}
	}
	if g.names[outcome] == nil {
		g.order = append(g.order, outcome)
	}
	g.names[outcome] = append(g.names[outcome], name)
}

func (g *grouped) lines(format string) string {
	var out strings.Builder
	for _, outcome := range g.order {
		fmt.Fprintf(&out, format, outcome, strings.Join(g.names[outcome], " | "))
	}
	return out.String()
}

func describe(a Action) string {
	var out []string
	if a.Read {
		out = append(out, "read")
	}
	for _, slot := range a.Write {
		out = append(out, fmt.Sprintf("write %s: %s", slot.Path, words(slot.Bundle)))
	}
	if a.Say != nil {
		out = append(out, fmt.Sprintf("say %s (notice %t): %s", a.Say.Reason, a.Say.Notice, words([]byte(a.Say.Message))))
	}
	if a.Waits != "" && (a.Say == nil || !strings.HasPrefix(a.Say.Message, a.Waits)) {
		out = append(out, "wait: "+a.Waits)
	}
	if !a.Since.IsZero() {
		out = append(out, "since "+now.Sub(a.Since).String())
	}
	if !a.Wake.IsZero() {
		out = append(out, "wake in "+a.Wake.Sub(now).String())
	}
	if len(out) == 0 {
		return "nothing"
	}
	return strings.Join(out, ", ")
}

// TestDecideTable is exhaustive over annotations, sources and bundles. What has the same outcome is in one line.
func TestDecideTable(t *testing.T) {
	var out strings.Builder
	for _, annotation := range annotated() {
		given := &grouped{}
		for _, g := range givens() {
			target := &grouped{}
			for _, to := range targets() {
				var s State
				annotation.set(&s)
				g.set(&s)
				to.set(&s)
				target.add(describe(Decide(s, now)), to.name)
			}
			given.add(target.lines("    %[2]s: %[1]s\n"), g.name)
		}
		fmt.Fprintf(&out, "%s\n%s", annotation.name, given.lines("  source: %[2]s\n%[1]s"))
	}
	golden.Check(t, "decide.txt", out.String())
}

// TestInvariants says what must hold of every decision, whatever the state.
func TestInvariants(t *testing.T) {
	states(func(name [3]string, s State) {
		var before []Slot
		if s.Target != nil {
			for _, slot := range s.Target.Slots {
				before = append(before, Slot{slot.Path, bytes.Clone(slot.Bundle)})
			}
		}
		a := Decide(s, now)
		expect := func(ok bool, what string) {
			if !ok {
				t.Errorf("%q: %s: %s", name, what, describe(a))
			}
		}
		source, malformed := SourceOf(s.Annotations)
		expect(s.Target == nil || reflect.DeepEqual(s.Target.Slots, before), "the state was changed")
		expect(malformed == nil || a.Write == nil && !a.Read && (s.Deleting || a.Say != nil), "a malformed annotation changes a bundle, or is not said")
		expect(source != Source{} || malformed != nil || describe(a) == "nothing", "something is done without being asked for")
		expect(!s.Deleting || describe(a) == "nothing", "something is done for what is being deleted")
		expect(a.Write == nil || s.Target != nil, "something is written that was not read")
		expect(a.Write == nil || s.Given.Forbidden == "" && s.Given.Missing == "" && !s.Given.Ignored, "a source is used that must not be")
		expect(!a.Read || s.Target == nil, "it is read again and again")
		expect(a.Wake.IsZero() || a.Wake.After(now), "wakes in the past")
		if s.Target == nil || a.Waits != "" || a.Say != nil && a.Say.Reason != ReasonPartly || source == (Source{}) || s.Settled || s.Deleting {
			expect(a.Write == nil, "writes after all")
			return
		}
		ca := merge(now, parse(s.Given.CA).certs)
		var after []Slot
		for _, slot := range s.Target.Slots {
			bundle := slot.Bundle
			if i := slices.IndexFunc(a.Write, func(w Slot) bool { return w.Path == slot.Path }); i >= 0 {
				bundle = a.Write[i].Bundle
				expect(s.Target.Held || !bytes.Equal(bundle, slot.Bundle), "a bundle is written that does not change")
			}
			after = append(after, Slot{slot.Path, bundle})
			has := func(c *x509.Certificate) bool {
				return slices.ContainsFunc(parse(bundle).certs, c.Equal)
			}
			for _, c := range parse(slot.Bundle).certs {
				expect(has(c) != now.After(c.NotAfter), "a CA that is valid is dropped, or one that has expired stays")
			}
			expect(!slices.ContainsFunc(ca, func(c *x509.Certificate) bool { return !has(c) }), "the CA is not in a bundle")
			expect(!bytes.Contains(bundle, text("key")), "a bundle has a key")
			expect(bytes.Equal(pki.EncodeCertificates(parse(bundle).certs...), bundle), "a bundle has more than certificates")
		}
		s.Target = &Target{Slots: after}
		expect(Decide(s, now).Write == nil, "decides the same again")
	})
}

// TestTargets: where the bundle of each kind is read is where it is written.
func TestTargets(t *testing.T) {
	for _, c := range []struct{ kind, object, patch, obstacle string }{
		{KindValidatingWebhook, `{"webhooks":[{"name":"a","clientConfig":{"url":"https://a","caBundle":"b2xk"}},{"name":"b","clientConfig":{"service":{"name":"b"}}}]}`,
			`{"op":"add","path":"/webhooks/0/clientConfig/caBundle","value":"b2xk"},{"op":"add","path":"/webhooks/1/clientConfig/caBundle","value":""}`, ""},
		{KindMutatingWebhook, `{}`, "", "it has no webhooks"},
		{KindAPIService, `{"spec":{"service":{"name":"a"},"caBundle":"b2xk"}}`, `{"op":"add","path":"/spec/caBundle","value":"b2xk"}`, ""},
		{KindAPIService, `{"spec":{"group":"apps"}}`, "", "no spec.service"},
		{KindAPIService, `{"spec":{"service":{"name":"a"},"insecureSkipTLSVerify":true}}`, "", "insecureSkipTLSVerify"},
		{KindDefinition, `{"spec":{"conversion":{"strategy":"Webhook","webhook":{"clientConfig":{"caBundle":"b2xk"}}}}}`,
			`{"op":"add","path":"/spec/conversion/webhook/clientConfig/caBundle","value":"b2xk"}`, ""},
		{KindDefinition, `{"spec":{"conversion":{"strategy":"None"}}}`, "", "is not Webhook"},
		{KindDefinition, `{"spec":{}}`, "", "is not Webhook"},
		{KindAPIService, `{"metadata":{"managedFields":[{"manager":"flux","operation":"Apply"},{"manager":"cert-manager-cainjector","operation":"Apply"},` +
			`{"manager":"cert-manager-cainjector","operation":"Update"}]},"spec":{"service":{"name":"a"},"caBundle":"b2xk"}}`,
			`{"op":"replace","path":"/metadata/managedFields","value":[{"manager":"flux","operation":"Apply"},{"manager":"cert-manager-cainjector","operation":"Update"}]},` +
				`{"op":"add","path":"/spec/caBundle","value":"b2xk"}`, ""},
		{KindAPIService, `{"metadata":{"managedFields":[{"manager":"cert-manager-cainjector","operation":"Apply"}]},"spec":{"service":{"name":"a"}}}`,
			`{"op":"replace","path":"/metadata/managedFields","value":[{}]},{"op":"add","path":"/spec/caBundle","value":""}`, ""},
	} {
		var object map[string]any
		if err := json.Unmarshal([]byte(c.object), &object); err != nil {
			t.Fatal(err)
		}
		target := Read(c.kind, object)
		if !strings.Contains(target.Obstacle, c.obstacle) || (target.Obstacle == "") != (c.obstacle == "") {
			t.Errorf("%s %s: %q, want %q", c.kind, c.object, target.Obstacle, c.obstacle)
		}
		if c.obstacle != "" {
			continue
		}
		got, err := json.Marshal(Patch(&target, Action{Write: target.Slots}, "7"))
		if want := `[{"op":"replace","path":"/metadata/resourceVersion","value":"7"},` + c.patch + "]"; err != nil || string(got) != want {
			t.Errorf("%s %s: %s, %v", c.kind, c.object, got, err)
		}
	}
}
