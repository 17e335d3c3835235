// Package facts reads the objects of a Certificate, and extracts the facts that decisions need. These objects are the
// Secret, the next private key and the CertificateRequests. The package also finds how these objects differ from the
// spec of the Certificate, and what the content of the Secret must be.
//
// The package is pure. internal/machine/certificate makes the decisions. No fact holds a private key.
package facts

import (
	"bytes"
	"crypto"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/pki"
)

// Digest is the SHA-256 of what is compared, and need not be kept.
type Digest [sha256.Size]byte

// DigestOf returns the digest of a text.
func DigestOf(text string) Digest { return sha256.Sum256([]byte(text)) }

// Secret is what decisions need to know of a target Secret: never a key, and
// nothing of its bytes. Ten thousand of them are at hand at any time.
type Secret struct {
	// Version is the Secret's resourceVersion.
	Version string
	// Empty says that the Secret has no data at all.
	Empty bool
	// HasKey, HasCertificate and HasCA say whether tls.key, tls.crt and ca.crt are there.
	HasKey, HasCertificate, HasCA bool
	// Key is the public key of tls.key; KeyError says why it cannot be decoded.
	Key      pki.PublicKeyFacts
	KeyError error
	// Leaf is the first certificate of tls.crt; nil with CertificateError where it
	// cannot be decoded.
	Leaf             *Leaf
	CertificateError error
	// Roots is how many certificates are in ca.crt. The first is the root of the leaf's chain.
	Roots int
	// AuthoritiesEnd is when the first CA certificate expires of those above the leaf, its root included, which is the
	// first in ca.crt; zero if there is none.
	AuthoritiesEnd time.Time
	// CrossBegin and CrossEnd are the validity of the first to expire of the other certificates in tls.crt, by which
	// verifiers reach other roots; zero if there is none.
	CrossBegin, CrossEnd time.Time

	// CertificateName is the Certificate that the annotations name, Named whether they do.
	CertificateName string
	Named           bool
	// Issuer is the issuer that the annotations name, as they spell it; IssuerSaid
	// whether they name any part of it.
	Issuer     cmmeta.IssuerReference
	IssuerSaid bool
	// MarksWrong says that labels or annotations of our own, which follow from the
	// certificate, are not what they should be.
	MarksWrong bool
	// Ownership says which part of the Secret we have applied, as far as is known.
	Ownership Ownership
	// Extras are the further keys of data that we may write, as far as they are there.
	Extras map[string]Extra
	// KeystoreMark is the annotation that says what the keystores were made of. Seal is the key of such marks: it is
	// computed from the private key.
	KeystoreMark string
	Seal         Digest
	// Owner is the Certificate that the Secret says controls it; nil for none.
	Owner *metav1.OwnerReference
}

// Extra is what is known of one further key of data.
type Extra struct {
	// Stale says that the value does not follow from tls.key and tls.crt.
	Stale bool
	// Owned says that we have applied it.
	Owned bool
}

// Leaf is what decisions need to know of a certificate.
type Leaf struct {
	// ID tells the certificate from all others.
	ID Digest
	// NotBefore and NotAfter are its validity.
	NotBefore, NotAfter time.Time
	// Key is its public key.
	Key pki.PublicKeyFacts
	// CommonName and Names are whom it is for.
	CommonName string
	Names      pki.AltNames
	// IssuerName is the digest of its issuer's name in DER, and AuthorityKeyID the issuer's key as the certificate
	// names it (RFC 5280 §4.2.1.1); may be empty.
	IssuerName     Digest
	AuthorityKeyID string
	// IssuerKey is the digest of the SubjectPublicKeyInfo of the CA certificate that was delivered with it; zero if
	// there is none with the issuer's name and key identifier.
	IssuerKey Digest
	// Uses is what it may be used for.
	Uses pki.Uses
	// Temporary says that nobody is to trust it (spec §2.4).
	Temporary bool
}

// OfLeaf returns the facts of a certificate.
func OfLeaf(c *x509.Certificate) *Leaf {
	names, err := pki.CertificateAltNames(c)
	if err != nil {
		names.OtherNames = nil // they are not compared
	}
	return &Leaf{
		ID: sha256.Sum256(c.Raw), NotBefore: c.NotBefore, NotAfter: c.NotAfter, Key: pki.FactsOfKey(c.PublicKey),
		CommonName: c.Subject.CommonName, Names: names, Uses: pki.UsesOf(c),
		IssuerName: sha256.Sum256(c.RawIssuer), AuthorityKeyID: string(c.AuthorityKeyId), Temporary: pki.IsTemporary(c),
	}
}

