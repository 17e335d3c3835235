// Package podrequest decides what becomes of a PodCertificateRequest, with which a kubelet asks for a certificate of a
// Pod (certificates.k8s.io, Kubernetes 1.37).
//
// Denied is for ever, and makes the kubelet drop the certificate that a Pod has. So a request is denied only if the
// spec of its Pod makes it impossible. Whatever somebody else can correct makes it wait: the same Pod starts then.
package podrequest

import (
	"crypto"
	"encoding/pem"
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/machine/request"
	"chancery.dev/internal/pki"
)

// The lifetimes of certificates for Pods. Shortest and Longest are the API's. An issuer that does not say more gives
// Usual, which is what a volume asks for that says nothing.
const (
	Shortest = time.Hour
	Usual    = 24 * time.Hour
	Longest  = 91 * 24 * time.Hour
)

// inside is how far from both ends of a lifetime the API wants the beginning of the refresh.
const inside = 10 * time.Minute

// Reasons of events about a Pod whose request waits, and of a request that is denied.
const (
	ReasonIssuerMissing  = "IssuerMissing"
	ReasonIssuerNotReady = "IssuerNotReady"
	ReasonNotForPods     = "IssuerNotForPods"
	ReasonForbidden      = "SignerForbidden"
	ReasonCAEndsSoon     = "CAEndsSoon"
	ReasonSigningError   = request.ReasonSigningError
	ReasonOtherNamespace = "IssuerOfOtherNamespace"
	ReasonIssuerType     = "IssuerTypeUnsupported"
	ReasonStubNames      = "RequestNamesSomething"
	ReasonKubeletTooOld  = "KubeletTooOld"
	ReasonServices       = "ServiceNotForPod"
)

// IsOurs reports whether a signer name is one of our issuers'.
func IsOurs(signerName string) bool {
	_, ours := request.ParseSignerName(signerName)
	return ours
}

// FieldPath is what events about requests for a signer name are about in a Pod: its volumes for that signer. It is
// written as Kubernetes writes which container an event is about.
func FieldPath(signerName string) string { return "spec.volumes{" + signerName + "}" }

// Waits are the reasons of events about a Pod whose request waits.
func Waits() []string {
	return []string{
		ReasonIssuerMissing, ReasonIssuerNotReady, ReasonNotForPods, ReasonForbidden, ReasonCAEndsSoon, ReasonSigningError, ReasonIssuerType, ReasonKubeletTooOld,
		ReasonServices,
	}
}

// Denials are the reasons of requests that are denied.
func Denials() []string {
	return []string{
		ReasonOtherNamespace, ReasonStubNames,
		certificatesv1.PodCertificateRequestConditionInvalidUserConfig, certificatesv1.PodCertificateRequestConditionUnsupportedKeyType,
	}
}

// Step is what to do for a request.
type Step int

// The steps.
const (
	// StepIgnore: it is not ours.
	StepIgnore Step = iota + 1
	// StepWait for an event, or until Wake.
	StepWait
	// StepDeny it for ever.
	StepDeny
	// StepAuthorize: ask whether the ServiceAccount may have a certificate.
	StepAuthorize
	// StepRead the Pod, and the Services that Action names.
	StepRead
	// StepReadKey: read the public key of a request without a PKCS#10 request.
	StepReadKey
	// StepSign it.
	StepSign
)

// State is what can be observed of a request.
type State struct {
	// Spec is nil for a request that has a verdict, or is for a signer of somebody else.
	Spec      *certificatesv1.PodCertificateRequestSpec
	Namespace string
	// Signer is what the signer name names. IssuerName names the issuer for people.
	Signer     request.SignerName
	IssuerName string
	Issuer     request.IssuerState
	// IssuerSays is the message of its condition Ready if that is not True, and IssuerType its type.
	IssuerSays, IssuerType string
	// Annotations are those of the issuer.
	Annotations map[string]string
	// CAEnds is when the first certificate of the CA expires; zero if that is not known.
	CAEnds time.Time

	// PublicKey is the key of a request without a PKCS#10 request, PKIX, ASN.1 DER, once StepReadKey has set KeyRead. It
	// is empty where the API server does not serve the version that has it.
	PublicKey []byte
	KeyRead   bool
	// MayRequest says whether the ServiceAccount may have a certificate of the signer; nil before that was asked.
	MayRequest *bool
	// Pod and Services are those that StepRead asks for, nil before. A Service that does not exist is missing, and of the
	// Pod no more than the UID is needed then. A Pod that does not exist is empty.
	Pod      *corev1.Pod
	Services map[string]*corev1.Service
}

// Action is what a decision comes to.
type Action struct {
	Step Step
	// Reason and Message are those of a wait or a denial.
	Reason, Message string
	// Unwatched says that no watch tells when the wait is over, such as for a right.
	Unwatched bool
	// Services are those to read, by name.
	Services []string

	// Names and Duration are those of the certificate. CSR is the request with its key, or Key is the key alone.
	Names    pki.AltNames
	Duration time.Duration
	CSR      []byte
	Key      crypto.PublicKey
}

