package conformance

import (
	"context"
	"crypto"
	"crypto/x509/pkix"
	"fmt"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
)

// asked is a request of one line of the table.
type asked struct {
	one

	world   *rig.World
	subject Subject
	key     crypto.Signer
	dnsName string
	// object is a CertificateRequest or a CertificateSigningRequest.
	object client.Object
}

// given is what a request has been given.
type given struct {
	chain, ca []byte
}

func newAsked(t *testing.T, w *rig.World, prefix string, s Subject, line one) *asked {
	t.Helper()
	a := &asked{one: line, world: w, subject: s}
	domain := s.Domain
	if domain == "" {
		domain = "example.com"
	}
	name := line.objectName(prefix)
	a.dnsName = name + "." + domain
	var err error
	if a.key, err = pki.GenerateKey(pki.KeySpec{Algorithm: line.algorithm}); err != nil {
		t.Fatal(err)
	}
	template := pki.CSRTemplate{AltNames: pki.AltNames{DNSNames: []string{a.dnsName}}}
	if !line.bare {
		template.Subject = pkix.Name{CommonName: a.dnsName}
	}
	csr, err := pki.CreateCSR(template, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if line.csr {
		a.object = a.signingRequest(prefix, csr)
	} else {
		a.object = a.certificateRequest(prefix, csr)
	}
	if s.OwnKey {
		text, err := pki.EncodePKCS8(a.key)
		if err != nil {
			t.Fatal(err)
		}
		w.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{cmmeta.TLSPrivateKeyKey: text}})
	}
	return a
}

func (a *asked) certificateRequest(prefix string, csr []byte) *certmanagerv1.CertificateRequest {
	cr := &certmanagerv1.CertificateRequest{
		ObjectMeta: metav1.ObjectMeta{Name: a.objectName(prefix)},
		Spec: certmanagerv1.CertificateRequestSpec{
			Request: csr, IssuerRef: a.reference(a.world, prefix), IsCA: a.isCA, Usages: usages(a.isCA),
			Duration: &metav1.Duration{Duration: Duration},
		},
	}
	if a.subject.OwnKey {
		cr.Annotations = map[string]string{certmanagerv1.PrivateKeySecretNameAnnotation: cr.Name}
	}
	return cr
}

func (a *asked) signingRequest(prefix string, csr []byte) *certificatesv1.CertificateSigningRequest {
	out := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: a.world.ClusterName(a.objectName(prefix)), Annotations: map[string]string{}},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: csr, SignerName: a.signerName(a.world, prefix), ExpirationSeconds: new(int32(Duration.Seconds())),
		},
	}
	for _, u := range usages(a.isCA) {
		out.Spec.Usages = append(out.Spec.Usages, certificatesv1.KeyUsage(u))
	}
	if a.isCA {
		out.Annotations[certmanagerv1.CSRIsCAAnnotation] = "true"
	}
	if a.subject.OwnKey {
		key := certmanagerv1.CSRPrivateKeyAnnotation
		if a.cluster { // both keys mean the same
			key = certmanagerv1.PrivateKeySecretNameAnnotation
		}
		out.Annotations[key] = a.objectName(prefix)
	}
	return out
}

// create makes the request, and approves it where the form leaves that to others.
func (a *asked) create(t *testing.T) {
	t.Helper()
	a.world.Create(t, a.object)
	csr, ok := a.object.(*certificatesv1.CertificateSigningRequest)
	if !ok || a.form == "cert-manager.io/" {
		return
	}
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Conformance", Message: "approved by the test",
	})
	if err := a.world.Client.SubResource("approval").Update(t.Context(), csr); err != nil {
		t.Fatal(err)
	}
}

// await waits for the certificate.
func (a *asked) await(t *testing.T) given {
	t.Helper()
	var got given
	rig.Eventually(t, "the certificate", func(ctx context.Context) string {
		if err := a.world.Client.Get(ctx, client.ObjectKeyFromObject(a.object), a.object); err != nil {
			return err.Error()
		}
		var failure, conditions string
		got, failure, conditions = outcome(a.object)
		if failure != "" {
			t.Fatalf("failed: %s", failure)
		}
		if len(got.chain) == 0 {
			return conditions
		}
		return ""
	})
	return got
}

// outcome is what has become of a request of either kind.
func outcome(object client.Object) (got given, failure, conditions string) {
	switch o := object.(type) {
	case *certmanagerv1.CertificateRequest:
		got, conditions = given{o.Status.Certificate, o.Status.CA}, fmt.Sprintf("%+v", o.Status.Conditions)
		ready := certmanagerv1.FindCertificateRequestCondition(o.Status.Conditions, certmanagerv1.CertificateRequestConditionReady)
		if ready != nil && ready.Reason == certmanagerv1.CertificateRequestReasonFailed {
			failure = ready.Message
		}
	case *certificatesv1.CertificateSigningRequest:
		got, conditions = given{o.Status.Certificate, nil}, fmt.Sprintf("%+v", o.Status.Conditions)
		for _, c := range o.Status.Conditions {
			if c.Type == certificatesv1.CertificateFailed {
				failure = c.Reason + ": " + c.Message
			}
		}
	}
	return got, failure, conditions
}

func readyCheck(w *rig.World, issuer certmanagerv1.GenericIssuer, object client.Object) func(context.Context) string {
	return func(ctx context.Context) string {
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err.Error()
		}
		if !certmanagerv1.HasIssuerCondition(issuer.GetStatus().Conditions, certmanagerv1.IssuerConditionReady, cmmeta.ConditionTrue) {
			return fmt.Sprintf("%+v", issuer.GetStatus().Conditions)
		}
		return ""
	}
}
