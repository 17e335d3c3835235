package venafi

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/Venafi/vcert/v5/pkg/certificate"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
)

// origin tells the server which software asks (spec appendix D).
const origin = "cert-manager"

// plainField is the one type of custom fields.
const plainField = "Plain"

// field is one entry of the annotation (spec appendix D).
type field struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Type  string `json:"type"`
}

// customFields merges the custom fields of an issuer with those of a request, which replace the issuer's of the same
// name (spec §3.4), and adds the origin. The first of keys that the request has counts.
func customFields(issuer, request map[string]string, keys []string) ([]certificate.CustomField, error) {
	general, err := parseFields(issuer[certmanagerv1.VenafiCustomFieldsAnnotation])
	if err != nil {
		return nil, fmt.Errorf("annotation %s of the issuer: %w", certmanagerv1.VenafiCustomFieldsAnnotation, err)
	}
	var own []field
	for _, key := range keys {
		if text := request[key]; text != "" {
			if own, err = parseFields(text); err != nil {
				return nil, fmt.Errorf("annotation %s of the request: %w", key, err)
			}
			break
		}
	}
	replaced := make(map[string]bool, len(own))
	for _, f := range own {
		replaced[f.Name] = true
	}
	general = slices.DeleteFunc(general, func(g field) bool { return replaced[g.Name] })
	fields := []certificate.CustomField{{Type: certificate.CustomFieldOrigin, Name: "Origin", Value: origin}}
	for _, f := range append(general, own...) {
		fields = append(fields, certificate.CustomField{Type: certificate.CustomFieldPlain, Name: f.Name, Value: f.Value})
	}
	return fields, nil
}

func parseFields(text string) ([]field, error) {
	if text == "" {
		return nil, nil
	}
	var fields []field
	if err := json.Unmarshal([]byte(text), &fields); err != nil {
		return nil, fmt.Errorf("%w: it must be a JSON list like [{\"name\": \"Cost center\", \"value\": \"42\"}]", err)
	}
	for i, f := range fields {
		switch {
		case f.Name == "":
			return nil, fmt.Errorf("entry %d has no name", i+1)
		case f.Type != "" && f.Type != plainField:
			return nil, fmt.Errorf("entry %d, %q, is of the type %q: only %s is known", i+1, f.Name, f.Type, plainField)
		}
	}
	if fields == nil {
		return nil, errors.New("it is null: leave the annotation out instead")
	}
	return fields, nil
}
