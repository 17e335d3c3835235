package facts

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FuzzManagedFields: whatever another manager's entry says, it gives us no field of a Secret, and what our own entry
// says is read the same beside it.
func FuzzManagedFields(f *testing.F) {
	const ours = `{"f:data":{"f:tls.crt":{}},"f:metadata":{"f:labels":{"f:a":{}},"f:ownerReferences":{"k:{\"uid\":\"1\"}":{}}}}`
	f.Add([]byte(ours), []byte(`{"f:data":{"f:tls.key":{}}}`))
	f.Add([]byte(`{"f:metadata":{"f:ownerReferences":{"k:{\"UID\":5}":{}}}}`), []byte(`{"f:data":null}`))
	f.Add([]byte(`{"":{"":{"":{}}}}`), []byte(`[]`))
	f.Fuzz(func(t *testing.T, ours, others []byte) {
		entry := func(manager string, fields []byte) metav1.ManagedFieldsEntry {
			return metav1.ManagedFieldsEntry{Manager: manager, FieldsV1: metav1.NewFieldsV1(string(fields))}
		}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"a": "b"},
			ManagedFields: []metav1.ManagedFieldsEntry{entry("another", others)},
		}}
		if o := ownershipOf(secret); !o.Known || len(o.Labels)+len(o.Annotations)+len(o.Owners)+len(o.data) > 0 {
			t.Errorf("another manager's %s is taken for ours: %+v", others, o)
		}
		secret.ManagedFields = append(secret.ManagedFields, entry(FieldManager, ours))
		both := ownershipOf(secret)
		secret.ManagedFields = secret.ManagedFields[1:]
		alone := ownershipOf(secret)
		if len(both.Owners) != len(alone.Owners) || len(both.Labels) != len(alone.Labels) || len(both.data) != len(alone.data) {
			t.Errorf("%s is read as %+v, and beside %s as %+v", ours, alone, others, both)
		}
		if len(alone.Owners) > len(ours) {
			t.Errorf("%d owners of %d bytes", len(alone.Owners), len(ours))
		}
	})
}
