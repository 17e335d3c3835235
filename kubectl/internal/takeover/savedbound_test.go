package takeover

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSavedIsBounded: who may write a Secret beside those that were saved puts a MiB there that unpacks to a GiB.
func TestSavedIsBounded(t *testing.T) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for range 4 * maxSaved >> 20 {
		if _, err := z.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := unpacked(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{savedOf: "/v1/ConfigMap/ns/name"}}, Data: map[string][]byte{savedKey: b.Bytes()},
	})
	if err == nil || !strings.Contains(err.Error(), "longer than 8 MiB") {
		t.Error(err)
	}
}
