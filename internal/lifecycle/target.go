package lifecycle

import (
	"crypto"
	"crypto/x509"
	"maps"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/pki"
)

// annotationPrefix is that of the annotations on a target Secret.
const annotationPrefix = certmanagerv1.GroupName + "/"

// ManagedAnnotations returns the annotations of a target Secret that say which
// certificate it holds, for whom, and by whom it was issued (spec §2.4). The
// issuer is given as its request has it.
func ManagedAnnotations(certificate string, issuer cmmeta.IssuerReference, leaf *x509.Certificate) map[string]string {
	a := map[string]string{certmanagerv1.CertificateNameAnnotation: certificate}
	if issuer != (cmmeta.IssuerReference{}) {
		a[certmanagerv1.IssuerNameAnnotation] = issuer.Name
		a[certmanagerv1.IssuerKindAnnotation] = issuer.Kind
		a[certmanagerv1.IssuerGroupAnnotation] = issuer.Group
	}
	if leaf == nil {
		return a
	}
	for name, value := range pki.CertificateDetails(leaf) {
		a[annotationPrefix+name] = value
	}
	return a
}

// TargetMetadata returns the labels and annotations that a target Secret is to
// have: those of the template, overruled by our own.
func TargetMetadata(crt *certmanagerv1.Certificate, issuer cmmeta.IssuerReference, leaf *x509.Certificate) (labels, annotations map[string]string) {
	labels, annotations = map[string]string{}, map[string]string{}
	if t := crt.Spec.SecretTemplate; t != nil {
		maps.Copy(labels, t.Labels)
		maps.Copy(annotations, t.Annotations)
	}
	labels[certmanagerv1.ManagedSecretLabel] = certmanagerv1.LabelTrue
	maps.Copy(annotations, ManagedAnnotations(crt.Name, issuer, leaf))
	return labels, annotations
}

// TargetData returns the data of a target Secret: the chain and the CA as the
// issuer gave them, and the key in the encoding that the spec asks for.
func TargetData(crt *certmanagerv1.Certificate, r *certmanagerv1.CertificateRequest, key crypto.Signer) (map[string][]byte, error) {
	encoding := ""
	if p := crt.Spec.PrivateKey; p != nil {
		encoding = string(p.Encoding)
	}
	text, err := pki.EncodePrivateKey(key, encoding)
	if err != nil {
		return nil, err
	}
	data := map[string][]byte{cmmeta.TLSCertKey: r.Status.Certificate, cmmeta.TLSPrivateKeyKey: text}
	if len(r.Status.CA) > 0 {
		data[cmmeta.TLSCAKey] = r.Status.CA
	}
	return data, nil
}
