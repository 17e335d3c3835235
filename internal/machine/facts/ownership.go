package facts

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/pki"
)

// FieldManager is the name under which target Secrets are applied (spec §2.4), so
// that a Secret changes hands between cert-manager and us without a trace.
const FieldManager = "cert-manager-certificates-issuing"

// Ownership is the part of a Secret that FieldManager has applied, as far as its managed fields tell.
type Ownership struct {
	// Known is false where the managed fields are not at hand: then every label and
	// annotation counts as applied.
	Known bool
	// Labels and Annotations that we have applied, with digests of their present values. Our own are left out
	// (IsOurLabel, IsOurAnnotation).
	Labels, Annotations map[string]Digest
	// Owners are the owner references that we have applied.
	Owners []types.UID
	// Rival is who else wrote key or certificate last; empty if nobody did.
	Rival string

	// For the time of reading only: what we have applied of data, of the annotations
	// that follow from the certificate, and whether the label is ours.
	data  fieldSet
	marks []string
	label bool
}

// fieldSet is a set of fields in the form of managedFields (FieldsV1): children by
// name, which starts with "f:" for a field and "k:" for the key of a list's entry.
type fieldSet map[string]fieldSet

func (s fieldSet) names() []string {
	var out []string
	for name := range s {
		if field, ok := strings.CutPrefix(name, "f:"); ok {
			out = append(out, field)
		}
	}
	return out
}

func (s fieldSet) add(other fieldSet) {
	for name, children := range other {
		if s[name] == nil {
			s[name] = fieldSet{}
		}
		s[name].add(children)
	}
}

// ownershipOf reads the managed fields of a target Secret.
func ownershipOf(secret *corev1.Secret) Ownership {
	o := Ownership{Known: len(secret.ManagedFields) > 0}
	ours := fieldSet{}
	var rivalSince *metav1.Time
	for _, entry := range secret.ManagedFields {
		fields := fieldSet{}
		if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue // the API server writes no such entry; what it says is taken for not applied
		}
		data := fields["f:data"]
		switch {
		case entry.Manager == FieldManager:
			ours.add(fields)
		case data["f:"+cmmeta.TLSCertKey] == nil && data["f:"+cmmeta.TLSPrivateKeyKey] == nil:
		case rivalSince == nil || rivalSince.Before(entry.Time):
			o.Rival, rivalSince = entry.Manager, entry.Time
		}
	}
	metadata := ours["f:metadata"]
	labels, annotations := metadata["f:labels"].names(), metadata["f:annotations"].names()
	if !o.Known {
		labels, annotations = keysOf(secret.Labels), keysOf(secret.Annotations)
	}
	o.Labels = digestsOf(secret.Labels, labels, IsOurLabel)
	o.Annotations = digestsOf(secret.Annotations, annotations, IsOurAnnotation)
	o.label = slices.Contains(labels, certmanagerv1.ManagedSecretLabel)
	o.marks = slices.DeleteFunc(annotations, func(k string) bool { return !followsFromCertificate(k) })
	for name := range metadata["f:ownerReferences"] {
		var key struct{ UID types.UID }
		if text, ok := strings.CutPrefix(name, "k:"); ok && json.Unmarshal([]byte(text), &key) == nil {
			o.Owners = append(o.Owners, key.UID)
		}
	}
	o.data = ours["f:data"]
	return o
}

// IsOurLabel reports whether a label is our own: templates cannot set it.
func IsOurLabel(label string) bool {
	return label == certmanagerv1.ManagedSecretLabel || label == certmanagerv1.NextPrivateKeyLabel
}

// IsOurAnnotation reports whether an annotation is our own, and not one of a template.
func IsOurAnnotation(annotation string) bool {
	return annotation == KeystoresAnnotation ||
		strings.HasPrefix(annotation, annotationPrefix) && annotation != certmanagerv1.AllowDirectInjectionAnnotation
}

// followsFromCertificate tells the annotations that say what is in the certificate
// from those that say where it comes from.
func followsFromCertificate(annotation string) bool {
	switch annotation {
	case KeystoresAnnotation, certmanagerv1.CertificateNameAnnotation,
		certmanagerv1.IssuerNameAnnotation, certmanagerv1.IssuerKindAnnotation, certmanagerv1.IssuerGroupAnnotation:
		return false
	default:
		return IsOurAnnotation(annotation)
	}
}

func keysOf(m map[string]string) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	return out
}

func digestsOf(values map[string]string, keys []string, except func(string) bool) map[string]Digest {
	var out map[string]Digest
	for _, k := range keys {
		if except(k) {
			continue
		}
		if out == nil {
			out = map[string]Digest{}
		}
		out[k] = DigestOf(values[k])
	}
	return out
}

// extraKeys are the keys of data beside those of kubernetes.io/tls that we write when
// a Certificate asks for them.
func extraKeys() []string {
	return []string{
		certmanagerv1.DERKeyKey, certmanagerv1.CombinedPEMKey,
		certmanagerv1.PKCS12KeystoreKey, certmanagerv1.PKCS12TruststoreKey, certmanagerv1.JKSKeystoreKey, certmanagerv1.JKSTruststoreKey,
	}
}

// extrasOf looks at the extraKeys that are there.
func extrasOf(data map[string][]byte, o *Ownership) map[string]Extra {
	var out map[string]Extra
	for _, key := range extraKeys() {
		value, ok := data[key]
		if !ok {
			continue
		}
		f := Extra{Owned: !o.Known || o.data["f:"+key] != nil}
		switch key {
		case certmanagerv1.DERKeyKey:
			f.Stale = !bytes.Equal(value, derOf(data[cmmeta.TLSPrivateKeyKey]))
		case certmanagerv1.CombinedPEMKey:
			f.Stale = !bytes.Equal(value, combine(data))
		}
		if out == nil {
			out = map[string]Extra{}
		}
		out[key] = f
	}
	return out
}

// derOf returns the DER of a private key in PEM (spec §2.4); nil if there is none.
func derOf(key []byte) []byte {
	if len(key) > pki.MaxPrivateKeyPEM {
		return nil
	}
	block, _ := pem.Decode(key)
	if block == nil {
		return nil
	}
	return block.Bytes
}

// combine returns key and certificate as one PEM text (spec §2.4).
func combine(data map[string][]byte) []byte {
	return bytes.Join([][]byte{data[cmmeta.TLSPrivateKeyKey], data[cmmeta.TLSCertKey]}, []byte("\n"))
}
