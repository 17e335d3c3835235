package apiwire

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"chancery.dev/api"
	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
)

// ours is an object of each of our kinds.
func ours() []client.Object {
	return []client.Object{
		&certmanagerv1.Certificate{}, &certmanagerv1.CertificateRequest{}, &certmanagerv1.Issuer{}, &certmanagerv1.ClusterIssuer{},
		&acmev1.Order{}, &acmev1.Challenge{},
	}
}

const managed = `[{"manager":"a \"b\" ]}","operation":"Update","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"k:{\"uid\":\"1\"}":{},".":[]}}}]`

// full is an object of the kind in which every field is set, as the API server writes it:
// with sorted keys, and managed fields.
func full(t testing.TB, k kind) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "api", "testdata", "full", strings.TrimPrefix(strings.ToLower(k.Kind), "cluster")+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := yaml.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	object["kind"] = k.Kind
	object["metadata"].(map[string]any)["managedFields"] = json.RawMessage(managed)
	out, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// usual decodes as controller-runtime does, and takes the managed fields away.
func usual(t testing.TB, data []byte) client.Object {
	t.Helper()
	scheme, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	codecs := serializer.NewCodecFactory(scheme).WithoutConversion()
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	obj, err := runtime.Decode(codecs.DecoderToVersion(info.Serializer, nil), data)
	if err != nil {
		t.Fatal(err)
	}
	out := obj.(client.Object)
	if len(out.GetManagedFields()) == 0 {
		t.Fatal("the fixture has no managed fields")
	}
	out.SetManagedFields(nil)
	return out
}

// TestReadsTheSame decodes every field of every kind as client-go does.
func TestReadsTheSame(t *testing.T) {
	for _, like := range ours() {
		k, known := kindOf(like)
		if !known {
			t.Fatalf("%T is not known", like)
		}
		t.Run(k.Kind, func(t *testing.T) {
			want := usual(t, full(t, k))
			got := newOf(like)
			if err := decode(full(t, k), got, k); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("read otherwise than client-go (-want +got):\n%s", diff)
			}
			for _, event := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Bookmark} {
				line := `{"type":"` + string(event) + `","object":` + string(full(t, k)) + "}\n"
				was, got, err := decodeEvent([]byte(line), like, k)
				if err != nil || was != event {
					t.Fatalf("%s was read as %s: %v", event, was, err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", event, diff)
				}
			}
		})
	}
}

