package takeover

import (
	"bytes"
	"compress/gzip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/bounds"
)

// TestSavedIsBounded: who may write a Secret beside those that were saved puts a MiB there that unpacks to a GiB.
func TestSavedIsBounded(t *testing.T) {
	const object = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":"name"}}`
	bounds.Holds(t, "saved object", func(n int) limits.Outcome {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := z.Write(append([]byte(object), bytes.Repeat([]byte(" "), n-len(object))...)); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		_, err := unpacked(&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{savedOf: "/v1/ConfigMap/ns/name"}}, Data: map[string][]byte{savedKey: b.Bytes()},
		})
		return bounds.Refusal(t, err, "longer than 8 MiB")
	})
}
