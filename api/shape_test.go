package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"chancery.dev/api"
)

// shape is what clients see of a kind beside its fields (spec §1.0).
type shape struct {
	Scope      apiextensionsv1.ResourceScope
	ShortNames string
	Categories string
	Columns    string // ! marks those of priority 1
	Selectable string
	Required   string
}

func shapeOf(crd *apiextensionsv1.CustomResourceDefinition) shape {
	v := crd.Spec.Versions[0]
	s := shape{
		Scope:      crd.Spec.Scope,
		ShortNames: strings.Join(crd.Spec.Names.ShortNames, " "),
		Categories: strings.Join(crd.Spec.Names.Categories, " "),
		Required:   strings.Join(v.Schema.OpenAPIV3Schema.Required, " "),
	}
	for _, c := range v.AdditionalPrinterColumns {
		if c.Type == "date" && c.JSONPath != ".metadata.creationTimestamp" {
			s.Columns += "[kubectl shows <invalid> for a date in the future] "
		}
		s.Columns += fmt.Sprintf("%s%s=%s ", c.Name, strings.Repeat("!", int(c.Priority)), c.JSONPath)
	}
	for _, f := range v.SelectableFields {
		s.Selectable += f.JSONPath + " "
	}
	return s
}

func TestShapeOfKinds(t *testing.T) {
	ready := func(what string) string { return `.status.conditions[?(@.type == "Ready")].` + what }
	const (
		selectable = ".spec.issuerRef.group .spec.issuerRef.kind .spec.issuerRef.name "
		age        = "Age=.metadata.creationTimestamp "
	)
	issuer := "Ready=" + ready("status") + " Status!=" + ready("message") + " " + age
	want := map[string]shape{
		"Certificate": {"Namespaced", "cert certs", "cert-manager",
			"Ready=" + ready("status") + " Secret=.spec.secretName Issuer!=.spec.issuerRef.name Status!=" + ready("message") +
				" Expiration!=.status.notAfter " + age, selectable, ""},
		"CertificateRequest": {"Namespaced", "cr crs", "cert-manager",
			`Approved=.status.conditions[?(@.type == "Approved")].status Denied=.status.conditions[?(@.type == "Denied")].status Ready=` + ready("status") +
				" Issuer=.spec.issuerRef.name Requester=.spec.username Status!=" + ready("message") + " " + age, selectable, ""},
		"Issuer":        {"Namespaced", "iss", "cert-manager", issuer, "", "spec"},
		"ClusterIssuer": {"Cluster", "ciss", "cert-manager", issuer, "", "spec"},
		"Order": {"Namespaced", "", "cert-manager cert-manager-acme",
			"State=.status.state Issuer!=.spec.issuerRef.name Reason!=.status.reason " + age, selectable, "metadata spec"},
		"Challenge": {"Namespaced", "", "cert-manager cert-manager-acme",
			"State=.status.state Domain=.spec.dnsName Reason!=.status.reason " + age, selectable, "metadata spec"},
	}
	crds, err := api.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]shape{}
	for _, crd := range crds {
		got[crd.Spec.Names.Kind] = shapeOf(crd)
		v := crd.Spec.Versions
		if len(v) != 1 || v[0].Name != "v1" || !v[0].Served || !v[0].Storage || v[0].Subresources.Status == nil {
			t.Errorf("%s: want the one version v1, served and stored, with a status subresource", crd.Name)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("shapes (-want +got):\n%s", diff)
	}
}

// TestListsAndDefaults checks that each list says how it merges, and that no other default is stored than
// those of spec §1.0, and one of ours.
func TestListsAndDefaults(t *testing.T) {
	crds, err := api.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	defaults := map[string]string{}
	for _, crd := range crds {
		walk(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, nil, func(path []string, s *apiextensionsv1.JSONSchemaProps) {
			at := crd.Spec.Names.Kind + " " + strings.Join(path, ".")
			if s.Default != nil {
				defaults[strings.Join(path[max(0, len(path)-3):], ".")] = string(s.Default.Raw)
			}
			if s.Type != "array" || path[len(path)-1] == "*" { // a list in a map cannot say it
				return
			}
			want := "atomic"
			if path[len(path)-1] == "conditions" {
				want = "map"
				if !slices.Equal(s.XListMapKeys, []string{"type"}) {
					t.Errorf("%s: keys %v", at, s.XListMapKeys)
				}
			}
			if s.XListType == nil || *s.XListType != want {
				t.Errorf("%s: the list type is not %s", at, want)
			}
		})
	}
	want := map[string]string{
		"gatewayHTTPRoute.parentRefs.group":  `"gateway.networking.k8s.io"`,
		"gatewayHTTPRoute.parentRefs.kind":   `"Gateway"`,
		"spec.imagePullSecrets.name":         `""`,
		"spec.acme.renewalInformationSource": `"ARI"`,
		"status":                             `{"observedGeneration":0}`, // ours: nobody has looked yet (kstatus)
	}
	if diff := cmp.Diff(want, defaults); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
}

// walk visits all schemas below one.
func walk(s *apiextensionsv1.JSONSchemaProps, path []string, visit func([]string, *apiextensionsv1.JSONSchemaProps)) {
	visit(path, s)
	for name, p := range s.Properties {
		walk(&p, append(slices.Clone(path), name), visit)
	}
	if s.Items != nil {
		walk(s.Items.Schema, path, visit)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		walk(s.AdditionalProperties.Schema, append(slices.Clone(path), "*"), visit)
	}
}

func TestFieldSelectors(t *testing.T) {
	d := client(t)
	for _, issuer := range []string{"selected", "other"} {
		o := base(t, "certificate")
		o.SetName("of-" + issuer)
		edit(t, o, changes{"spec.issuerRef.name": issuer})
		if _, err := resourceFor(d, o).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := resourceFor(d, base(t, "certificate")).List(t.Context(),
		metav1.ListOptions{FieldSelector: "spec.issuerRef.name=selected"})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].GetName() != "of-selected" {
		t.Errorf("%d Certificates selected, want of-selected alone", len(list.Items))
	}
}