// Decide is total: each state has one action.
func Decide(s State, now time.Time) Action {
	if s.Spec == nil || s.Issuer == request.IssuerUnmanaged || s.Issuer == request.IssuerOutOfReach {
		return Action{Step: StepIgnore}
	}
	if s.Signer.Form == request.FormCSRIssuer && s.Signer.Namespace != s.Namespace {
		return deny(ReasonOtherNamespace, "the signer names no Issuer of the namespace %s: an Issuer signs for Pods of its own namespace only", s.Namespace)
	}
	if a, waits := issuer(s); waits {
		return a
	}
	most, err := longest(s.Annotations)
	if err == nil {
		_, err = domainOf(s.Annotations)
	}
	switch {
	case err != nil:
		return wait(ReasonNotForPods, "%s: %v", s.IssuerName, err)
	case s.IssuerType != "ca" && s.IssuerType != "vault":
		return wait(ReasonIssuerType, "%s is of the type %s: only issuers with spec.ca or spec.vault sign for Pods", s.IssuerName, s.IssuerType)
	}
	if a, stops := stub(s); stops {
		return a
	}
	switch all := s.Annotations[certmanagerv1.PodCertificatesForAnnotation] == "all"; {
	case !all && s.MayRequest == nil:
		return Action{Step: StepAuthorize}
	case !all && !*s.MayRequest:
		a := wait(ReasonForbidden, "the ServiceAccount %s may not have certificates of the signer %s. Give it the verb request on signers of certificates.k8s.io by that name, "+
			"or let all have them: kubectl annotate %s %s=all", s.Spec.ServiceAccountName, s.Spec.SignerName, object(s), certmanagerv1.PodCertificatesForAnnotation)
		a.Unwatched = true
		return a
	}
	return sign(s, most, now)
}

// issuer says what the request waits for if the issuer cannot sign.
func issuer(s State) (a Action, waits bool) {
	switch s.Issuer {
	case request.IssuerMissing:
		return wait(ReasonIssuerMissing, "%s does not exist", s.IssuerName), true
	case request.IssuerNotReady:
		return wait(ReasonIssuerNotReady, "%s is not ready: %s", s.IssuerName, s.IssuerSays), true
	case request.IssuerTypeless:
		return wait(ReasonIssuerType, "the spec of %s names no type that is known here", s.IssuerName), true
	case request.IssuerReady:
	default:
		return wait("", "%s has not said yet whether it is ready", s.IssuerName), true // that is nothing to tell of
	}
	domain, serves := s.Annotations[certmanagerv1.PodCertificatesAnnotation]
	switch {
	case !serves:
		return wait(ReasonNotForPods, "%s does not sign for Pods. Make an issuer that does, with a CA of its own and the annotation %s", s.IssuerName, certmanagerv1.PodCertificatesAnnotation), true
	case !IsTrustDomain(domain):
		return wait(ReasonNotForPods, "%s: the annotation %s has to be a trust domain such as prod.example.com, not %q",
			s.IssuerName, certmanagerv1.PodCertificatesAnnotation, domain), true
	default:
		return Action{}, false
	}
}

