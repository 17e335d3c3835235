package v1

import (
	"bytes"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestEqual: what has the same meaning is equal, as for equality.Semantic, and bytes are compared.
func TestEqual(t *testing.T) {
	t.Parallel()
	now := time.Unix(1, 0).In(time.FixedZone("east", 3600))
	for name, c := range map[string]struct {
		a, b any
		want bool
	}{
		"an empty list and none": {[]string{}, []string(nil), true},
		"empty bytes and none":   {&corev1.Secret{Data: map[string][]byte{"a": {}}}, &corev1.Secret{Data: map[string][]byte{"a": nil}}, true},
		"quantities":             {resource.MustParse("1"), resource.MustParse("1000m"), true},
		"times":                  {metav1.NewTime(now), metav1.NewTime(now.UTC()), true},
		"short times":            {metav1.NewMicroTime(now), metav1.NewMicroTime(now.Add(1)), false},
		"the same bytes":         {[]byte("abc"), []byte("abc"), true},
		"other bytes":            {&corev1.Secret{Data: map[string][]byte{"a": []byte("abc")}}, &corev1.Secret{Data: map[string][]byte{"a": []byte("abd")}}, false},
		"more bytes":             {[]byte("abc"), []byte("abcd"), false},
		"other types":            {[]byte("abc"), "abc", false},
	} {
		if got := Equal(c.a, c.b); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestEqualComparesBytesAtOnce: the number of bytes is that of a tenant. By reflection each takes an allocation.
func TestEqualComparesBytesAtOnce(t *testing.T) {
	a, b := bytes.Repeat([]byte("x"), 1<<16), bytes.Repeat([]byte("x"), 1<<16)
	if n := testing.AllocsPerRun(3, func() { Equal(a, b) }); n > 100 {
		t.Errorf("%.0f allocations for %d bytes", n, len(a))
	}
}
