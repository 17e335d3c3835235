package v1

import (
	"bytes"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
)

// Equal compares objects of the API, or parts of them, as equality.Semantic of Kubernetes does: an empty list or map is
// equal to none. It compares bytes at once, where equality.Semantic takes 140 ns for each of them: too long for what
// tenants choose the size of, as the configuration of a webhook.
func Equal(a, b any) bool { return semantic.DeepEqual(a, b) }

var semantic = conversion.EqualitiesOrDie(
	bytes.Equal,
	func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 },
	func(a, b metav1.Time) bool { return a.Equal(&b) },
	func(a, b metav1.MicroTime) bool { return a.Equal(&b) },
)
