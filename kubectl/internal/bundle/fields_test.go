package bundle

import (
	"encoding"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/clientside/explain"
	"chancery.dev/internal/engine"
)

// root is a type, and the path to it.
type root struct {
	path string
	of   reflect.Type
}

// ours are our own types.
func ours() []root {
	return []root{
		{"Certificate", reflect.TypeFor[certmanagerv1.Certificate]()},
		{"CertificateRequest", reflect.TypeFor[certmanagerv1.CertificateRequest]()},
		{"Issuer", reflect.TypeFor[certmanagerv1.Issuer]()},
		{"ClusterIssuer", reflect.TypeFor[certmanagerv1.ClusterIssuer]()},
		{"Order", reflect.TypeFor[acmev1.Order]()},
		{"Challenge", reflect.TypeFor[acmev1.Challenge]()},
		{"List.items", reflect.TypeFor[explain.Report]()},
		{"List.items", reflect.TypeFor[engine.Wait]()},
		{"List.items", reflect.TypeFor[metav1.PartialObjectMetadata]()},
	}
}

// theirs are those of Kubernetes.
func theirs() []root {
	return []root{
		{"CertificateSigningRequest", reflect.TypeFor[certificatesv1.CertificateSigningRequest]()},
		{"PodCertificateRequest", reflect.TypeFor[certificatesv1.PodCertificateRequest]()},
		{"ClusterTrustBundle", reflect.TypeFor[certificatesv1.ClusterTrustBundle]()},
		{"Ingress", reflect.TypeFor[networkingv1.Ingress]()},
		{"Gateway", reflect.TypeFor[gwapiv1.Gateway]()},
		{"Deployment", reflect.TypeFor[appsv1.Deployment]()},
		{"Pod", reflect.TypeFor[corev1.Pod]()},
		{"Lease", reflect.TypeFor[coordinationv1.Lease]()},
		{"Event", reflect.TypeFor[corev1.Event]()},
	}
}

// paths are the paths of the objects, and of the texts, of a type that is in others. A key of a map is KEY.
func paths(of reflect.Type, path string, in ...reflect.Type) (objects, texts []string) {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice && of.Elem().Kind() != reflect.Uint8 {
		of = of.Elem()
	}
	pointer := reflect.PointerTo(of)
	switch {
	case pointer.Implements(reflect.TypeFor[json.Marshaler]()), pointer.Implements(reflect.TypeFor[encoding.TextMarshaler]()),
		of.Kind() == reflect.Slice, of.Kind() == reflect.String:
		return nil, []string{path}
	case of.Kind() == reflect.Map:
		return paths(of.Elem(), path+".KEY", in...)
	case of.Kind() != reflect.Struct || len(in) > 20: // a Node has Nodes
		return nil, nil
	}
	objects = append(objects, path)
	for field := range of.Fields() {
		if !field.IsExported() && !field.Anonymous { // it is not in the JSON
			continue
		}
		at := path
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
			at += "." + name
		}
		more, moreTexts := paths(field.Type, at, append(slices.Clone(in), of)...)
		objects, texts = append(objects, more...), append(texts, moreTexts...)
	}
	return objects, texts
}

// stays reports whether what is planted stays at a path. A · is a dot in the name of a field.
func stays(path string, planted any) bool {
	fields := strings.Split(path, ".")
	content, _ := planted.(map[string]any)
	for _, field := range slices.Backward(fields[1:]) {
		content = map[string]any{strings.ReplaceAll(field, "·", "."): planted}
		planted = content
	}
	(&redactor{}).object(fields[0], content)
	return strings.Contains(fmt.Sprint(content), mark)
}

// left says of fields that are not in fields.txt why their texts are taken out, and those below them.
func left() map[string]string {
	return map[string]string{
		"metadata.managedFields": "they are long, and nobody needs them: they are left out",
		"metadata.selfLink":      "nobody writes it any more",
		"annotations":            "others keep copies of objects, snippets, anything there; ours stay",
		"spec.emailAddresses":    "addresses of people",
		"email":                  "an address of a person",
		"lastRegisteredEmail":    "an address of a person",
		"password":               "a password",
		"roleId":                 "half of what opens Vault",
		"accessKeyID":            "half of what opens AWS",
		"vaultHeaderValue":       "the value of a header",
		"lastPrivateKeyHash":     "it is made of a private key",
		"extra":                  "whatever the authentication of a cluster writes there",
		"config":                 "the configuration of others' programs",
	}
}

