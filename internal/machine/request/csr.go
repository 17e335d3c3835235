package request

import (
	"math"
	"slices"
	"strings"
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
)

// SignerName is what the signer name of a CertificateSigningRequest names.
type SignerName struct {
	// Form is one of the three forms for CertificateSigningRequests.
	Form Form
	// Namespace of an Issuer; empty for a ClusterIssuer.
	Namespace string
	// Name of the issuer.
	Name string
}

// Reference returns the issuer that is named.
func (s SignerName) Reference() cmmeta.IssuerReference {
	ref := cmmeta.IssuerReference{Name: s.Name, Kind: cmmeta.ClusterIssuerKind, Group: certmanagerv1.GroupName}
	if s.Form == FormCSRIssuer {
		ref.Kind = cmmeta.DefaultIssuerKind
	}
	return ref
}

// ParseSignerName reads the signer name of a CertificateSigningRequest (mission
// rule 8, spec §4.1); false if it is not ours. The namespace of an Issuer ends at
// the first dot; without one it is empty, and the Issuer is not found.
func ParseSignerName(signerName string) (SignerName, bool) {
	domain, path, ok := strings.Cut(signerName, "/")
	if !ok || path == "" {
		return SignerName{}, false
	}
	switch domain {
	case certmanagerv1.GroupName:
		return SignerName{Form: FormCSR, Name: path}, true
	case "clusterissuers." + certmanagerv1.GroupName:
		return SignerName{Form: FormCSRClusterIssuer, Name: path}, true
	case "issuers." + certmanagerv1.GroupName:
		namespace, name, ok := strings.Cut(path, ".")
		if !ok {
			namespace, name = "", path
		}
		return SignerName{Form: FormCSRIssuer, Namespace: namespace, Name: name}, true
	default:
		return SignerName{}, false
	}
}

// The groups whose members Kubernetes' own roles let create CertificateSigningRequests for any signer.
const (
	GroupNodes         = "system:nodes"
	GroupBootstrappers = "system:bootstrappers"
)

// IsMachineGroup reports whether a group is GroupNodes, GroupBootstrappers, or a further group of bootstrap tokens.
func IsMachineGroup(group string) bool {
	return group == GroupNodes || group == GroupBootstrappers || strings.HasPrefix(group, GroupBootstrappers+":")
}

// MachineGroup returns the group that makes a requester an untrusted machine; empty for none. A bootstrap token is in
// several groups: it is trusted if one of them is.
func MachineGroup(groups, trusted []string) string {
	if slices.Contains(groups, GroupNodes) && !slices.Contains(trusted, GroupNodes) {
		return GroupNodes
	}
	bootstrapper := func(group string) bool { return group != GroupNodes && IsMachineGroup(group) }
	isTrusted := func(group string) bool { return bootstrapper(group) && slices.Contains(trusted, group) }
	if slices.ContainsFunc(groups, bootstrapper) && !slices.ContainsFunc(groups, isTrusted) {
		return GroupBootstrappers
	}
	return ""
}

// CSRAnnotations is what the annotations of a CertificateSigningRequest ask for
// (spec §4.3).
type CSRAnnotations struct {
	// IsCA asks for a CA certificate.
	IsCA bool
	// PrivateKeySecretName names the Secret with the requester's own key.
	PrivateKeySecretName string

	duration string
}

// CSRAnnotationsOf reads the annotations; the experimental keys and those of
// CertificateRequests mean the same.
func CSRAnnotationsOf(annotations map[string]string) CSRAnnotations {
	name := annotations[certmanagerv1.CSRPrivateKeyAnnotation]
	if name == "" {
		name = annotations[certmanagerv1.PrivateKeySecretNameAnnotation]
	}
	return CSRAnnotations{
		IsCA:                 annotations[certmanagerv1.CSRIsCAAnnotation] == "true",
		PrivateKeySecretName: name,
		duration:             annotations[certmanagerv1.CSRDurationAnnotation],
	}
}

// Duration returns the validity asked for, by annotation or by
// spec.expirationSeconds: the shorter one of both, zero if neither says. A
// validity that cannot be read or is shorter than MinimumCSRDuration is a
// fault.Terminal.
func (a CSRAnnotations) Duration(expirationSeconds *int32) (time.Duration, error) {
	if a.duration == "" && expirationSeconds == nil {
		return 0, nil
	}
	d := time.Duration(math.MaxInt64)
	if a.duration != "" {
		var err error
		if d, err = time.ParseDuration(a.duration); err != nil {
			return 0, fault.Terminal("ErrorParseDuration", "annotation %s: %w", certmanagerv1.CSRDurationAnnotation, err)
		}
	}
	if expirationSeconds != nil {
		d = min(d, time.Duration(*expirationSeconds)*time.Second)
	}
	if d < MinimumCSRDuration {
		return 0, fault.Terminal("InvalidDuration", "a duration of %s was asked for, the shortest is %s", d, MinimumCSRDuration)
	}
	return d, nil
}
