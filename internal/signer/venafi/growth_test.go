package venafi

import (
	"encoding/json"
	"fmt"
	"testing"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/rig/growth"
)

// TestFieldsGrow: custom fields are merged at a cost that grows with their number. The annotations of an object have
// room for some five thousand.
func TestFieldsGrow(t *testing.T) {
	const most = 5000
	growth.Linear(t, most, func(n int) func() {
		annotation := func(name string) map[string]string {
			var fields []field
			for i := range n {
				fields = append(fields, field{Name: fmt.Sprintf("%s-%d", name, i), Value: "x"})
			}
			text, err := json.Marshal(fields)
			if err != nil {
				t.Fatal(err)
			}
			return map[string]string{certmanagerv1.VenafiCustomFieldsAnnotation: string(text)}
		}
		issuer, request := annotation("issuer"), annotation("request")
		return func() {
			got, err := customFields(issuer, request, []string{certmanagerv1.VenafiCustomFieldsAnnotation})
			if err != nil || len(got) != 2*n+1 {
				t.Fatal(len(got), err)
			}
		}
	})
}