// TestReadsLists reads what a page says of itself, and its objects.
func TestReadsLists(t *testing.T) {
	like := &acmev1.Order{}
	k, _ := kindOf(like)
	one := string(full(t, k))
	for name, items := range map[string]struct {
		text string
		want int
	}{
		"two":   {"[" + one + " ,\n" + one + "]", 2},
		"empty": {"[ ]", 0},
		"null":  {"null", 0},
	} {
		t.Run(name, func(t *testing.T) {
			text := `{"apiVersion":"acme.cert-manager.io/v1","items":` + items.text + `,"kind":"OrderList","metadata":{"continue":"more","remainingItemCount":7,"resourceVersion":"42"}}`
			list, err := decodeList([]byte(text), like, k)
			if err != nil {
				t.Fatal(err)
			}
			remaining := int64(7)
			if diff := cmp.Diff(metav1.ListMeta{Continue: "more", RemainingItemCount: &remaining, ResourceVersion: "42"}, list.ListMeta); diff != "" {
				t.Error(diff)
			}
			if len(list.Items) != items.want {
				t.Fatalf("%d objects, want %d", len(list.Items), items.want)
			}
			for _, got := range list.Items {
				if diff := cmp.Diff(usual(t, []byte(one)), got); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

// TestRefusesWhatItCannotRead never takes half an answer, or that of another kind, for one.
func TestRefusesWhatItCannotRead(t *testing.T) {
	like := &acmev1.Order{}
	k, _ := kindOf(like)
	other, _ := kindOf(&acmev1.Challenge{})
	one := full(t, k)
	for name, text := range map[string]string{
		"cut short": string(one[:len(one)-1]), "another kind": string(full(t, other)), "nothing": "", "a list": "[]", "null": "null",
		"a wrong type": `{"apiVersion":"acme.cert-manager.io/v1","kind":"Order","spec":{"dnsNames":1}}`,
	} {
		if err := decode([]byte(text), newOf(like), k); err == nil {
			t.Errorf("%s is taken for an Order", name)
		}
		if _, err := decodeList([]byte(`{"items":[`+text+"]}"), like, k); err == nil && text != "" {
			t.Errorf("%s is taken for an Order in a list", name)
		}
		if _, _, err := decodeEvent([]byte(`{"type":"ADDED","object":`+text+"}"), like, k); err == nil {
			t.Errorf("%s is taken for an Order in an event", name)
		}
	}
	for _, text := range []string{"", "{", `{"items":[`, `{"items":{}}`, `{"items":[` + string(one) + `}`, `{"items":[` + string(one) + `,`} {
		if _, err := decodeList([]byte(text), like, k); err == nil {
			t.Errorf("%.40q is taken for a list", text)
		}
	}
	for _, text := range []string{"", "{}", `{"type":"SUNK","object":{}}`, `{"type":1,"object":` + string(one) + "}", `{"type":"`, `{"type":""`} {
		if _, _, err := decodeEvent([]byte(text), like, k); err == nil {
			t.Errorf("%.40q is taken for an event", text)
		}
	}
}

// TestErrorEvent hands on what the API server says when it ends a watch.
func TestErrorEvent(t *testing.T) {
	like := &acmev1.Order{}
	k, _ := kindOf(like)
	event, obj, err := decodeEvent([]byte(`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old","reason":"Expired","code":410}}`), like, k)
	status, ok := obj.(*metav1.Status)
	if err != nil || event != watch.Error || !ok || status.Code != 410 || status.Reason != metav1.StatusReasonExpired {
		t.Errorf("got %s %+v: %v", event, obj, err)
	}
}

// FuzzWithoutManagedFields holds the scanner to what encoding/json reads: what remains is
// the same JSON without metadata.managedFields, and what is not JSON does no harm.
func FuzzWithoutManagedFields(f *testing.F) {
	for _, seed := range []string{
		`{"metadata":{"managedFields":` + managed + `,"name":"x"},"spec":{"managedFields":[1]}}`,
		`{"metadata":{"annotations":{"managedFields":"\\\""},"managedFields":[]}}`, ` { "metadata" : { "name" : "x" , "managedFields" : [ { } ] } } `,
		`{"spec":{"metadata":{"managedFields":[1]}},"metadata":{"managedFields":"a\\\\"}}`, `{"metadata":[]}`, `{"metadata":{"managedFields":12345}}`,
		`[]`, `{`, `{"metadata":{"managedFields":[[[`, `{"a":"\`, `{"metadata":{"managedFields":trueish}`, `{"\u006detadata":{"managedFields":[1]}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var want any
		valid := json.Unmarshal(data, &want) == nil
		if dec := json.NewDecoder(bytes.NewReader(data)); valid && repeats(dec) {
			t.Skip("which of two members by one name counts is nobody's law")
		}
		out := withoutManagedFields(bytes.Clone(data))
		var got any
		if err := json.Unmarshal(out, &got); valid != (err == nil) && valid {
			t.Fatalf("%q has become %q: %v", data, out, err)
		}
		if !valid {
			return
		}
		for _, side := range []any{want, got} {
			if object, ok := side.(map[string]any); ok {
				if metadata, ok := object["metadata"].(map[string]any); ok {
					delete(metadata, "managedFields")
				}
			}
		}
		if !reflect.DeepEqual(want, got) {
			t.Errorf("%q has become %q", data, out)
		}
	})
}

// repeats reports whether an object in the JSON has two members by one name.
func repeats(dec *json.Decoder) bool {
	token, err := dec.Token()
	if err != nil {
		return false
	}
	switch token {
	case json.Delim('{'):
		seen := map[any]bool{}
		for dec.More() {
			key, err := dec.Token()
			if err != nil {
				return false
			}
			if seen[key] || repeats(dec) {
				return true
			}
			seen[key] = true
		}
		_, _ = dec.Token() // the bracket
	case json.Delim('['):
		for dec.More() {
			if repeats(dec) {
				return true
			}
		}
		_, _ = dec.Token() // the bracket
	}
	return false
}
