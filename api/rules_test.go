package api_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"chancery.dev/api"
)

// changes are new values by path; nil removes.
type changes map[string]any

// ruleCase is a base object with changes, and a part of the message that refuses it; none if it is fine.
type ruleCase struct {
	name string
	base string
	set  changes
	want string
}

// base returns a small valid object.
func base(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	for _, o := range load(t, "testdata/base.yaml") {
		if o.GetName() == name {
			return o
		}
	}
	t.Fatalf("no base object %q", name)
	return nil
}

// edit changes an object at dotted paths; numbers index lists.
func edit(t *testing.T, o *unstructured.Unstructured, set changes) {
	t.Helper()
	for _, path := range slices.Sorted(maps.Keys(set)) {
		keys := strings.Split(path, ".")
		var at any = o.Object
		for _, key := range keys[:len(keys)-1] {
			switch v := at.(type) {
			case map[string]any:
				if v[key] == nil {
					v[key] = map[string]any{}
				}
				at = v[key]
			case []any:
				i, err := strconv.Atoi(key)
				if err != nil {
					t.Fatalf("%s: %v", path, err)
				}
				at = v[i]
			default:
				t.Fatalf("%s: nothing at %s", path, key)
			}
		}
		last := keys[len(keys)-1]
		m, ok := at.(map[string]any)
		if !ok {
			t.Fatalf("%s is not below an object", path)
		}
		if set[path] == nil {
			delete(m, last)
		} else {
			m[last] = set[path]
		}
	}
}

// secretRef is a reference to a Secret's entry.
func secretRef(name, key string) map[string]any {
	return map[string]any{"name": name, "key": key}
}

// strs is a list of strings.
func strs(s ...string) []any {
	l := make([]any, len(s))
	for i := range s {
		l[i] = s[i]
	}
	return l
}

// creationCases are all cases in which an object is made.
func creationCases() []ruleCase {
	return slices.Concat(certificateCases(), leadCases(), certificateKeyCases(), requestCases(), issuerCases(), acmeCases(), dnsCases())
}

func TestCreationRules(t *testing.T) {
	d := client(t)
	for _, c := range creationCases() {
		t.Run(c.base+"/"+c.name, func(t *testing.T) {
			o := base(t, c.base)
			edit(t, o, c.set)
			_, err := resourceFor(d, o).Create(t.Context(), o, metav1.CreateOptions{
				DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict,
			})
			check(t, err, c.want)
		})
	}
}

// check fails unless the error says what is wanted: nothing, or a message with that part.
func check(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case want != "" && err == nil:
		t.Errorf("accepted, want %q", want)
	case want != "" && !strings.Contains(err.Error(), want):
		t.Errorf("refused with %q, want %q", err, want)
	}
}

// rulesOf lists the messages of all rules below a schema.
func rulesOf(s *apiextensionsv1.JSONSchemaProps, messages map[string]bool) {
	if s == nil {
		return
	}
	for _, r := range s.XValidations {
		messages[r.Message] = true
	}
	for name := range s.Properties {
		p := s.Properties[name]
		rulesOf(&p, messages)
	}
	if s.Items != nil {
		rulesOf(s.Items.Schema, messages)
	}
	if s.AdditionalProperties != nil {
		rulesOf(s.AdditionalProperties.Schema, messages)
	}
}

func TestEveryRuleHasACase(t *testing.T) {
	crds, err := api.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	messages := map[string]bool{}
	for _, crd := range crds {
		rulesOf(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, messages)
	}
	if len(messages) < 80 {
		t.Fatalf("found only %d rules", len(messages))
	}
	cases := creationCases()
	for _, u := range updateCases() {
		cases = append(cases, u.ruleCase)
	}
	for m := range messages {
		if !slices.ContainsFunc(cases, func(c ruleCase) bool { return c.want != "" && strings.Contains(fmt.Sprint(m), c.want) }) {
			t.Errorf("no case breaks the rule %q", m)
		}
	}
}

// checkEnd is check for the end of a message, in which % stands for the user.
func checkEnd(t *testing.T, err error, want, user string) {
	t.Helper()
	want = strings.ReplaceAll(want, "%", user)
	check(t, err, want)
	if err != nil && !strings.HasSuffix(err.Error(), want) {
		t.Errorf("refused with %q, want it to end with %q", err, want)
	}
}
