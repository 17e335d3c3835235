package main

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"chancery.dev/internal/rig/slow"
	"chancery.dev/internal/rig/tool"
)

// TestPrograms: a program that cannot be run is told of before anything else is started.
func TestPrograms(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"":                                  "no program is named",
		filepath.Join(t.TempDir(), "none"):  "there is no file",
		tool.Script(t, "no program at all"): "is no program for",
	} {
		o := options{other: path, ours: path, certificates: 1, progress: &strings.Builder{}}
		if _, err := compare(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", path, err, want)
		}
	}
}

// TestInput: a seed chooses the same objects each time, another one chooses others, and 300 Certificates and 200
// Ingresses have every trait and every annotation.
func TestInput(t *testing.T) {
	t.Parallel()
	texts := func(seed uint64) (all []string) {
		in, err := generate(seed, 300, 200)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range in.objects {
			if s, ok := o.(*corev1.Secret); ok {
				delete(s.Data, corev1.TLSPrivateKeyKey) // keys are new
			}
			text, err := json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, string(text))
		}
		return all
	}
	first := texts(1)
	if !slices.Equal(first, texts(1)) {
		t.Error("a seed chooses other objects the second time")
	}
	if slices.Equal(first, texts(2)) {
		t.Error("another seed chooses the same objects")
	}
	if n := len(traits()); n > 300 {
		t.Errorf("%d traits are more than there are Certificates", n)
	}
	if n := len(annotations()); n > 200 {
		t.Errorf("%d sets of annotations are more than there are Ingresses", n)
	}
}

// TestWrongShapes: what a controller writes that is no certificate, no key, no request and no keystore is said to be
// so.
func TestWrongShapes(t *testing.T) {
	t.Parallel()
	garbage := base64.StdEncoding.EncodeToString([]byte("garbage"))
	data := map[string]any{}
	for _, name := range []string{"tls.crt", "tls.key", "ca.crt", "keystore.jks", "truststore.p12", "key.der", "tls-combined.pem", "own"} {
		data[name] = garbage
	}
	facts := factsOf(&unstructured.Unstructured{Object: map[string]any{
		"kind": "Secret", "metadata": map[string]any{"name": "tls-001", "namespace": namespace}, "type": "Wrong", "data": data,
	}}).facts
	for where, want := range map[string]string{
		"data[tls.crt]": "is no chain of certificates", "data[ca.crt]": "is no chain of certificates", "data[tls.key]": "is no private key",
		"data[keystore.jks]": "cannot be read with its password", "data[truststore.p12]": "readable false, 0 certificates",
		"data[key.der]": "tls.key without PEM: false", "data[tls-combined.pem]": "tls.key, a line feed and tls.crt: false", "data[own]": `"garbage"`, "type": "Wrong",
	} {
		if got := facts[where]; got != want {
			t.Errorf("%s %q, want %q", where, got, want)
		}
	}
	facts = factsOf(&unstructured.Unstructured{Object: map[string]any{
		"kind": "CertificateRequest", "metadata": map[string]any{"name": "crt-001-1"}, "spec": map[string]any{"request": "!"},
		"status": map[string]any{"certificate": garbage, "conditions": []any{map[string]any{"type": "Ready", "reason": "At 2026-01-02T03:04:05Z"}, "no condition"}},
	}}).facts
	for where, want := range map[string]string{
		"spec.request": "is no certificate request", "status.certificate": "is no chain of certificates",
		"status.conditions[Ready].reason": "At TIME", "status.conditions[1]": "no condition",
	} {
		if got := facts[where]; got != want {
			t.Errorf("%s %q, want %q", where, got, want)
		}
	}
}

