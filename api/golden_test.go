package api_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"chancery.dev/api"
	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
)

// fromYAML decodes as the API server does: whole numbers are integers.
func fromYAML(document []byte, object *unstructured.Unstructured) error {
	data, err := yaml.YAMLToJSON(document)
	if err != nil {
		return err
	}
	return object.UnmarshalJSON(data)
}

// load reads all documents of the files that match.
func load(t *testing.T, pattern string) []*unstructured.Unstructured {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("no files %s: %v", pattern, err)
	}
	var objects []*unstructured.Unstructured
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
		for {
			document, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			object := &unstructured.Unstructured{}
			if err == nil {
				err = fromYAML(document, object)
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			objects = append(objects, object)
		}
	}
	return objects
}

// fullObjects are objects written from the specification that, together, set every field of every kind.
// Each Issuer stands for a ClusterIssuer too.
func fullObjects(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	objects := load(t, "testdata/full/*.yaml")
	for _, o := range objects {
		if o.GetKind() == certmanagerv1.IssuerKind {
			c := o.DeepCopy()
			c.SetKind(certmanagerv1.ClusterIssuerKind)
			objects = append(objects, c)
		}
	}
	return objects
}

// typed makes an object of our own type.
func typed(t *testing.T, s *runtime.Scheme, o *unstructured.Unstructured) runtime.Object {
	t.Helper()
	v, err := s.New(o.GroupVersionKind())
	if err != nil {
		t.Fatal(err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, v, true); err != nil {
		t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
	}
	return v
}

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTypesKeepEveryField(t *testing.T) {
	s := scheme(t)
	for _, want := range fullObjects(t) {
		got, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed(t, s, want))
		if err != nil {
			t.Fatal(err)
		}
		if status, ok := got["status"].(map[string]any); ok && want.Object["status"] == nil && len(status) == 0 {
			delete(got, "status")
		}
		if diff := cmp.Diff(want.Object, got); diff != "" {
			t.Errorf("%s %s changes on its way through our type (-want +got):\n%s", want.GetKind(), want.GetName(), diff)
		}
	}
}

// foreign are packages whose types the test does not look into: the API server's round trip covers them.
func foreign(t reflect.Type) bool {
	return t.PkgPath() != "" && !strings.HasPrefix(t.PkgPath(), "chancery.dev/api")
}

// fill records which fields of our types a value sets.
func fill(v reflect.Value, seen map[string]bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			fill(v.Elem(), seen)
		}
	case reflect.Slice:
		for i := range v.Len() {
			fill(v.Index(i), seen)
		}
	case reflect.Struct:
		if foreign(v.Type()) {
			return
		}
		for i := range v.NumField() {
			if f := v.Field(i); !f.IsZero() {
				seen[v.Type().String()+"."+v.Type().Field(i).Name] = true
				fill(f, seen)
			}
		}
	default:
	}
}

// fields lists the fields of our types below a type.
func fields(t reflect.Type, all map[string]bool) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || foreign(t) {
		return
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name := t.String() + "." + f.Name
		if all[name] || f.Type == reflect.TypeFor[metav1.ListMeta]() {
			continue
		}
		all[name] = true
		fields(f.Type, all)
	}
}

func TestGoldenSetsEveryField(t *testing.T) {
	s := scheme(t)
	seen := map[string]bool{}
	for _, o := range fullObjects(t) {
		fill(reflect.ValueOf(typed(t, s, o)), seen)
	}
	all := map[string]bool{}
	for _, root := range []any{
		certmanagerv1.Certificate{}, certmanagerv1.CertificateRequest{}, certmanagerv1.Issuer{},
		certmanagerv1.ClusterIssuer{}, acmev1.Order{}, acmev1.Challenge{},
	} {
		fields(reflect.TypeOf(root), all)
	}
	if len(all) < 200 {
		t.Fatalf("found only %d fields", len(all))
	}
	for name := range all {
		if !seen[name] {
			t.Errorf("no golden object sets %s", name)
		}
	}
}

func TestSchemeKnowsAllKinds(t *testing.T) {
	s := scheme(t)
	crds, err := api.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	if len(crds) != 6 {
		t.Fatalf("%d CRDs, want 6", len(crds))
	}
	for _, crd := range crds {
		gv := schema.GroupVersion{Group: crd.Spec.Group, Version: crd.Spec.Versions[0].Name}
		for _, kind := range []string{crd.Spec.Names.Kind, crd.Spec.Names.ListKind} {
			if !s.Recognizes(gv.WithKind(kind)) {
				t.Errorf("the scheme does not know %s", gv.WithKind(kind))
			}
		}
	}
}