// OfSecret reads the facts from a Secret, once for each version of it.
func OfSecret(secret *corev1.Secret) *Secret {
	f := &Secret{Version: secret.ResourceVersion, Empty: len(secret.Data) == 0}
	key, chain, ca := secret.Data[cmmeta.TLSPrivateKeyKey], secret.Data[cmmeta.TLSCertKey], secret.Data[cmmeta.TLSCAKey]
	f.HasKey, f.HasCertificate, f.HasCA = len(key) > 0, len(chain) > 0, len(ca) > 0
	f.readIssuance(secret.Annotations)
	f.Owner = certificateOwner(secret.OwnerReferences)
	f.Ownership = ownershipOf(secret)
	f.KeystoreMark = secret.Annotations[KeystoresAnnotation]
	if f.HasKey {
		f.readKey(key)
	}
	var leaf *x509.Certificate
	var rest []byte
	if f.HasCertificate {
		if leaf, rest, f.CertificateError = pki.FirstOf(chain); f.CertificateError == nil {
			f.Leaf = OfLeaf(leaf)
			f.MarksWrong = marksWrong(secret, &f.Ownership, leaf)
		}
	}
	f.readAuthorities(leaf, rest, ca)
	f.Extras = extrasOf(secret.Data, &f.Ownership)
	f.Ownership.data, f.Ownership.marks = nil, nil
	return f
}

// OfIssued returns the facts of the Secret of a Certificate after the chain of an issued request is stored in it.
func OfIssued(certificate string, key pki.PublicKeyFacts, chain []byte, r *certmanagerv1.CertificateRequest) *Secret {
	f := &Secret{
		HasKey: true, HasCertificate: true, Key: key,
		CertificateName: certificate, Named: true, Issuer: r.Spec.IssuerRef, IssuerSaid: true,
	}
	leaf, rest, err := pki.FirstOf(chain)
	if f.CertificateError = err; err == nil {
		f.Leaf = OfLeaf(leaf)
		f.readAuthorities(leaf, rest, r.Status.CA)
	}
	return f
}

func (f *Secret) readKey(text []byte) {
	key, err := pki.DecodePrivateKey(text)
	if err != nil {
		f.KeyError = err
		return
	}
	f.Key = pki.FactsOfKey(key.Public())
	mac := hmac.New(sha256.New, text)
	mac.Write([]byte(KeystoresAnnotation))
	f.Seal = Digest(mac.Sum(nil))
}

func (f *Secret) readIssuance(annotations map[string]string) {
	f.CertificateName, f.Named = annotations[certmanagerv1.CertificateNameAnnotation]
	var named, kinded, grouped bool
	f.Issuer.Name, named = annotations[certmanagerv1.IssuerNameAnnotation]
	f.Issuer.Kind, kinded = annotations[certmanagerv1.IssuerKindAnnotation]
	f.Issuer.Group, grouped = annotations[certmanagerv1.IssuerGroupAnnotation]
	f.IssuerSaid = named || kinded || grouped
}

func certificateOwner(refs []metav1.OwnerReference) *metav1.OwnerReference {
	for i := range refs {
		if refs[i].Kind == certmanagerv1.CertificateKind && strings.HasPrefix(refs[i].APIVersion, certmanagerv1.GroupName+"/") {
			return refs[i].DeepCopy()
		}
	}
	return nil
}

// marksWrong compares the label and the annotations that follow from a certificate
// with those of its Secret (spec §2.6, 1 to 3).
func marksWrong(secret *corev1.Secret, o *Ownership, leaf *x509.Certificate) bool {
	if secret.Labels[certmanagerv1.ManagedSecretLabel] != certmanagerv1.LabelTrue || !o.label {
		return true
	}
	details := pki.CertificateDetails(leaf)
	for name, want := range details {
		key := annotationPrefix + name
		if got, ok := secret.Annotations[key]; !ok || got != want || !slices.Contains(o.marks, key) {
			return true
		}
	}
	return o.Known && len(o.marks) != len(details)
}

// readAuthorities reads the CA certificates in PEM that a leaf was delivered with, in tls.crt and ca.crt. Of those in
// ca.crt, the first is the root of the leaf's chain, and the others are roots of other CAs. Text that cannot be read
// says nothing.
func (f *Secret) readAuthorities(leaf *x509.Certificate, chain, ca []byte) {
	above, _ := pki.DecodeChain(chain)
	roots, _ := pki.DecodeChain(ca)
	f.Roots = len(roots)
	roots = roots[:min(len(roots), 1)]
	if f.Leaf == nil {
		f.AuthoritiesEnd = pki.FirstEnd(roots)
		return
	}
	path, cross := above, []*x509.Certificate(nil)
	if len(roots) > 0 {
		path, cross = pki.SplitPath(leaf, above, roots[0])
	}
	f.AuthoritiesEnd = pki.FirstEnd(slices.Concat(path, roots))
	if first := pki.FirstToExpire(cross); first != nil {
		f.CrossBegin, f.CrossEnd = first.NotBefore, first.NotAfter
	}
	for _, c := range slices.Concat(above, roots) {
		if pki.SignedByName(leaf, c) {
			f.Leaf.IssuerKey = sha256.Sum256(c.RawSubjectPublicKeyInfo)
		}
	}
}

