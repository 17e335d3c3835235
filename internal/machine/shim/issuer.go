package shim

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
)

// Triggered reports whether annotations ask for certificates: one names an issuer, or one of auto is true.
func Triggered(annotations map[string]string, auto []string) bool {
	_, issuer := annotations[certmanagerv1.IngressIssuerAnnotation]
	_, clusterIssuer := annotations[certmanagerv1.IngressClusterIssuerAnnotation]
	return issuer || clusterIssuer || slices.ContainsFunc(auto, func(key string) bool {
		on, err := strconv.ParseBool(annotations[key])
		return err == nil && on
	})
}

// autoOf returns the annotations that ask for certificates of the default issuer: only an Ingress has them.
func autoOf(kind string, s Settings) []string {
	if kind != KindIngress {
		return nil
	}
	return s.AutoAnnotations
}

// issuerOf returns the issuer that annotations name, or the default one.
func issuerOf(annotations map[string]string, s Settings) (cmmeta.IssuerReference, error) {
	ref := s.DefaultIssuer
	issuer, hasIssuer := annotations[certmanagerv1.IngressIssuerAnnotation]
	clusterIssuer, hasClusterIssuer := annotations[certmanagerv1.IngressClusterIssuerAnnotation]
	kind, hasKind := annotations[certmanagerv1.IssuerKindAnnotation]
	group, hasGroup := annotations[certmanagerv1.IssuerGroupAnnotation]
	switch {
	case hasIssuer && hasClusterIssuer:
		return ref, fmt.Errorf("both %s and %s are set: remove one", certmanagerv1.IngressIssuerAnnotation, certmanagerv1.IngressClusterIssuerAnnotation)
	case hasClusterIssuer && (hasKind || hasGroup):
		return ref, fmt.Errorf("%s means kind %s of group %s: remove %s and %s, or use them with %s", certmanagerv1.IngressClusterIssuerAnnotation,
			cmmeta.ClusterIssuerKind, cmmeta.DefaultIssuerGroup, certmanagerv1.IssuerKindAnnotation, certmanagerv1.IssuerGroupAnnotation, certmanagerv1.IngressIssuerAnnotation)
	case hasIssuer:
		ref.Name, ref.Kind = issuer, cmmeta.DefaultIssuerKind
	case hasClusterIssuer:
		ref.Name, ref.Kind = clusterIssuer, cmmeta.ClusterIssuerKind
	}
	if hasKind && kind != "" {
		ref.Kind = kind
	}
	if hasGroup && group != "" {
		ref.Group = group
	}
	if ref.Name == "" {
		if hasIssuer || hasClusterIssuer {
			return ref, errors.New("the name of the issuer is empty")
		}
		return ref, fmt.Errorf("no issuer is named, and there is no default issuer: set %s, or run the controller with --default-issuer-name",
			certmanagerv1.IngressClusterIssuerAnnotation)
	}
	ref.Kind, ref.Group = ref.KindOrDefault(), ref.GroupOrDefault()
	return ref, nil
}
