package certificate

import (
	"crypto"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/pki"
)

// NewRequest returns the CertificateRequest for a revision of a Certificate, signed with key (spec §2.3). If Action.Key
// names a Secret, the key is from there. The filter copied chooses the annotations of the Certificate that are copied.
// It is an error if no request can fulfil the spec: only another spec helps.
func NewRequest(crt *certmanagerv1.Certificate, a Action, key crypto.Signer, copied AnnotationFilter) (*certmanagerv1.CertificateRequest, error) {
	csr, err := pki.CreateCSR(CSRTemplateOf(&crt.Spec), key)
	if err != nil {
		return nil, err
	}
	annotations := copied.Apply(crt.Annotations)
	annotations[certmanagerv1.CertificateRevisionAnnotation] = strconv.Itoa(a.Revision)
	if delete(annotations, certmanagerv1.PrivateKeySecretNameAnnotation); a.Key != "" {
		annotations[certmanagerv1.PrivateKeySecretNameAnnotation] = a.Key
	}
	annotations[certmanagerv1.CertificateNameAnnotation] = crt.Name
	if !a.Budget.IsZero() {
		annotations[BudgetAnnotation] = a.Budget.UTC().Format(time.RFC3339)
	}
	if a.IssuerVersion != "" {
		annotations[IssuerVersionAnnotation] = a.IssuerVersion
	}
	r := &certmanagerv1.CertificateRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: crt.Namespace, Name: a.Name, Labels: maps.Clone(crt.Labels), Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{facts.OwnedBy(crt)},
		},
		Spec: certmanagerv1.CertificateRequestSpec{
			Duration: crt.Spec.Duration, IssuerRef: crt.Spec.IssuerRef, Request: csr, IsCA: crt.Spec.IsCA, Usages: crt.Spec.Usages,
		},
	}
	return r, fulfils(&crt.Spec, r)
}

// fulfils says what of a spec the request made for it does not fulfil. Such a
// request would be found wrong, deleted and made again without end.
func fulfils(spec *certmanagerv1.CertificateSpec, r *certmanagerv1.CertificateRequest) error {
	made := facts.OfRequest(r)
	wrong, err := facts.RequestViolations(spec, made)
	switch {
	case err == nil && made.HasNoSubjectOrNames():
		return errors.New("subject and names are empty: set commonName or dnsNames, or write a subject into literalSubject")
	case err != nil:
		return fmt.Errorf("the request made for this spec cannot be read back, correct the names in it: %w", err)
	case len(wrong) > 0:
		return fmt.Errorf("a request cannot say what is in %s: spell it differently", strings.Join(wrong, ", "))
	default:
		return nil
	}
}

// CSRTemplateOf returns what the PKCS#10 request for a spec holds.
func CSRTemplateOf(spec *certmanagerv1.CertificateSpec) pki.CSRTemplate {
	t := pki.CSRTemplate{
		LiteralSubject: spec.LiteralSubject,
		AltNames: pki.AltNames{
			DNSNames: spec.DNSNames, IPAddresses: spec.IPAddresses, URIs: spec.URIs, EmailAddresses: spec.EmailAddresses,
		},
		EncodeUsages:       spec.EncodeUsagesInRequest == nil || *spec.EncodeUsagesInRequest,
		IsCA:               spec.IsCA,
		SignatureAlgorithm: string(spec.SignatureAlgorithm),
	}
	for _, n := range spec.OtherNames {
		t.AltNames.OtherNames = append(t.AltNames.OtherNames, pki.OtherName{OID: n.OID, Value: n.UTF8Value})
	}
	for _, u := range spec.Usages {
		t.Usages = append(t.Usages, string(u))
	}
	if spec.LiteralSubject == "" {
		t.Subject = subjectOf(spec)
	}
	if c := spec.NameConstraints; c != nil {
		t.NameConstraints = &pki.NameConstraints{Critical: c.Critical, Permitted: subtreesOf(c.Permitted), Excluded: subtreesOf(c.Excluded)}
	}
	return t
}

func subjectOf(spec *certmanagerv1.CertificateSpec) pkix.Name {
	name := pkix.Name{CommonName: spec.CommonName}
	if s := spec.Subject; s != nil {
		name.Organization, name.Country, name.OrganizationalUnit = s.Organizations, s.Countries, s.OrganizationalUnits
		name.Locality, name.Province, name.StreetAddress = s.Localities, s.Provinces, s.StreetAddresses
		name.PostalCode, name.SerialNumber = s.PostalCodes, s.SerialNumber
	}
	return name
}

func subtreesOf(c *certmanagerv1.NameConstraintItem) pki.Subtrees {
	if c == nil {
		return pki.Subtrees{}
	}
	return pki.Subtrees{DNSDomains: c.DNSDomains, IPRanges: c.IPRanges, EmailAddresses: c.EmailAddresses, URIDomains: c.URIDomains}
}

// AnnotationFilter chooses, by prefix, which annotations of a Certificate its
// requests inherit: an entry that starts with "-" excludes, "*" includes all
// (--copied-annotation-prefixes).
type AnnotationFilter []string

// DefaultAnnotationFilter copies all but the bookkeeping of tools that apply manifests.
func DefaultAnnotationFilter() AnnotationFilter {
	return AnnotationFilter{"*", "-kubectl.kubernetes.io/", "-fluxcd.io/", "-argocd.argoproj.io/"}
}

// Apply returns a copy of the annotations that pass.
func (f AnnotationFilter) Apply(annotations map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range annotations {
		if f.passes(key) {
			out[key] = value
		}
	}
	return out
}

func (f AnnotationFilter) passes(key string) bool {
	included := slices.ContainsFunc(f, func(p string) bool { return p == "*" || !strings.HasPrefix(p, "-") && strings.HasPrefix(key, p) })
	excluded := slices.ContainsFunc(f, func(p string) bool {
		prefix, ok := strings.CutPrefix(p, "-")
		return ok && strings.HasPrefix(key, prefix)
	})
	return included && !excluded
}