// DecodeLeaf decodes the first certificate of a PEM chain of at most pki.MaxChainPEM bytes.
func DecodeLeaf(text []byte) (*x509.Certificate, error) {
	leaf, _, err := pki.FirstOf(text)
	return leaf, err
}

// Key is what decisions need to know of a next-private-key Secret.
type Key struct {
	// Name of the Secret.
	Name string
	// Public is the public key of its tls.key; Error says why it cannot be decoded.
	Public pki.PublicKeyFacts
	Error  error
}

// HeldKey is what decisions need to know of a private key in memory.
type HeldKey struct {
	// Public is its public key.
	Public pki.PublicKeyFacts
	// Issuing is Action.Unsaid of the Action that made the key.
	Issuing certmanagerv1.CertificateCondition
	// Refused says that what is issued for the key cannot be stored, so that the key is to get a Secret.
	Refused bool
}

// OfKey reads the facts from a next-private-key Secret.
func OfKey(secret *corev1.Secret) Key {
	f := Key{Name: secret.Name}
	var key crypto.Signer
	if key, f.Error = pki.DecodePrivateKey(secret.Data[cmmeta.TLSPrivateKeyKey]); f.Error == nil {
		f.Public = pki.FactsOfKey(key.Public())
	}
	return f
}

// Request is a CertificateRequest of the Certificate with what its PKCS#10
// request says; Error says why that cannot be read.
type Request struct {
	*certmanagerv1.CertificateRequest

	// Public is the key that is to be certified.
	Public pki.PublicKeyFacts
	// RawSubject is the subject in DER, and Names the subject alternative names.
	RawSubject []byte
	Names      pki.AltNames
	Error      error
}

// OfRequest decodes the PKCS#10 request of r.
func OfRequest(r *certmanagerv1.CertificateRequest) Request {
	f := Request{CertificateRequest: r}
	csr, err := pki.DecodeCSR(r.Spec.Request)
	if err != nil {
		f.Error = err
		return f
	}
	says, err := pki.InspectCSR(csr)
	if err != nil {
		f.Error = err
		return f
	}
	f.Public, f.RawSubject, f.Names = pki.FactsOfKey(csr.PublicKey), bytes.Clone(csr.RawSubject), says.AltNames
	return f
}

// HasNoSubjectOrNames reports whether a request has neither a subject nor names.
func (r Request) HasNoSubjectOrNames() bool {
	n := r.Names
	names := len(n.DNSNames) + len(n.IPAddresses) + len(n.URIs) + len(n.EmailAddresses) + len(n.OtherNames)
	return names == 0 && bytes.Equal(r.RawSubject, []byte{0x30, 0x00}) // an empty SEQUENCE
}

// Revision returns the revision a request was made for; false for none.
func (r Request) Revision() (int, bool) {
	return parseRevision(r.Annotations[certmanagerv1.CertificateRevisionAnnotation])
}

func parseRevision(s string) (int, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil
}

// Failed reports whether a request says itself that it has failed for good.
func (r Request) Failed() bool {
	if r.Condition(certmanagerv1.CertificateRequestConditionDenied) != nil || r.Condition(certmanagerv1.CertificateRequestConditionInvalidRequest) != nil {
		return true
	}
	reason := r.ReadyReason()
	return reason == certmanagerv1.CertificateRequestReasonFailed || reason == certmanagerv1.CertificateRequestReasonDenied
}

// FailureClass returns the class of the failure that a request ended with; empty if
// nothing is known.
func (r Request) FailureClass() fault.Class {
	if c := r.Condition(certmanagerv1.CertificateRequestConditionFailureClass); c != nil {
		return fault.Class(c.Reason)
	}
	return ""
}

// ReadyReason is the reason of the condition Ready; empty without one.
func (r Request) ReadyReason() string {
	if c := certmanagerv1.FindCertificateRequestCondition(r.Status.Conditions, certmanagerv1.CertificateRequestConditionReady); c != nil {
		return c.Reason
	}
	return ""
}

// Condition returns a condition of the request that holds, or nil.
func (r Request) Condition(t certmanagerv1.CertificateRequestConditionType) *certmanagerv1.CertificateRequestCondition {
	c := certmanagerv1.FindCertificateRequestCondition(r.Status.Conditions, t)
	if c == nil || c.Status != cmmeta.ConditionTrue {
		return nil
	}
	return c
}

// KeySpecOf returns what kind of key a Certificate wants, defaults applied by pki.
func KeySpecOf(spec *certmanagerv1.CertificateSpec) pki.KeySpec {
	if spec.PrivateKey == nil {
		return pki.KeySpec{}
	}
	return pki.KeySpec{Algorithm: string(spec.PrivateKey.Algorithm), Size: spec.PrivateKey.Size}
}
