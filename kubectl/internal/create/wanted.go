package create

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/pki"
)

// wanted is the Certificate that says what to ask for: that of the file, or one that the flags make.
func (o *options) wanted(name, namespace string) (*certmanagerv1.Certificate, error) {
	crt := &certmanagerv1.Certificate{}
	if o.from != "" {
		if len(o.names) > 0 || o.issuer != "" {
			return nil, errors.New("--from-certificate-file goes without --dns-names and --issuer: the file names both")
		}
		if err := decode(o.from, crt); err != nil {
			return nil, err
		}
		if flag := *o.flags.Namespace; flag != "" && crt.Namespace != "" && flag != crt.Namespace {
			return nil, fmt.Errorf("%s is for the namespace %s, and --namespace says %s: name one of the two", o.from, crt.Namespace, flag)
		}
	} else {
		if len(o.names) == 0 || o.issuer == "" {
			return nil, errors.New("name a file with --from-certificate-file, or names and an issuer with --dns-names and --issuer")
		}
		crt.Spec.DNSNames = o.names
		crt.Spec.IssuerRef = issuerOf(o.issuer)
	}
	crt.Name, crt.Namespace = name, cmp.Or(crt.Namespace, namespace)
	return crt, nil
}

// decode reads a Certificate from a file.
func decode(file string, crt *certmanagerv1.Certificate) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := yaml.UnmarshalStrict(text, crt); err != nil {
		return fmt.Errorf("%s is no Certificate: %w", file, err)
	}
	if crt.GroupVersionKind() != certmanagerv1.SchemeGroupVersion().WithKind(certmanagerv1.CertificateKind) {
		return fmt.Errorf("%s is no Certificate of %s: it says %s, %s", file, certmanagerv1.SchemeGroupVersion(), crt.APIVersion, crt.Kind)
	}
	return nil
}

// issuerOf reads an issuer: a name, clusterissuer/name, or Kind.group/name.
func issuerOf(text string) cmmeta.IssuerReference {
	kind, name, given := strings.Cut(text, "/")
	if !given {
		return cmmeta.IssuerReference{Name: text}
	}
	kind, group, _ := strings.Cut(kind, ".")
	for _, own := range []string{cmmeta.DefaultIssuerKind, cmmeta.ClusterIssuerKind} {
		if strings.EqualFold(kind, own) {
			kind = own
		}
	}
	return cmmeta.IssuerReference{Kind: kind, Group: group, Name: name}
}

// own is a CertificateRequest.
type own struct {
	*certmanagerv1.CertificateRequest
}

func newOwn(asked *certmanagerv1.CertificateRequest) (request, error) { return own{asked}, nil }

func (r own) object() client.Object { return r.CertificateRequest }

func (r own) help() string {
	args := r.Name + " -n " + r.Namespace
	return "see kubectl describe certificaterequest " + args + "; if it is not approved: kubectl chancery approve " + args
}

func (r own) answer() (waitsFor string, issued []byte, err error) {
	conditions := r.Status.Conditions
	if denied := certmanagerv1.FindCertificateRequestCondition(conditions, certmanagerv1.CertificateRequestConditionDenied); denied != nil &&
		denied.Status == cmmeta.ConditionTrue {
		return "", nil, fmt.Errorf("was denied (%s): %s", denied.Reason, denied.Message)
	}
	ready := certmanagerv1.FindCertificateRequestCondition(conditions, certmanagerv1.CertificateRequestConditionReady)
	switch {
	case ready == nil:
		return "nobody has looked at it yet", nil, nil
	case ready.Reason == certmanagerv1.CertificateRequestReasonFailed:
		return "", nil, fmt.Errorf("has failed: %s", ready.Message)
	case ready.Status != cmmeta.ConditionTrue:
		return "it waits: " + ready.Message, nil, nil
	default:
		return "", r.Status.Certificate, nil
	}
}

// kubernetes is a CertificateSigningRequest.
type kubernetes struct {
	*certificatesv1.CertificateSigningRequest
}

// newKubernetes asks for the same by a CertificateSigningRequest (spec §4).
func newKubernetes(asked *certmanagerv1.CertificateRequest) (request, error) {
	ref := asked.Spec.IssuerRef
	signer := "issuers." + certmanagerv1.GroupName + "/" + asked.Namespace + "." + ref.Name
	switch {
	case ref.IsExternal():
		return nil, fmt.Errorf("%s is of an external kind, which takes CertificateRequests only: kubectl chancery create request", ref.Name)
	case ref.KindOrDefault() == cmmeta.ClusterIssuerKind:
		signer = "clusterissuers." + certmanagerv1.GroupName + "/" + ref.Name
	}
	csr, err := pki.ParseCSR(asked.Spec.Request)
	if err != nil {
		return nil, err
	}
	wanted, err := pki.ParseUsages(asked.Spec.Usages, false, csr.PublicKey)
	if err != nil {
		return nil, err
	}
	var usages []certificatesv1.KeyUsage
	for _, u := range wanted.UsageNames() {
		usages = append(usages, certificatesv1.KeyUsage(u))
	}
	if asked.Spec.Duration != nil {
		asked.Annotations[certmanagerv1.CSRDurationAnnotation] = asked.Spec.Duration.Duration.String()
	}
	if asked.Spec.IsCA {
		asked.Annotations[certmanagerv1.CSRIsCAAnnotation] = "true"
	}
	return kubernetes{&certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: asked.Name, Labels: asked.Labels, Annotations: asked.Annotations},
		Spec:       certificatesv1.CertificateSigningRequestSpec{Request: asked.Spec.Request, SignerName: signer, Usages: usages},
	}}, nil
}

func (r kubernetes) object() client.Object { return r.CertificateSigningRequest }

func (r kubernetes) help() string {
	return "see kubectl chancery status csr/" + r.Name + "; if it is not approved: kubectl certificate approve " + r.Name
}

func (r kubernetes) answer() (waitsFor string, issued []byte, err error) {
	waitsFor = "it waits for approval"
	for _, c := range r.Status.Conditions {
		switch {
		case c.Status == corev1.ConditionFalse:
		case c.Type == certificatesv1.CertificateDenied, c.Type == certificatesv1.CertificateFailed:
			return "", nil, fmt.Errorf("%s (%s): %s", c.Type, c.Reason, c.Message)
		case c.Type == certificatesv1.CertificateApproved:
			waitsFor = "it is approved, and not signed yet"
		}
	}
	if len(r.Status.Certificate) > 0 {
		waitsFor = ""
	}
	return waitsFor, r.Status.Certificate, nil
}
