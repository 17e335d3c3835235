// Package reference writes the pages of docs/reference from the code: the commands with their flags, and the fields of
// the kinds. Only tests import it; they compare the pages with the code.
package reference

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// generated stands at the top of each page.
const generated = "<!-- Written by make generate. Change the code that the page tells of, and not the page. -->\n\n"

// Commands is the page of a program: each command, and its flags.
func Commands(root *cobra.Command) string {
	var s strings.Builder
	s.WriteString(generated)
	fmt.Fprintf(&s, "# Flags of %s\n\n%s.\n", root.CommandPath(), root.Short)
	addCommand(&s, root)
	return s.String()
}

func addCommand(s *strings.Builder, cmd *cobra.Command) {
	if cmd.Hidden || cmd.Name() == "help" || cmd.Name() == "version" {
		return
	}
	flags := cmd.NonInheritedFlags()
	rows := 0
	var table strings.Builder
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" || f.Name == "version" {
			return
		}
		rows++
		fmt.Fprintf(&table, "| `--%s` | %s | %s |\n", f.Name, defaultOf(f), cell(f.Usage))
	})
	if cmd.HasParent() || rows > 0 {
		fmt.Fprintf(s, "\n## %s\n", cmd.CommandPath())
	}
	if cmd.HasParent() {
		fmt.Fprintf(s, "\n%s.\n", cell(cmd.Short))
		if cmd.Runnable() {
			fmt.Fprintf(s, "\n    %s\n", strings.TrimSuffix(cmd.UseLine(), " [flags]"))
		}
	}
	if rows > 0 {
		fmt.Fprintf(s, "\n| flag | default | meaning |\n|---|---|---|\n%s", table.String())
	}
	for _, below := range cmd.Commands() {
		addCommand(s, below)
	}
}

// defaultOf is the default of a flag, for a table.
func defaultOf(f *pflag.Flag) string {
	if f.DefValue == "" || f.DefValue == "[]" {
		return ""
	}
	return "`" + f.DefValue + "`"
}

// cell makes words fit a cell of a table.
func cell(words string) string {
	return strings.NewReplacer("|", "\\|", "<", "&lt;", "*", "\\*", "\n", " ").Replace(strings.TrimSpace(words))
}

// foreign are fields whose own fields are Kubernetes', and documented there.
func foreign() []string {
	return []string{"affinity", "tolerations", "resources", "securityContext"}
}

// Fields is the page of the kinds: each field of the spec and of the status. What two kinds have in common is written
// once.
func Fields(crds []*apiextensionsv1.CustomResourceDefinition) string {
	var s strings.Builder
	s.WriteString(generated)
	s.WriteString("# Fields\n\n`kubectl explain certificate.spec` shows the same, on a cluster where Chancery is installed. " +
		"`[]` stands for each\nentry of a list or a map. A field without \"required\" may be left out.\n")
	p := page{out: &s, said: map[string]string{}}
	rank := func(crd *apiextensionsv1.CustomResourceDefinition) int { // what users write comes first
		return slices.Index([]string{"Certificate", "Issuer", "ClusterIssuer", "CertificateRequest", "Order", "Challenge"}, crd.Spec.Names.Kind)
	}
	crds = slices.Clone(crds)
	slices.SortFunc(crds, func(a, b *apiextensionsv1.CustomResourceDefinition) int { return cmp.Compare(rank(a), rank(b)) })
	for _, crd := range crds {
		schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		fmt.Fprintf(&s, "\n## %s\n\n`%s/%s`\n\n| field | type | meaning |\n|---|---|---|\n",
			crd.Spec.Names.Kind, crd.Spec.Group, crd.Spec.Versions[0].Name)
		for _, name := range []string{"spec", "status"} {
			if field, ok := schema.Properties[name]; ok {
				p.add(crd.Spec.Names.Kind, name, &field)
			}
		}
	}
	return s.String()
}

// page remembers where fields have been told of.
type page struct {
	out  *strings.Builder
	said map[string]string // the fields of an object, to the first place that has them
}

func (p *page) add(kind, path string, s *apiextensionsv1.JSONSchemaProps) {
	for s.Items != nil || s.AdditionalProperties != nil {
		path += "[]"
		if s.Items != nil {
			s = s.Items.Schema
		} else {
			s = s.AdditionalProperties.Schema
		}
	}
	names := slices.Sorted(maps.Keys(s.Properties))
	if len(names) > 3 {
		same := fmt.Sprint(path[strings.LastIndex(path, ".")+1:], names)
		if first := p.said[same]; first != "" {
			fmt.Fprintf(p.out, "| `%s.…` | | the fields of %s |\n", path, first)
			return
		}
		p.said[same] = fmt.Sprintf("`%s` of %s", path, kind)
	}
	for _, name := range names {
		field := s.Properties[name]
		at := path + "." + name
		fmt.Fprintf(p.out, "| `%s` | %s | %s |\n", at, typeOf(&field, slices.Contains(s.Required, name)), cell(strings.Join(strings.Fields(field.Description), " ")))
		if !slices.Contains(foreign(), name) {
			p.add(kind, at, &field)
		}
	}
}

// typeOf says what a field takes.
func typeOf(s *apiextensionsv1.JSONSchemaProps, required bool) string {
	words := s.Type
	switch {
	case s.Type == "array" && s.Items != nil:
		words = "list of " + cmp.Or(s.Items.Schema.Type, "any")
	case s.AdditionalProperties != nil:
		words = "map"
	case s.Format != "" && s.Type == "string":
		words = s.Format
	}
	if len(s.Enum) > 0 {
		var values []string
		for _, v := range s.Enum {
			values = append(values, "`"+strings.Trim(string(v.Raw), `"`)+"`")
		}
		words = strings.Join(values, ", ")
	}
	if required {
		words += ", required"
	}
	return words
}
