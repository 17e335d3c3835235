package shim

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/pki"
)

// applySetLabel says that an object is part of an ApplySet; its Certificates are not.
const applySetLabel = "applyset.kubernetes.io/part-of"

// overrideGroups are annotations of a Certificate that exclude or complete each other: where one of a group is wanted,
// those that are not are taken away.
var overrideGroups = [][]string{
	{acmev1.OverrideIngressNameAnnotation, acmev1.OverrideIngressClassAnnotation, acmev1.OverrideIngressClassNameAnnotation},
	{acmev1.ParentRefKindAnnotation, acmev1.ParentRefNameAnnotation, acmev1.ParentRefNamespaceAnnotation},
}

// wanted returns the Certificates that an Object asks for, what is wrong with it as a whole, and the bound that it is
// above. If something is wrong, the Certificates are nil.
func (s *State) wanted() (out []*certmanagerv1.Certificate, problems []string, excess string) {
	issuer, err := issuerOf(s.Annotations, s.Settings)
	if err != nil {
		problems = append(problems, fmt.Sprintf("Could not determine issuer for %s due to bad annotations: %s", strings.ToLower(s.Owner.Kind), err))
	}
	template := certmanagerv1.CertificateSpec{IssuerRef: issuer, Usages: certmanagerv1.DefaultKeyUsages()}
	problems = append(problems, annotate(&template, s.Annotations)...)
	problems = append(problems, s.duplicates()...)
	if len(problems) > 0 {
		return nil, problems, ""
	}
	if excess := s.tooLong(); excess != "" {
		return nil, nil, excess
	}
	if names := overridesOf(s.Overrides); len(names) > 1 {
		problems = append(problems, fmt.Sprintf("the annotations for HTTP-01 ask for more than one of %s: an ACME issuer refuses that, leave one of them", strings.Join(names, ", ")))
	}
	out = []*certmanagerv1.Certificate{}
	at := map[string]int{}
	for _, part := range s.Parts {
		if part.Silent || part.Problem != "" {
			continue
		}
		for _, secret := range part.Secrets {
			i, seen := at[secret]
			if !seen {
				i, at[secret] = len(out), len(out)
				out = append(out, s.certificate(secret, &template))
			}
			addHosts(&out[i].Spec, part.Hosts)
		}
	}
	for _, crt := range out {
		crt.Spec.DNSNames = unique(append(crt.Spec.DNSNames, template.DNSNames...))
		crt.Spec.IPAddresses = unique(append(crt.Spec.IPAddresses, template.IPAddresses...))
		if len(crt.Spec.DNSNames) > limits.CertificateNames || len(crt.Spec.IPAddresses) > limits.CertificateNames {
			return nil, nil, fmt.Sprintf("the certificate for the Secret %q would have more than %d names", crt.Name, limits.CertificateNames)
		}
	}
	return out, problems, ""
}

// overridesOf returns those of the first group of overrides that are set.
func overridesOf(overrides map[string]string) []string {
	return slices.DeleteFunc(slices.Clone(overrideGroups[0]), func(key string) bool { return overrides[key] == "" })
}

// duplicates says which entries of an Ingress name the same Secret.
func (s *State) duplicates() (problems []string) {
	if s.Owner.Kind != KindIngress {
		return nil
	}
	first := map[string]string{}
	for _, part := range s.Parts {
		for _, secret := range part.Secrets {
			if before, seen := first[secret]; seen {
				problems = append(problems, fmt.Sprintf("Duplicate TLS entry for secretName %q: %s and %s: put the hosts of both into one entry", secret, before, part.Where))
				continue
			}
			first[secret] = part.Where
		}
	}
	return problems
}

