package signer

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
)

// Annotations returns those annotations of an issuer or a request that Sign, Probe and Account of a Remote read. A
// change of any other annotation, which tools make again and again, ends no back-off.
func Annotations(of metav1.Object) map[string]string {
	out := map[string]string{}
	for _, key := range []string{
		acmev1.RotateAccountKeyAnnotation,
		certmanagerv1.VenafiCustomFieldsAnnotation, certmanagerv1.CSRVenafiCustomFieldsAnnotation,
		certmanagerv1.VenafiPickupIDAnnotation, certmanagerv1.CSRVenafiPickupIDAnnotation,
	} {
		if value, ok := of.GetAnnotations()[key]; ok {
			out[key] = value
		}
	}
	return out
}
