package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The group, and the names of its kinds.
const (
	GroupName     = "acme.cert-manager.io"
	Version       = "v1"
	OrderKind     = "Order"
	ChallengeKind = "Challenge"
)

// SchemeGroupVersion returns acme.cert-manager.io/v1.
func SchemeGroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: GroupName, Version: Version}
}

// AddToScheme registers the kinds of this group.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(SchemeGroupVersion(), &Order{}, &OrderList{}, &Challenge{}, &ChallengeList{})
	metav1.AddToGroupVersion(s, SchemeGroupVersion())
	return nil
}