// certificate returns a Certificate for a Secret, as yet without hosts.
func (s *State) certificate(secret string, template *certmanagerv1.CertificateSpec) *certmanagerv1.Certificate {
	crt := &certmanagerv1.Certificate{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: secret, Labels: maps.Clone(s.Labels), Annotations: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{s.Owner},
		},
		Spec: *template.DeepCopy(),
	}
	delete(crt.Labels, applySetLabel)
	for _, key := range s.Settings.ExtraAnnotations {
		if value, ok := s.Annotations[key]; ok {
			crt.Annotations[key] = value
		}
	}
	maps.Copy(crt.Annotations, s.Overrides)
	crt.Spec.SecretName, crt.Spec.DNSNames, crt.Spec.IPAddresses = secret, nil, nil
	return crt
}

func addHosts(spec *certmanagerv1.CertificateSpec, hosts []string) {
	for _, host := range hosts {
		if _, err := netip.ParseAddr(host); err == nil {
			spec.IPAddresses = append(spec.IPAddresses, host)
		} else {
			spec.DNSNames = append(spec.DNSNames, host)
		}
	}
}

// unique returns the first of each value, in order.
func unique(list []string) []string {
	var out []string
	seen := make(map[string]bool, len(list))
	for _, value := range list {
		if !seen[value] {
			seen[value] = true
			out = append(out, value)
		}
	}
	return out
}

func setOf(list []string) map[string]bool {
	out := make(map[string]bool, len(list))
	for _, value := range list {
		out[value] = true
	}
	return out
}

// changeOf returns the update that makes a Certificate what is wanted, if it is not. Fields that no annotation can set
// stay as they are, and so do annotations of others. An annotation that is copied is no reason for an update.
func changeOf(existing, wanted *certmanagerv1.Certificate) (Change, bool) {
	c := Change{Old: existing, New: existing.DeepCopy(), Fields: differences(&existing.Spec, &wanted.Spec), digest: digest(wanted)}
	if !cmmeta.Equal(existing.Labels, wanted.Labels) {
		c.Fields = append(c.Fields, "labels")
	}
	if c.New.Annotations == nil {
		c.New.Annotations = map[string]string{}
	}
	if overridesDiffer(c.New.Annotations, wanted) {
		c.Fields = append(c.Fields, "annotations")
	}
	maps.Copy(c.New.Annotations, wanted.Annotations)
	c.New.Labels = wanted.Labels
	take(&c.New.Spec, &wanted.Spec)
	return c, len(c.Fields) > 0
}

// overridesDiffer takes those overrides away that exclude what is wanted, or that an Ingress has asked for that is not
// to be edited in place any more, and reports whether any override differs.
func overridesDiffer(annotations map[string]string, wanted *certmanagerv1.Certificate) bool {
	differs := false
	inPlace, owner := annotations[acmev1.OverrideIngressNameAnnotation], metav1.GetControllerOfNoCopy(wanted)
	if inPlace != "" && inPlace == owner.Name && wanted.Annotations[acmev1.OverrideIngressNameAnnotation] == "" {
		delete(annotations, acmev1.OverrideIngressNameAnnotation)
		delete(annotations, certmanagerv1.IssueTemporaryAnnotation)
		differs = true
	}
	for _, group := range overrideGroups {
		if !slices.ContainsFunc(group, func(key string) bool { return wanted.Annotations[key] != "" }) {
			continue
		}
		for _, key := range group {
			if annotations[key] != wanted.Annotations[key] {
				delete(annotations, key)
				differs = true
			}
		}
	}
	temporary := wanted.Annotations[certmanagerv1.IssueTemporaryAnnotation]
	return differs || wanted.Annotations[acmev1.OverrideIngressNameAnnotation] != "" && annotations[certmanagerv1.IssueTemporaryAnnotation] != temporary
}