// TestEveryField: whoever adds a text to our API, to Report or to Wait decides whether it stays: the field is in
// fields.txt, or in the list above with a reason.
func TestEveryField(t *testing.T) {
	t.Parallel()
	reasons, used, count := left(), map[string]bool{}, 0
	for _, root := range ours() {
		_, texts := paths(root.of, root.path)
		count += len(texts)
		for _, path := range texts {
			var why string
			for end := range reasons {
				if strings.Contains(path+".", "."+end+".") {
					why, used[end] = end, true
				}
			}
			switch stay := stays(path, mark); {
			case stay && why != "":
				t.Errorf("%s stays, although it is left out: %s", path, reasons[why])
			case !stay && why == "":
				t.Errorf("%s: write the field into fields.txt if its texts are to stay in bundles, or here with a reason why not", path)
			}
		}
	}
	for end := range reasons {
		if !used[end] {
			t.Errorf("there is no field %s", end)
		}
	}
	if count < 500 {
		t.Errorf("there are %d texts", count)
	}
}

// TestListedFields: what is in fields.txt is a field of an object that is gathered.
func TestListedFields(t *testing.T) {
	t.Parallel()
	there := map[entry]bool{}
	add := func(as, path string) {
		path = strings.ReplaceAll(path, "KEY", "*")
		if before, found := strings.CutSuffix(path, "SecretRef.key"); found {
			path = before + "secretRef.key"
		}
		for end, more := path, true; more; _, end, more = strings.Cut(end, ".") {
			there[entry{as, end}] = true
		}
	}
	for _, root := range append(ours(), theirs()...) {
		objects, texts := paths(root.of, root.path)
		for _, path := range append(objects, "List") {
			add("in", path)
		}
		for _, path := range texts {
			for _, as := range []string{"text", "prose", "pem"} {
				add(as, path)
			}
		}
	}
	for e := range known() {
		if e.as != "#" && !there[e] {
			t.Errorf("no object has the field %v", e)
		}
	}
}

// TestUnknownFields: wherever a field is that nobody knows, its texts go, also those in lists and in fields that are
// known elsewhere.
func TestUnknownFields(t *testing.T) {
	t.Parallel()
	for _, root := range append(ours(), theirs()...) {
		objects, _ := paths(root.of, root.path)
		for _, path := range objects {
			for _, field := range []string{"colour", "displayValue", "the·name"} {
				for _, value := range []any{mark, []any{mark}, map[string]any{"name": mark, "kind": mark}, []any{map[string]any{"labels": map[string]any{"a": mark}}}} {
					if stays(path+"."+field, value) {
						t.Errorf("%s.%s stays: %v", path, field, value)
					}
				}
			}
		}
	}
}

// expected is a value without the texts that have the mark.
func expected(value any) any {
	switch value := value.(type) {
	case string:
		if strings.Contains(value, mark) {
			return gone
		}
	case []any:
		out := []any{}
		for _, item := range value {
			out = append(out, expected(item))
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for name, item := range value {
			out[name] = expected(item)
		}
		return out
	}
	return value
}

// TestObjects: of whole objects, what somebody needs who helps is there, and nothing else goes than what is planted.
func TestObjects(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/objects.yaml")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, document := range strings.Split(string(text), "\n---\n") {
		content := map[string]any{}
		if err := yaml.Unmarshal([]byte(document), &content); err != nil {
			t.Fatal(err)
		}
		kind := fmt.Sprint(content["kind"])
		seen[kind] = true
		want, _ := yaml.Marshal(expected(content))
		(&redactor{}).object(kind, content)
		got, _ := yaml.Marshal(content)
		gotLines, wantLines := strings.Split(string(got), "\n"), strings.Split(string(want), "\n")
		if len(gotLines) != len(wantLines) {
			t.Errorf("%s: %d lines, want %d", kind, len(gotLines), len(wantLines))
		}
		for i, line := range wantLines {
			if i >= len(gotLines) || gotLines[i] != line {
				t.Errorf("%s, line %d:\ngot  %s\nwant %s", kind, i, gotLines[min(i, len(gotLines)-1)], line)
			}
		}
	}
	for _, root := range append(ours(), theirs()...) {
		if kind, _, _ := strings.Cut(root.path, "."); !seen[kind] {
			t.Errorf("there is no %s", kind)
		}
	}
}

// TestConfig: in the configuration of others' programs, numbers go, too.
func TestConfig(t *testing.T) {
	t.Parallel()
	content := map[string]any{"spec": map[string]any{"config": map[string]any{"pin": 1234.0, "on": true, "list": []any{1234.0}}, "colour": map[string]any{"config": 1234.0, "size": 3.0}}}
	(&redactor{}).object("Issuer", content)
	const want = "map[spec:map[colour:map[config:REDACTED size:3] config:map[list:[REDACTED] on:REDACTED pin:REDACTED]]]"
	if got := fmt.Sprint(content); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
