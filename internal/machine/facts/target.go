package facts

import (
	"crypto"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/pki"
)

// annotationPrefix is that of the annotations on a target Secret.
const annotationPrefix = certmanagerv1.GroupName + "/"

// Target is what a target Secret is to be made of.
type Target struct {
	// Certificate that it is for.
	Certificate *certmanagerv1.Certificate
	// Issuer as the request names it; zero for nobody.
	Issuer cmmeta.IssuerReference
	// Chain and CA are PEM as the issuer gave them; CA may be empty.
	Chain, CA []byte
	// Key is the private key in PEM, in the encoding it is to have; see EncodeKey.
	Key []byte
	// Passwords of the keystores.
	Passwords Passwords
	// OwnerReference makes the Certificate own the Secret.
	OwnerReference bool
}

// OwnedBy returns the reference with which a Certificate controls an object.
func OwnedBy(crt *certmanagerv1.Certificate) metav1.OwnerReference {
	return *metav1.NewControllerRef(crt, certmanagerv1.SchemeGroupVersion().WithKind(certmanagerv1.CertificateKind))
}

// EncodeKey returns a private key in the encoding that a Certificate asks for.
func EncodeKey(crt *certmanagerv1.Certificate, key crypto.Signer) ([]byte, error) {
	encoding := ""
	if p := crt.Spec.PrivateKey; p != nil {
		encoding = string(p.Encoding)
	}
	return pki.EncodePrivateKey(key, encoding)
}

// RepairOf returns the target with which a Secret is written again as its Certificate wants it now: the key, the
// certificate and the name of the issuer stay (spec §2.6). Older roots and links go where they are to be dropped.
func RepairOf(crt *certmanagerv1.Certificate, secret *corev1.Secret, roots OlderRoots) Target {
	f := &Secret{}
	f.readIssuance(secret.Annotations)
	t := Target{
		Certificate: crt, Issuer: f.Issuer,
		Chain: secret.Data[cmmeta.TLSCertKey], CA: secret.Data[cmmeta.TLSCAKey], Key: secret.Data[cmmeta.TLSPrivateKeyKey],
	}
	if ca, err := pki.DecodeBundle(t.CA); err == nil && roots == DropOlderRoots {
		t.CA = pki.EncodeCertificates(ca[0])
	}
	return t
}

// Secret returns everything that we manage of a target Secret (spec §2.4), so that
// whatever is left out disappears when it is applied.
func (t Target) Secret() (*corev1.Secret, error) {
	leaf, err := DecodeLeaf(t.Chain)
	if err != nil {
		return nil, fmt.Errorf("the certificate cannot be read: %w", err)
	}
	secret := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: t.Certificate.Namespace, Name: t.Certificate.Spec.SecretName},
		Type:       corev1.SecretTypeTLS,
	}
	secret.Labels, secret.Annotations = t.metadata(leaf)
	if t.OwnerReference {
		secret.OwnerReferences = []metav1.OwnerReference{OwnedBy(t.Certificate)}
	}
	secret.Data, err = t.data()
	return secret, err
}

// metadata returns the labels and annotations: those of the template, overruled by our
// own.
func (t Target) metadata(leaf *x509.Certificate) (labels, annotations map[string]string) {
	labels, annotations = map[string]string{}, map[string]string{}
	if template := t.Certificate.Spec.SecretTemplate; template != nil {
		maps.Copy(labels, template.Labels)
		delete(labels, certmanagerv1.NextPrivateKeyLabel) // what has it is ours to delete
		maps.Copy(annotations, template.Annotations)
	}
	labels[certmanagerv1.ManagedSecretLabel] = certmanagerv1.LabelTrue
	annotations[certmanagerv1.CertificateNameAnnotation] = t.Certificate.Name
	if t.Issuer != (cmmeta.IssuerReference{}) {
		annotations[certmanagerv1.IssuerNameAnnotation] = t.Issuer.Name
		annotations[certmanagerv1.IssuerKindAnnotation] = t.Issuer.Kind
		annotations[certmanagerv1.IssuerGroupAnnotation] = t.Issuer.Group
	}
	for name, value := range pki.CertificateDetails(leaf) {
		annotations[annotationPrefix+name] = value
	}
	facts := &Secret{}
	if facts.readKey(t.Key); facts.KeyError == nil {
		if mark := KeystoreMark(facts.Seal, OfLeaf(leaf).ID, &t.Certificate.Spec, t.Passwords); mark != "" {
			annotations[KeystoresAnnotation] = mark
		}
	}
	return labels, annotations
}

func (t Target) data() (map[string][]byte, error) {
	data := map[string][]byte{cmmeta.TLSCertKey: t.Chain, cmmeta.TLSPrivateKeyKey: t.Key}
	if len(t.CA) > 0 {
		data[cmmeta.TLSCAKey] = t.CA
	}
	for _, format := range t.Certificate.Spec.AdditionalOutputFormats {
		switch format.Type {
		case certmanagerv1.OutputFormatDER:
			data[certmanagerv1.DERKeyKey] = derOf(t.Key)
		case certmanagerv1.OutputFormatCombinedPEM:
			data[certmanagerv1.CombinedPEMKey] = combine(data)
		}
	}
	if !WantsKeystores(&t.Certificate.Spec) {
		return data, nil
	}
	return data, t.addKeystores(data)
}

// addKeystores adds the keystores that the Certificate wants (spec §2.4).
func (t Target) addKeystores(data map[string][]byte) error {
	if t.Passwords.Error != nil {
		return t.Passwords.Error
	}
	store, err := KeystoreOf(t.Chain, t.CA)
	if err != nil {
		return err
	}
	if store.Key, err = pki.DecodePrivateKey(t.Key); err != nil {
		return err
	}
	if t.Certificate.Spec.IsCA && len(store.CA) <= pki.MaxRoots { // a CA has links in ca.crt
		store.CA, _ = pki.SplitLinks(store.CA)
	}
	wanted := WantedExtras(&t.Certificate.Spec, len(store.CA) > 0)
	for _, made := range []struct {
		key    string
		encode func() ([]byte, error)
	}{
		{certmanagerv1.JKSKeystoreKey, func() ([]byte, error) { return pki.EncodeJKS(t.jks(store)) }},
		{certmanagerv1.JKSTruststoreKey, func() ([]byte, error) { return pki.EncodeJKSTruststore(t.jks(store)) }},
		{certmanagerv1.PKCS12KeystoreKey, func() ([]byte, error) { return pki.EncodePKCS12(t.pkcs12(store)) }},
		{certmanagerv1.PKCS12TruststoreKey, func() ([]byte, error) { return pki.EncodePKCS12Truststore(t.pkcs12(store)) }},
	} {
		if !slices.Contains(wanted, made.key) {
			continue
		}
		if data[made.key], err = made.encode(); err != nil {
			return fmt.Errorf("%s: %w", made.key, err)
		}
	}
	return nil
}

func (t Target) jks(store pki.Keystore) pki.Keystore {
	store.Password, store.Alias = t.Passwords.JKS, aliasOf(t.Certificate.Spec.Keystores.JKS)
	if store.Alias == "" {
		store.Alias = certmanagerv1.DefaultJKSAlias
	}
	return store
}

func (t Target) pkcs12(store pki.Keystore) (pki.Keystore, pki.PKCS12Profile) {
	store.Password = t.Passwords.PKCS12
	return store, pki.PKCS12Profile(t.Certificate.Spec.Keystores.PKCS12.Profile)
}
