package bench

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strconv"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/pki"
)

const (
	// caIssuer, selfSignedIssuer and acmeIssuer are the names of the ClusterIssuers.
	caIssuer         = "bench-ca"
	selfSignedIssuer = "bench-selfsigned"
	acmeIssuer       = "bench-acme"
	// zone holds all names that certificates are for.
	zone = "bench.test"
)

// prepareCA makes a certificate authority and its ClusterIssuer.
func prepareCA(ctx context.Context, r *run) (*workload, error) {
	return certificates(caIssuer, certmanagerv1.ECDSAKeyAlgorithm), createCA(ctx, r.plane.client, pki.ECDSA)
}

// prepareMLDSA is prepareCA with other keys, of the authority and of what it signs.
func prepareMLDSA(ctx context.Context, r *run) (*workload, error) {
	return certificates(caIssuer, certmanagerv1.MLDSA65KeyAlgorithm), createCA(ctx, r.plane.client, pki.MLDSA65)
}

// prepareSelfSigned makes a ClusterIssuer that signs with the key of each certificate itself.
func prepareSelfSigned(ctx context.Context, r *run) (*workload, error) {
	err := r.plane.client.Create(ctx, &certmanagerv1.ClusterIssuer{
		ObjectMeta: metav1.ObjectMeta{Name: selfSignedIssuer},
		Spec:       certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}},
	})
	w := certificates(selfSignedIssuer, certmanagerv1.ECDSAKeyAlgorithm)
	plain := w.object
	w.object = func(i int) client.Object {
		crt := plain(i).(*certmanagerv1.Certificate) //nolint:forcetypeassert // it is
		crt.Spec.CommonName = crt.Spec.DNSNames[0]   // without, a warning says that the subject is empty
		return crt
	}
	return w, err
}

// certificates is the workload of Certificates with one name and a key.
func certificates(issuer string, key certmanagerv1.PrivateKeyAlgorithm) *workload {
	return &workload{
		issuer: issuer,
		list:   &certmanagerv1.CertificateList{},
		object: func(i int) client.Object {
			name := "crt-" + strconv.Itoa(i)
			return &certmanagerv1.Certificate{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
				Spec: certmanagerv1.CertificateSpec{
					SecretName: name + "-tls",
					DNSNames:   []string{name + "." + zone},
					IssuerRef:  cmmeta.IssuerReference{Kind: cmmeta.ClusterIssuerKind, Name: issuer},
					PrivateKey: &certmanagerv1.CertificatePrivateKey{Algorithm: key},
				},
			}
		},
		state: func(o client.Object) (bool, string) {
			crt, ok := o.(*certmanagerv1.Certificate)
			if !ok {
				return false, ""
			}
			ready := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionReady)
			if ready == nil {
				return false, ""
			}
			return ready.Status == cmmeta.ConditionTrue, ready.Message
		},
	}
}

// newCA makes a self-signed authority with a key, both in PEM.
func newCA(algorithm string) (certificate, key []byte, err error) {
	signer, err := pki.GenerateKey(pki.KeySpec{Algorithm: algorithm})
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: caIssuer},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, signer.Public(), signer)
	if err != nil {
		return nil, nil, err
	}
	key, err = pki.EncodePKCS8(signer)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key, err
}

// createCA makes an authority, and the ClusterIssuer that signs with it.
func createCA(ctx context.Context, c client.Client, algorithm string) error {
	certificate, key, err := newCA(algorithm)
	if err != nil {
		return err
	}
	if err := c.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: controllerNamespace, Name: caIssuer}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{cmmeta.TLSCertKey: certificate, cmmeta.TLSPrivateKeyKey: key},
	}); err != nil {
		return err
	}
	return c.Create(ctx, &certmanagerv1.ClusterIssuer{
		ObjectMeta: metav1.ObjectMeta{Name: caIssuer},
		Spec:       certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: caIssuer}},
	})
}

// prepareCSR makes a certificate authority, and all requests ahead of time: their keys are not what is measured.
func prepareCSR(ctx context.Context, r *run) (*workload, error) {
	requests, err := newRequests(ctx, r)
	return &workload{
		issuer: caIssuer,
		list:   &certificatesv1.CertificateSigningRequestList{},
		object: func(i int) client.Object {
			return &certificatesv1.CertificateSigningRequest{
				ObjectMeta: metav1.ObjectMeta{Name: requestName(i)},
				Spec: certificatesv1.CertificateSigningRequestSpec{
					Request: requests[i], SignerName: certmanagerv1.GroupName + "/" + caIssuer,
					Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
				},
			}
		},
		state: func(o client.Object) (done bool, said string) {
			csr := o.(*certificatesv1.CertificateSigningRequest) //nolint:forcetypeassert // it is
			for _, condition := range csr.Status.Conditions {
				said = string(condition.Type) + ": " + condition.Message
			}
			return len(csr.Status.Certificate) > 0, said
		},
	}, err
}

// prepareRequests is prepareCSR for CertificateRequests that no Certificate owns, such as service meshes make.
func prepareRequests(ctx context.Context, r *run) (*workload, error) {
	requests, err := newRequests(ctx, r)
	return &workload{
		issuer: caIssuer,
		list:   &certmanagerv1.CertificateRequestList{},
		object: func(i int) client.Object {
			return &certmanagerv1.CertificateRequest{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: requestName(i)},
				Spec: certmanagerv1.CertificateRequestSpec{
					Request: requests[i], IssuerRef: cmmeta.IssuerReference{Kind: cmmeta.ClusterIssuerKind, Name: caIssuer},
				},
			}
		},
		state: func(o client.Object) (done bool, said string) {
			request := o.(*certmanagerv1.CertificateRequest) //nolint:forcetypeassert // it is
			for _, condition := range request.Status.Conditions {
				said = string(condition.Type) + ": " + condition.Message
			}
			return len(request.Status.Certificate) > 0, said
		},
	}, err
}

func requestName(i int) string { return "request-" + strconv.Itoa(i) }

// newRequests makes a certificate authority, and certificate requests (PEM) for names that are all different.
func newRequests(ctx context.Context, r *run) ([][]byte, error) {
	if err := createCA(ctx, r.plane.client, pki.ECDSA); err != nil {
		return nil, err
	}
	out := make([][]byte, r.Certificates)
	for i := range out {
		der, err := newRequest("", requestName(i)+"."+zone)
		if err != nil {
			return nil, err
		}
		out[i] = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	}
	return out, nil
}

// newRequest makes an ECDSA key and, with it, a certificate request (DER) for names; an empty subject is none.
func newRequest(subject string, names ...string) ([]byte, error) {
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		return nil, err
	}
	return x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: subject}, DNSNames: names}, key)
}
