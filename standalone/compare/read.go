package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// object is what is compared of an object: what is known of it, by where it is said. What differs from run to run, such
// as times, keys and random names, is masked.
type object struct {
	kind, name string
	facts      map[string]string
}

// kind is one of those that are compared.
type kind struct{ schema.GroupVersionKind }

func (k kind) list() schema.GroupVersionKind { return k.GroupVersion().WithKind(k.Kind + "List") }

func kinds() []kind {
	var all []kind
	for _, k := range []struct{ group, kind string }{
		{"", "Secret"}, {"", "Event"}, {"networking.k8s.io", "Ingress"},
		{"cert-manager.io", "Issuer"}, {"cert-manager.io", "ClusterIssuer"}, {"cert-manager.io", "Certificate"}, {"cert-manager.io", "CertificateRequest"},
		{"acme.cert-manager.io", "Order"}, {"acme.cert-manager.io", "Challenge"},
	} {
		all = append(all, kind{schema.GroupVersionKind{Group: k.group, Version: "v1", Kind: k.kind}})
	}
	return all
}

// read returns all that there is to compare on an API server, by kind and name.
func read(ctx context.Context, c client.Client) ([]object, error) {
	var all []object
	told := map[string]*object{}
	for _, kind := range kinds() {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.list())
		if err := c.List(ctx, list); err != nil {
			return nil, err
		}
		for i := range list.Items {
			u := &list.Items[i]
			switch space := u.GetNamespace(); {
			case space != "" && space != namespace && space != clusterNamespace:
			case kind.Kind == "Event":
				addEvent(told, u.Object)
			default:
				all = append(all, factsOf(u))
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(told)) {
		all = append(all, *told[key])
	}
	// Where random names are masked alike, the facts tell the objects apart.
	slices.SortStableFunc(all, func(a, b object) int {
		return strings.Compare(a.kind+" "+a.name+fmt.Sprint(a.facts), b.kind+" "+b.name+fmt.Sprint(b.facts))
	})
	seen := map[string]int{}
	for i := range all {
		key := all[i].kind + " " + all[i].name
		if seen[key]++; seen[key] > 1 {
			all[i].name += fmt.Sprintf(" (%d)", seen[key])
		}
	}
	return all, nil
}

// serverReporters write Events about the addresses of Services, which the API server repairs at a time of its own.
var serverReporters = []string{"ipallocator-repair-controller", "portallocator-repair-controller"}

// addEvent adds an Event of a controller to what is told of its object: all messages of a reason, one a line.
func addEvent(told map[string]*object, event map[string]any) {
	text := func(fields ...string) string {
		s, _, _ := unstructured.NestedString(event, fields...)
		return mask(s)
	}
	if slices.Contains(serverReporters, text("reportingComponent")) {
		return
	}
	kind, name := "Event of "+text("involvedObject", "kind"), text("involvedObject", "namespace")+"/"+text("involvedObject", "name")
	key := kind + " " + name
	if told[key] == nil {
		told[key] = &object{kind: kind, name: name, facts: map[string]string{}}
	}
	where := fmt.Sprintf("%s %s by %s", text("type"), text("reason"), text("source", "component"))
	messages := append(strings.Split(told[key].facts[where], "\n"), text("message"))
	slices.Sort(messages)
	told[key].facts[where] = strings.TrimPrefix(strings.Join(slices.Compact(messages), "\n"), "\n")
}

// hidden are parts of metadata and status that differ from run to run, or are not what somebody has asked for.
func hidden(path string) bool {
	switch path {
	case "metadata.uid", "metadata.resourceVersion", "metadata.generation", "metadata.creationTimestamp", "metadata.managedFields", "metadata.name", "metadata.namespace",
		"apiVersion", "kind", "spec.token", "spec.key", "spec.url", "spec.authorizationURL", "spec.uid":
		return true
	}
	return strings.HasPrefix(path, "status.authorizations")
}

// factsOf flattens an object.
func factsOf(u *unstructured.Unstructured) object {
	o := object{kind: u.GetKind(), name: mask(u.GetName()), facts: map[string]string{}}
	if u.GetNamespace() != "" {
		o.name = u.GetNamespace() + "/" + o.name
	}
	content := u.DeepCopy().Object
	if u.GetKind() == "Secret" {
		o.addSecret(content)
		delete(content, "data")
		for _, m := range u.GetManagedFields() {
			o.facts["field managers: "+m.Manager+" by "+string(m.Operation)] = "yes"
		}
	}
	for _, at := range []struct {
		fields []string
		add    func(path string, text []byte)
	}{
		{[]string{"spec", "request"}, o.addRequest},
		{[]string{"status", "certificate"}, o.addCertificates},
		{[]string{"status", "ca"}, o.addCertificates},
	} {
		if encoded, found, _ := unstructured.NestedString(content, at.fields...); found {
			text, err := base64.StdEncoding.DecodeString(encoded)
			if err != nil {
				o.facts[strings.Join(at.fields, ".")] = "is no base64"
			}
			at.add(strings.Join(at.fields, "."), text)
			unstructured.RemoveNestedField(content, at.fields...)
		}
	}
	o.addRenewal(content)
	for _, owner := range u.GetOwnerReferences() {
		o.facts["metadata.ownerReferences["+owner.Kind+"]"] = mask(fmt.Sprintf("%s controller=%t blockOwnerDeletion=%t", owner.Name, isTrue(owner.Controller), isTrue(owner.BlockOwnerDeletion)))
	}
	unstructured.RemoveNestedField(content, "metadata", "ownerReferences")
	o.flatten("", content)
	return o
}

func isTrue(b *bool) bool { return b != nil && *b }

// addRenewal says where in the lifetime of a certificate its renewal is.
func (o object) addRenewal(content map[string]any) {
	at := func(field string) time.Time {
		s, _, _ := unstructured.NestedString(content, "status", field)
		t, _ := time.Parse(time.RFC3339, s)
		return t
	}
	from, to, renewal := at("notBefore"), at("notAfter"), at("renewalTime")
	if renewal.IsZero() || !to.After(from) {
		return
	}
	unstructured.RemoveNestedField(content, "status", "renewalTime")
	left, lifetime := to.Sub(renewal), to.Sub(from)
	said := left.String() + " before it expires"
	const third, jitter, slack = 1.0 / 3, 1.0 / 30, 0.002
	switch share := float64(left) / float64(lifetime); {
	case share >= third-jitter-slack && share <= third+slack:
		said = "when about a third of the lifetime is left"
	case share >= 0.5-0.05-slack && share <= 0.5+slack:
		said = "when about half of the lifetime is left"
	}
	if _, windows, _ := unstructured.NestedFieldNoCopy(content, "spec", "renewal", "windows"); windows {
		said = "in a window"
	}
	o.facts["status.renewalTime"] = said
}

// flatten adds what a part of an object says. Items of a list are called by their type or name, or by their place.
func (o object) flatten(path string, value any) {
	if hidden(path) {
		return
	}
	switch value := value.(type) {
	case map[string]any:
		for k, v := range value {
			sub := path + "." + k
			if strings.ContainsAny(k, "./") {
				sub = path + "[" + k + "]"
			}
			o.flatten(strings.TrimPrefix(sub, "."), v)
		}
	case []any:
		if len(value) > 0 {
			if _, ok := value[0].(map[string]any); ok {
				for i, item := range value {
					o.flatten(fmt.Sprintf("%s[%s]", path, called(item, i)), item)
				}
				return
			}
		}
		text, _ := json.Marshal(value) // it was JSON
		o.facts[path] = mask(string(text))
	default:
		o.facts[path] = mask(fmt.Sprint(value))
		if random(path) {
			o.facts[path] = "set"
		}
	}
}

// random reports whether what stands there is new each time, or counts changes: only that it is there is compared.
func random(path string) bool {
	for _, end := range []string{
		"bservedGeneration", "spec.acme.caBundle", "lastPrivateKeyHash", "[chancery.dev/keystores]", "[chancery.dev/made-by-process]", "[chancery.dev/account-thumbprint]",
	} {
		if strings.HasSuffix(path, end) {
			return true
		}
	}
	return false
}

func called(item any, i int) string {
	if m, ok := item.(map[string]any); ok {
		for _, field := range []string{"type", "name"} {
			if s, ok := m[field].(string); ok {
				return s
			}
		}
	}
	return fmt.Sprint(i)
}

// mask makes what differs from run to run look alike.
func mask(s string) string {
	for _, m := range masks() {
		s = m.pattern.ReplaceAllString(s, m.with)
	}
	return s
}

// masked is a pattern, and what stands for what matches it.
type masked struct {
	pattern *regexp.Regexp
	with    string
}

// masks are applied one after the other.
var masks = sync.OnceValue(func() (all []masked) {
	for _, m := range [][2]string{
		{`\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?( ?(Z|UTC|[+-]\d\d:?\d\d))?( UTC)?`, "TIME"},
		{`(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d \w+`, "TIME"},
		{`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`, "UID"},
		{`127\.0\.0\.1:\d+`, "ADDRESS"},
		{`https://ADDRESS/[^\s"',;)]*`, "https://ADDRESS/…"},
		{`\b([0-9a-f]{2}:){7,}[0-9a-f]{2}\b|\b[0-9a-f]{16,}\b`, "HEX"},
		{`\b((crt|ing)-\d{3}(-b)?-\d+)-\d{6,10}(-\d{6,10})?\b`, "$1-HASH"},
		{`\b((crt|ing)-\d{3}(-b)?)-[a-z0-9]{5}\b`, "$1-RANDOM"},
	} {
		all = append(all, masked{regexp.MustCompile(m[0]), m[1]})
	}
	return all
})