func TestMask(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"until 2026-11-26T15:04:05Z, or 2026-11-26 15:04 UTC":                  "until TIME, or TIME",
		"order crt-001-1-3912345678-12345678 of ing-002-b-1":                   "order crt-001-1-HASH of ing-002-b-1",
		`Stored new private key in Secret "crt-001-a1b2c"`:                     `Stored new private key in Secret "crt-001-RANDOM"`,
		"https://127.0.0.1:4431/my-account/7c1e: refused":                      "https://ADDRESS/… refused",
		"serial 0123456789abcdef0123 and 00000000-1111-2222-3333-444444444444": "serial HEX and UID",
		"crt-001.example.com has 3 names":                                      "crt-001.example.com has 3 names",
	} {
		if got := mask(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

// TestEventsOfTheServer: what the API server itself says of the addresses of Services is no difference of controllers.
func TestEventsOfTheServer(t *testing.T) {
	t.Parallel()
	told := map[string]*object{}
	for _, reporter := range []string{"ipallocator-repair-controller", "portallocator-repair-controller", "cert-manager-certificates"} {
		addEvent(told, map[string]any{
			"involvedObject": map[string]any{"kind": "Service", "namespace": "ns", "name": "responder"}, "type": "Warning", "reason": "R",
			"reportingComponent": reporter, "message": reporter,
		})
	}
	if facts := told["Event of Service ns/responder"].facts; len(told) != 1 || len(facts) != 1 || facts["Warning R by "] != "cert-manager-certificates" {
		t.Errorf("%v", facts)
	}
}

// TestReport: differences are counted by what they are, those without a name come first, and what only one side has is
// one.
func TestReport(t *testing.T) {
	t.Parallel()
	made := func(kind, name string, facts map[string]string) object { return object{kind, name, facts} }
	other := []object{
		made("Secret", "compare/tls-001", map[string]string{"type": "kubernetes.io/tls", "same": "a"}),
		made("Secret", "compare/tls-002", map[string]string{"type": "kubernetes.io/tls"}),
		made("Order", "compare/crt-001-1-HASH", nil),
	}
	ours := []object{
		made("Secret", "compare/tls-001", map[string]string{"type": "Opaque", "same": "a"}),
		made("Secret", "compare/tls-002", map[string]string{"type": "Opaque"}),
		made("Event of Certificate", "compare/crt-001", map[string]string{"Normal New by x": "thing of crt-001"}),
	}
	sides := [2]*side{{name: "the other controller", notes: []string{"it was killed"}}, {name: "Chancery"}}
	r := newReport(sides, [2][]object{other, ours})
	if len(r.unnamed()) != 3 || r.facts != 3 || r.equal != 1 {
		t.Errorf("%d rows without a name, %d facts, %d equal", len(r.unnamed()), r.facts, r.equal)
	}
	var text strings.Builder
	r.write(&text)
	for _, want := range []string{
		"DIFFERENCES WITHOUT A NAME: 3 kinds, 4 in all\n",
		"Secret: type (2, in compare/tls-001 for example)\n    the other: kubernetes.io/tls\n    Chancery:  Opaque\n",
		"Order: (the object) (1, in compare/crt-001-1-HASH for example)\n    the other: there\n    Chancery:  (nothing)\n",
		"Event of Certificate: (the object) (1, in compare/crt-001 for example)\n    the other: (nothing)\n    Chancery:  there: Normal New by x: thing of crt-N", "NOTE: it was killed", "3 fields compared: 1 equal, 0 differences with a name, 4 without",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in:\n%s", want, &text)
		}
	}
	if same := newReport(sides, [2][]object{other, other}); len(same.rows) != 0 {
		t.Errorf("the same objects differ: %+v", same.rows)
	}
}

// TestNames: what names a difference is on its page, word for word, and each row of the table is used for what it is
// for.
func TestNames(t *testing.T) {
	t.Parallel()
	pages := map[string]string{}
	for _, page := range []string{compatibility, changelog} {
		text, err := os.ReadFile(filepath.Join("..", "..", page))
		if err != nil {
			t.Fatal(err)
		}
		pages[page] = strings.Join(strings.Fields(string(text)), " ")
	}
	for _, k := range differences() {
		if k.named.text == "" || !strings.Contains(pages[k.named.page], k.named.text) {
			t.Errorf("%s does not say %q", k.named.page, k.named.text)
		}
		if k.kind == "" && k.where == "" {
			t.Errorf("%q names everything", k.named.text)
		}
	}
}

// TestCompareWithItself: a controller that is compared with itself differs in nothing.
func TestCompareWithItself(t *testing.T) {
	slow.Test(t, slow.Versions)
	o := quickly(t)
	o.certificates, o.ingresses = 12, 8
	r, err := compare(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if r.write(&text); len(r.rows) > 0 || r.objects[0] < 60 || r.facts < 1000 {
		t.Errorf("%d objects:\n%s", r.objects[0], &text)
	}
}

// TestCompareFindsADifference: a controller that is told to do something else differs, and nothing names it.
func TestCompareFindsADifference(t *testing.T) {
	slow.Test(t, slow.Versions)
	o := quickly(t)
	o.certificates, o.arguments = 6, []string{"--enable-certificate-owner-ref=true"}
	r, err := compare(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(r.unnamed(), func(d *row) bool {
		return d.kind == "Secret" && d.where == "metadata.ownerReferences[Certificate]" && d.other != "" && d.ours == "" && d.count > 2
	}) {
		t.Errorf("the owners of Secrets do not differ: %+v", r.rows)
	}
}

// quickly compares ours with itself.
func quickly(t *testing.T) options {
	t.Helper()
	path := os.Getenv("CHANCERY_BIN")
	if path == "" {
		t.Fatal("CHANCERY_BIN must name the program: make test-slow-versions sets it")
	}
	return options{
		other: path, ours: path, seed: 1, settle: 4 * time.Second, settleChallenges: 10 * time.Second, limit: 2 * time.Minute, looks: 10 * time.Second,
		progress: &strings.Builder{},
	}
}

// TestStandIns: a controller that is silent, however much it prints, or ends while it is waited for, is told of.
func TestStandIns(t *testing.T) {
	slow.Test(t, slow.Versions)
	for script, want := range map[string]string{
		"exec yes\n":                             "the other controller is silent: 10s after its start no issuer has a condition",
		"sleep 3; echo lost the lease; exit 1\n": "lost the lease",
	} {
		o := quickly(t)
		s := &side{options: o, name: "the other controller", dir: t.TempDir(), path: tool.Script(t, "#!/bin/sh\ncase $* in *--help) exit;; esac\n"+script)}
		in, err := generate(1, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.ask(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.run(t.Context(), in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", script, err, want)
		}
	}
}