// longest is the longest lifetime that the issuer allows.
func longest(annotations map[string]string) (time.Duration, error) {
	text, limited := annotations[certmanagerv1.PodCertificatesDurationAnnotation]
	if !limited {
		return Usual, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < Shortest || d > Longest {
		return 0, fmt.Errorf("the annotation %s has to be a duration from %s to %s, not %q", certmanagerv1.PodCertificatesDurationAnnotation, Shortest, Longest, text)
	}
	return d.Truncate(time.Second), nil
}

// unknownKey denies a request.
func unknownKey() Action {
	return deny(certificatesv1.PodCertificateRequestConditionUnsupportedKeyType, "the kind of key is not known here. ECDSAP256 is a keyType that is")
}

// stub denies a request that asks for what no issuer gives. A kubelet of Kubernetes 1.35 sends no PKCS#10 request, and
// a server needs one to sign.
func stub(s State) (a Action, stops bool) {
	if _, err := servicesOf(s.Spec.UnverifiedUserAnnotations); err != nil {
		return deny(certificatesv1.PodCertificateRequestConditionInvalidUserConfig, "%v", err), true
	}
	if len(s.Spec.StubPKCS10Request) == 0 {
		return wait(ReasonKubeletTooOld, "the kubelet of the node %s has sent no PKCS#10 request, which %s needs: the kubelet has to be of Kubernetes 1.36 or newer",
			s.Spec.NodeName, s.IssuerName), s.IssuerType != "ca"
	}
	csr, err := pki.ParseCSR(encode(s.Spec.StubPKCS10Request))
	switch {
	case err != nil, csr.PublicKey == nil:
		return unknownKey(), true
	case !pki.NamesNothing(csr):
		return deny(ReasonStubNames, "the request of the kubelet names something, and the certificate has the names of the Pod only"), true
	default:
		return Action{}, false
	}
}

// key is the key of a request without a PKCS#10 request.
func key(s State) (key crypto.PublicKey, a Action, stops bool) {
	switch {
	case len(s.Spec.StubPKCS10Request) > 0:
		return nil, Action{}, false
	case !s.KeyRead:
		return nil, Action{Step: StepReadKey}, true
	case len(s.PublicKey) == 0:
		a = wait(ReasonKubeletTooOld, "the kubelet of the node %s has sent its key by certificates.k8s.io/v1beta1, which the API server does not serve: "+
			"switch that version on until the node is of Kubernetes 1.36 or newer", s.Spec.NodeName)
		a.Unwatched = true
		return nil, a, true
	}
	key, err := pki.ParsePublicKey(s.PublicKey)
	if err != nil {
		return nil, unknownKey(), true
	}
	return key, Action{}, false
}

func encode(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// sign says what to sign: the SPIFFE ID of the ServiceAccount, and the names of its Services that the volume asks for,
// for no longer than the issuer, the Pod and the CA allow.
func sign(s State, most time.Duration, now time.Time) Action {
	if asked := s.Spec.MaxExpirationSeconds; asked != nil {
		most = min(most, time.Duration(*asked)*time.Second)
	}
	if !s.CAEnds.IsZero() {
		most = min(most, s.CAEnds.Sub(now).Truncate(time.Second))
	}
	if most < Shortest {
		return wait(ReasonCAEndsSoon, "the CA of %s expires on %s, and a certificate for a Pod is valid for %s at least: renew the CA", s.IssuerName, s.CAEnds.UTC().Format(time.RFC3339), Shortest)
	}
	key, a, stops := key(s)
	if stops {
		return a
	}
	a = Action{
		Step: StepSign, Duration: most, CSR: encode(s.Spec.StubPKCS10Request), Key: key,
		Names: pki.AltNames{URIs: []string{SPIFFEID(s.Annotations[certmanagerv1.PodCertificatesAnnotation], s.Namespace, s.Spec.ServiceAccountName)}},
	}
	services, _ := servicesOf(s.Spec.UnverifiedUserAnnotations) // stub has looked at the error
	switch {
	case len(services) == 0 && most <= Usual:
		return a
	case s.Pod == nil:
		return Action{Step: StepRead, Services: services}
	case s.Pod.UID != s.Spec.PodUID:
		return Action{Step: StepIgnore} // the Pod is gone, and the cluster soon removes its request
	}
	if most > Usual && !asksFor(s.Pod, s.Spec) {
		a.Duration = Usual
	}
	domain, _ := domainOf(s.Annotations) // Decide has looked at the error
	var problem string
	if a.Names.DNSNames, problem = dnsNames(s, services, domain); problem != "" {
		a = wait(ReasonServices, "%s", problem)
		a.Unwatched = true
	}
	return a
}

// asksFor reports whether a volume of the Pod asks for the lifetime, and for the names, that a kubelet has asked for:
// the API server does not compare the two, and a node that is broken into may ask for more.
func asksFor(pod *corev1.Pod, spec *certificatesv1.PodCertificateRequestSpec) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(source corev1.VolumeProjection) bool {
			of := source.PodCertificate
			return of != nil && of.SignerName == spec.SignerName && of.MaxExpirationSeconds != nil && spec.MaxExpirationSeconds != nil &&
				*of.MaxExpirationSeconds >= *spec.MaxExpirationSeconds && maps.Equal(of.UserAnnotations, spec.UnverifiedUserAnnotations)
		})
	})
}

// SPIFFEID is the identity of a ServiceAccount (SPIFFE-ID §2).
func SPIFFEID(trustDomain, namespace, account string) string {
	return "spiffe://" + trustDomain + "/ns/" + namespace + "/sa/" + account
}

// IsTrustDomain reports whether a text is a trust domain (SPIFFE-ID §2.1) that is the name of a host, too, as verifiers
// of URIs want it (RFC 5280 §4.2.1.10).
func IsTrustDomain(text string) bool {
	for label := range strings.SplitSeq(text, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	_, err := netip.ParseAddr(text)
	return err != nil && len(text) <= 253
}

// RefreshAt is when the kubelet begins to refresh a certificate: after between six and eight tenths of its lifetime,
// spread by the Pod, so that Pods that started together do not refresh in one moment.
func RefreshAt(pod string, notBefore, notAfter time.Time) time.Time {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(pod)) // it never fails
	life := notAfter.Sub(notBefore)
	at := notBefore.Add(life*6/10 + life/5*time.Duration(sum.Sum32()%1024)/1024).Truncate(time.Second)
	if last := notAfter.Add(-inside); at.After(last) {
		at = last
	}
	return at
}

// object is the issuer as kubectl names it.
func object(s State) string {
	if s.Signer.Reference().Kind == cmmeta.ClusterIssuerKind {
		return "clusterissuer " + s.Signer.Name
	}
	return "-n " + s.Namespace + " issuer " + s.Signer.Name
}

func wait(reason, format string, args ...any) Action {
	return Action{Step: StepWait, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func deny(reason, format string, args ...any) Action {
	return Action{Step: StepDeny, Reason: reason, Message: fmt.Sprintf(format, args...)}
}