// differences names the fields that are wanted otherwise than they are: all that an Object can set (spec §6.2 leaves
// some out, which is a quirk).
func differences(a, b *certmanagerv1.CertificateSpec) []string {
	keyA, keyB := keyOf(a), keyOf(b)
	if keyA.Algorithm == certmanagerv1.Ed25519KeyAlgorithm && keyB.Algorithm == keyA.Algorithm {
		keyA.Size, keyB.Size = 0, 0
	}
	var out []string
	for _, field := range []struct {
		name string
		a, b any
	}{
		{"commonName", a.CommonName, b.CommonName}, {"dnsNames", a.DNSNames, b.DNSNames}, {"ipAddresses", a.IPAddresses, b.IPAddresses},
		{"uris", a.URIs, b.URIs}, {"emailAddresses", a.EmailAddresses, b.EmailAddresses}, {"subject", subjectOf(a), subjectOf(b)},
		{"secretName", a.SecretName, b.SecretName}, {"secretTemplate", a.SecretTemplate, b.SecretTemplate}, {"usages", usagesOf(a), usagesOf(b)},
		{"duration", a.Duration, b.Duration}, {"renewBefore", a.RenewBefore, b.RenewBefore},
		{"renewBeforePercentage", a.RenewBeforePercentage, b.RenewBeforePercentage},
		{"revisionHistoryLimit", a.RevisionHistoryLimit, b.RevisionHistoryLimit}, {"privateKey", keyA, keyB},
	} {
		if !cmmeta.Equal(field.a, field.b) {
			out = append(out, "spec."+field.name)
		}
	}
	if !a.IssuerRef.Equivalent(b.IssuerRef) {
		out = append(out, "spec.issuerRef")
	}
	return out
}

// take copies those fields that differences compares.
func take(to, from *certmanagerv1.CertificateSpec) {
	to.CommonName, to.DNSNames, to.IPAddresses = from.CommonName, from.DNSNames, from.IPAddresses
	to.URIs, to.EmailAddresses, to.Subject = from.URIs, from.EmailAddresses, from.Subject
	to.SecretName, to.SecretTemplate, to.Usages = from.SecretName, from.SecretTemplate, from.Usages
	to.Duration, to.RenewBefore, to.RenewBeforePercentage = from.Duration, from.RenewBefore, from.RenewBeforePercentage
	to.RevisionHistoryLimit, to.PrivateKey, to.IssuerRef = from.RevisionHistoryLimit, from.PrivateKey, from.IssuerRef
}

func keyOf(s *certmanagerv1.CertificateSpec) certmanagerv1.CertificatePrivateKey {
	if s.PrivateKey == nil {
		return certmanagerv1.CertificatePrivateKey{}
	}
	return *s.PrivateKey
}

func subjectOf(s *certmanagerv1.CertificateSpec) certmanagerv1.X509Subject {
	if s.Subject == nil {
		return certmanagerv1.X509Subject{}
	}
	return *s.Subject
}

func usagesOf(s *certmanagerv1.CertificateSpec) []certmanagerv1.KeyUsage {
	if len(s.Usages) == 0 {
		return certmanagerv1.DefaultKeyUsages()
	}
	return s.Usages
}

// digest identifies what is wanted of a Certificate.
func digest(crt *certmanagerv1.Certificate) string {
	text, err := json.Marshal([]any{crt.Spec, crt.Labels, crt.Annotations})
	if err != nil {
		return err.Error() // no such type is in there
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// notCovered returns the names of a Certificate that another one is not for.
func notCovered(wanted, by *certmanagerv1.Certificate) []string {
	covered := map[string]bool{pki.DNSNameKey(by.Spec.CommonName): true}
	for _, name := range slices.Concat(by.Spec.DNSNames, by.Spec.IPAddresses) {
		covered[pki.DNSNameKey(name)] = true
	}
	var out []string
	for _, name := range slices.Concat(wanted.Spec.DNSNames, wanted.Spec.IPAddresses) {
		key := pki.DNSNameKey(name)
		_, parent, _ := strings.Cut(key, ".")
		if !covered[key] && !covered["*."+parent] {
			out = append(out, name)
		}
	}
	return out
}
