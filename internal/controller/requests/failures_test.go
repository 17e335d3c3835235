package requests_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/app"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/rig/pebble"
)

// troubled is a World whose requests come to grief.
type troubled struct {
	*rig.World

	key crypto.Signer
}

// The issuers of a troubled World, by the type that they are of; "broken" is a CA without a Secret.
const (
	byCA, bySelf, byACME = "ca", "self", "acme"
	byBroken, byNobody   = "broken", "nobody"
)

func newTroubled(t *testing.T, change ...func(*app.Config)) *troubled {
	t.Helper()
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	w := &troubled{World: rig.NewWorld(t), key: key}
	dns, err := dnsserver.Start(t.Context(), dnsserver.Config{Zones: []dnsserver.Zone{{Name: "example.com.", Wildcard: netip.MustParseAddr("127.0.0.1")}}})
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pebble.Start(t.Context(), pebble.Options{DNSServer: dns.Addr(), Blocklist: []string{"blocked.example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	cfg := w.Config()
	for _, c := range change {
		c(&cfg)
	}
	w.Run(t, cfg)
	w.withRoot(t)
	for name, spec := range map[string]certmanagerv1.IssuerSpec{
		byCA:     {CA: &certmanagerv1.CAIssuer{SecretName: "root"}},
		bySelf:   {SelfSigned: &certmanagerv1.SelfSignedIssuer{}},
		byBroken: {CA: &certmanagerv1.CAIssuer{SecretName: "no-such-secret"}},
		byACME: {ACME: &acmev1.ACMEIssuer{
			Server: ca.DirectoryURL, CABundle: ca.TLSBundle, PrivateKey: cmmeta.SecretKeySelector{Name: "account"},
			Solvers: []acmev1.ACMEChallengeSolver{{DNS01: &acmev1.DNS01Solver{RFC2136: &acmev1.RFC2136Provider{Nameserver: dns.Addr()}}}},
		}},
	} {
		w.Create(t, &certmanagerv1.ClusterIssuer{ObjectMeta: metav1.ObjectMeta{Name: w.ClusterName(name)}, Spec: spec})
	}
	for name, status := range map[string]cmmeta.ConditionStatus{byCA: cmmeta.ConditionTrue, bySelf: cmmeta.ConditionTrue, byACME: cmmeta.ConditionTrue, byBroken: cmmeta.ConditionFalse} {
		rig.Eventually(t, "the issuer "+name+" is set up", func(ctx context.Context) string {
			issuer := &certmanagerv1.ClusterIssuer{}
			if err := w.Get(ctx, w.ClusterName(name), issuer); err != nil {
				return err.Error()
			}
			if !certmanagerv1.HasIssuerCondition(issuer.Status.Conditions, certmanagerv1.IssuerConditionReady, status) {
				return fmt.Sprintf("%+v", issuer.Status.Conditions)
			}
			return ""
		})
	}
	return w
}

// withRoot makes the CA's Secret through a Certificate, for an hour.
func (w *troubled) withRoot(t *testing.T) {
	t.Helper()
	w.Create(t, &certmanagerv1.ClusterIssuer{ObjectMeta: metav1.ObjectMeta{Name: w.ClusterName("root")}, Spec: certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}},
		&certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: "root"}, Spec: certmanagerv1.CertificateSpec{
			SecretName: "root", CommonName: "root", IsCA: true, Duration: &metav1.Duration{Duration: 100 * time.Hour},
			PrivateKey: &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm},
			IssuerRef:  cmmeta.IssuerReference{Name: w.ClusterName("root"), Kind: cmmeta.ClusterIssuerKind},
		}})
}

// want is what a request asks for, whatever its kind.
type want struct {
	issuer      string
	csr         pki.CSRTemplate
	garbage     bool // no CSR at all: only a CertificateRequest can hold that
	forged      bool // a CSR that was changed after it was signed: only a CertificateRequest can hold that
	usages      []string
	annotations map[string]string
	duration    time.Duration
	// form of the signer name, of a CertificateSigningRequest, and what is decided about it
	// instead of Approved.
	form    string
	verdict certificatesv1.RequestConditionType
	// group of an external issuer, of a CertificateRequest.
	group string
}

func (w *troubled) template(t *testing.T, x want, name string) []byte {
	t.Helper()
	if x.garbage {
		return []byte("-----BEGIN CERTIFICATE REQUEST-----\nbm90aGluZw==\n-----END CERTIFICATE REQUEST-----\n")
	}
	if x.csr.Subject.CommonName == "" && len(x.csr.AltNames.DNSNames) == 0 {
		x.csr.AltNames.DNSNames = []string{name + ".example.com"}
		x.csr.Subject = pkix.Name{CommonName: name + ".example.com"}
	}
	csr, err := pki.CreateCSR(x.csr, w.key)
	if err != nil {
		t.Fatal(err)
	}
	if x.forged {
		block, _ := pem.Decode(csr)
		block.Bytes = bytes.ReplaceAll(block.Bytes, []byte(name+".example.com"), []byte(name+".example.org"))
		csr = pem.EncodeToMemory(block)
	}
	return csr
}

