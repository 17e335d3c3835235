package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The group, and the names of its kinds.
const (
	GroupName              = "cert-manager.io"
	Version                = "v1"
	CertificateKind        = "Certificate"
	CertificateRequestKind = "CertificateRequest"
	IssuerKind             = "Issuer"
	ClusterIssuerKind      = "ClusterIssuer"
)

// SchemeGroupVersion returns cert-manager.io/v1.
func SchemeGroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: GroupName, Version: Version}
}

// AddToScheme registers the kinds of this group.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(SchemeGroupVersion(),
		&Certificate{}, &CertificateList{},
		&CertificateRequest{}, &CertificateRequestList{},
		&Issuer{}, &IssuerList{},
		&ClusterIssuer{}, &ClusterIssuerList{},
	)
	metav1.AddToGroupVersion(s, SchemeGroupVersion())
	return nil
}
