package inspect

import (
	"context"
	"fmt"
	"os"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/clientside/explain"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/pki"
	"chancery.dev/kubectl/internal/plugin"
)

// csr reports on a CertificateRequest, a CertificateSigningRequest or a file.
func (o *options) csr(ctx context.Context, from string) (*Report, error) {
	r := &Report{Source: from, now: time.Now()}
	if _, missing := os.Stat(from); from == "-" || missing == nil {
		text, err := o.read(from)
		if err != nil {
			return nil, err
		}
		return r, r.request(text, nil)
	}
	c, namespace, err := plugin.ConnectIn(o.flags)
	if err != nil {
		return nil, err
	}
	cr := &certmanagerv1.CertificateRequest{}
	err = c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: from}, cr)
	if apierrors.IsNotFound(err) {
		csr := &certificatesv1.CertificateSigningRequest{}
		if err := c.Get(ctx, client.ObjectKey{Name: from}, csr); apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("there is no file, no CertificateRequest in the namespace %s and no CertificateSigningRequest %s", namespace, from)
		} else if err != nil {
			return nil, err
		}
		r.Source = explain.Name("CertificateSigningRequest", "", from)
		return r, r.request(csr.Spec.Request, csr.Status.Certificate)
	}
	if err != nil {
		return nil, err
	}
	r.Source = explain.Name("CertificateRequest", namespace, from)
	if err := r.request(cr.Spec.Request, cr.Status.Certificate); err != nil {
		return nil, err
	}
	r.wanted(ctx, c, cr)
	return r, nil
}

// request shows a PKCS#10 request, and judges it and the certificate that was issued for it, if one was.
func (r *Report) request(text, issued []byte) error {
	says, err := pki.InspectPEM(text)
	if err != nil {
		return fmt.Errorf("%s: %w", r.Source, err)
	}
	r.Request = &Request{
		Subject: subject(says.Subject.String(), "no subject"), Names: namesOf(says.AltNames, nil), Key: keyOf(says.PublicKey), CA: says.IsCA, Usages: says.Usages.UsageNames(),
	}
	if _, err := pki.DecodeCSR(text); err != nil {
		r.add(aboutSignature, Wrong, "Make the request again", "%v", err)
	} else {
		r.add(aboutSignature, OK, "", "its own key has signed it")
	}
	if len(issued) == 0 {
		return nil
	}
	chain, err := pki.DecodeChain(issued)
	switch {
	case err != nil:
		r.add(aboutIssued, Wrong, "Ask those who run the issuer", "what was issued cannot be read: %v", err)
		return nil
	case !pki.PublicKeysEqual(chain[0].PublicKey, says.PublicKey):
		r.add(aboutIssued, Wrong, "Ask those who run the issuer", "the certificate that was issued is for another key")
	default:
		r.add(aboutIssued, OK, "", "the certificate that was issued is for its key")
	}
	for _, c := range chain {
		r.Certificates = append(r.Certificates, certificateOf(c))
	}
	return nil
}

// wanted says whether a request asks for what its Certificate does.
func (r *Report) wanted(ctx context.Context, c client.Reader, cr *certmanagerv1.CertificateRequest) {
	name := cr.Annotations[certmanagerv1.CertificateNameAnnotation]
	if name == "" {
		return
	}
	crt := &certmanagerv1.Certificate{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: cr.Namespace, Name: name}, crt); err != nil {
		r.add(aboutNames, Unknown, "", "its Certificate cannot be read: %v", err)
		return
	}
	r.Certificate = explain.Name(certmanagerv1.CertificateKind, crt.Namespace, crt.Name)
	fields, err := facts.RequestViolations(&crt.Spec, facts.OfRequest(cr))
	if err == nil {
		r.violations(fields)
	}
}