func (w *troubled) certificateRequest(t *testing.T, name string, x want) *certmanagerv1.CertificateRequest {
	t.Helper()
	cr := &certmanagerv1.CertificateRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: x.annotations},
		Spec: certmanagerv1.CertificateRequestSpec{
			Request: w.template(t, x, name), IssuerRef: cmmeta.IssuerReference{Name: w.ClusterName(x.issuer), Kind: cmmeta.ClusterIssuerKind, Group: x.group},
		},
	}
	if x.duration > 0 {
		cr.Spec.Duration = &metav1.Duration{Duration: x.duration}
	}
	for _, u := range x.usages {
		cr.Spec.Usages = append(cr.Spec.Usages, certmanagerv1.KeyUsage(u))
	}
	w.Create(t, cr)
	return cr
}

// signingRequest makes one, approved where that is left to others.
func (w *troubled) signingRequest(t *testing.T, name string, x want) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	form := "cert-manager.io/"
	if x.form != "" {
		form = x.form
	}
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: w.ClusterName(name), Annotations: x.annotations},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: w.template(t, x, name), SignerName: form + w.ClusterName(x.issuer), Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature},
		},
	}
	if x.duration > 0 {
		seconds := int32(x.duration.Seconds())
		csr.Spec.ExpirationSeconds = &seconds
	}
	if len(x.usages) > 0 {
		csr.Spec.Usages = nil
	}
	for _, u := range x.usages {
		csr.Spec.Usages = append(csr.Spec.Usages, certificatesv1.KeyUsage(u))
	}
	w.Create(t, csr)
	if x.form != "" {
		if x.verdict == "" {
			x.verdict = certificatesv1.CertificateApproved
		}
		w.decide(t, csr, x.verdict)
	}
	return csr
}

// decide approves or denies a request as a person would.
func (w *troubled) decide(t *testing.T, csr *certificatesv1.CertificateSigningRequest, verdict certificatesv1.RequestConditionType) {
	t.Helper()
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: verdict, Status: corev1.ConditionTrue, Reason: "Test", Message: "by the test",
	})
	if err := w.Client.SubResource("approval").Update(t.Context(), csr); err != nil {
		t.Fatal(err)
	}
}

// said waits for an event about an object which has the reason and the words; "" is any reason.
func (w *troubled) said(t *testing.T, o client.Object, kind, reason, words string) {
	t.Helper()
	namespace := o.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	rig.Eventually(t, "an event "+reason, func(ctx context.Context) string {
		events := &corev1.EventList{}
		if err := w.Client.List(ctx, events, client.InNamespace(namespace)); err != nil {
			return err.Error()
		}
		var others []string
		for _, e := range events.Items {
			if e.InvolvedObject.UID != o.GetUID() {
				continue
			}
			if e.Type == kind && e.Reason == reason && strings.Contains(e.Message, words) {
				return ""
			}
			others = append(others, e.Type+" "+e.Reason+": "+e.Message)
		}
		return strings.Join(others, "\n")
	})
}

// requestReady waits until the condition Ready has a reason and the words.
func (w *troubled) requestReady(t *testing.T, name, reason, words string) *certmanagerv1.CertificateRequest {
	t.Helper()
	cr := &certmanagerv1.CertificateRequest{}
	rig.Eventually(t, "CertificateRequest "+name+" is "+reason, func(ctx context.Context) string {
		if err := w.Get(ctx, name, cr); err != nil {
			return err.Error()
		}
		ready := certmanagerv1.FindCertificateRequestCondition(cr.Status.Conditions, certmanagerv1.CertificateRequestConditionReady)
		if ready == nil || ready.Reason != reason || !strings.Contains(ready.Message, words) {
			return fmt.Sprintf("%+v", cr.Status.Conditions)
		}
		return ""
	})
	return cr
}

// signingHas waits until a CertificateSigningRequest has a condition.
func (w *troubled) signingHas(t *testing.T, name string, kind certificatesv1.RequestConditionType, reason, words string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	csr := &certificatesv1.CertificateSigningRequest{}
	rig.Eventually(t, "CertificateSigningRequest "+name+" is "+string(kind), func(ctx context.Context) string {
		if err := w.Get(ctx, w.ClusterName(name), csr); err != nil {
			return err.Error()
		}
		for _, c := range csr.Status.Conditions {
			if c.Type == kind && c.Reason == reason && strings.Contains(c.Message, words) {
				return ""
			}
		}
		return fmt.Sprintf("%+v", csr.Status.Conditions)
	})
	return csr
}

// signed waits until a request of either kind has its certificate.
func (w *troubled) signed(t *testing.T, o client.Object) {
	t.Helper()
	rig.Eventually(t, o.GetName()+" is signed", func(ctx context.Context) string {
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err.Error()
		}
		switch o := o.(type) {
		case *certmanagerv1.CertificateRequest:
			if len(o.Status.Certificate) == 0 {
				return fmt.Sprintf("%+v", o.Status.Conditions)
			}
		case *certificatesv1.CertificateSigningRequest:
			if len(o.Status.Certificate) == 0 {
				return fmt.Sprintf("%+v", o.Status.Conditions)
			}
		}
		return ""
	})
}
