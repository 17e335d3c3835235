package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig/pebble"
)

const (
	// namespace holds all that is generated, clusterNamespace the Secrets of ClusterIssuers.
	namespace, clusterNamespace = "compare", "cert-manager"
	zone                        = "example.com"
	// password is that of all keystores.
	password = "changeit"
)

// input is what both controllers get.
type input struct {
	// authorities are the Secrets of the CAs, objects what is generated.
	authorities, objects []client.Object
	// held is a key that Secrets hold already.
	held crypto.Signer
}

// generate makes the input that a seed chooses. Keys and certificates of CAs are new each time.
func generate(seed uint64, certificates, ingresses int) (*input, error) {
	in := &input{}
	var err error
	if in.held, err = pki.GenerateKey(pki.KeySpec{Algorithm: pki.RSA, Size: 2048}); err != nil {
		return nil, err
	}
	if err := in.addAuthorities(); err != nil {
		return nil, err
	}
	for i := range certificates {
		in.addCertificate(i, mathrand.New(mathrand.NewPCG(seed, uint64(i)))) //nolint:gosec // the same again
	}
	for i := range ingresses {
		in.addIngress(i, mathrand.New(mathrand.NewPCG(^seed, uint64(i)))) //nolint:gosec // the same again
	}
	return in, nil
}

// copies are the generated objects, as the API server has not seen them.
func (in *input) copies() []client.Object { return copies(in.objects) }

func copies(objects []client.Object) []client.Object {
	out := make([]client.Object, len(objects))
	for i, o := range objects {
		out[i] = o.DeepCopyObject().(client.Object) //nolint:forcetypeassert // it is the same type
	}
	return out
}

// authority is a CA.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// newAuthority makes a CA, by another one or by itself.
func newAuthority(name string, by *authority, notAfter time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().AddDate(-1, 0, 0), NotAfter: notAfter,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, BasicConstraintsValid: true, IsCA: true,
	}
	if by == nil {
		by = &authority{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, key.Public(), by.key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &authority{cert, key}, err
}

// secret holds a key and certificates.
func secret(space, name string, key crypto.Signer, chain ...*x509.Certificate) (*corev1.Secret, error) {
	encoded, err := pki.EncodePKCS8(key)
	if err != nil {
		return nil, err
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: name}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{cmmeta.TLSPrivateKeyKey: encoded, cmmeta.TLSCertKey: pki.EncodeCertificates(chain...)},
	}, nil
}

func (in *input) addAuthorities() error {
	far := time.Now().AddDate(5, 0, 0)
	root, err := newAuthority("root", nil, far)
	if err != nil {
		return err
	}
	intermediate, err := newAuthority("intermediate", root, far)
	if err != nil {
		return err
	}
	expired, err := newAuthority("expired", nil, time.Now().AddDate(0, 0, -1))
	if err != nil {
		return err
	}
	for _, of := range []struct {
		space, name string
		key         crypto.Signer
		chain       []*x509.Certificate
	}{
		{clusterNamespace, "root", root.key, []*x509.Certificate{root.cert}},
		{namespace, "root", root.key, []*x509.Certificate{root.cert}},
		{namespace, "intermediate", intermediate.key, []*x509.Certificate{intermediate.cert, root.cert}},
		{namespace, "no-root", intermediate.key, []*x509.Certificate{intermediate.cert}},
		{namespace, "expired", expired.key, []*x509.Certificate{expired.cert}},
		{namespace, "mismatch", root.key, []*x509.Certificate{intermediate.cert}},
	} {
		s, err := secret(of.space, of.name, of.key, of.chain...)
		if err != nil {
			return err
		}
		in.authorities = append(in.authorities, s)
	}
	in.authorities = append(in.authorities, opaque("password", "password", password), opaque("no-password", "other", "x"))
	return nil
}

func opaque(name, key, value string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{key: []byte(value)}}
}

// before is what there is before the controller starts: only the address of the CA differs from side to side.
func (in *input) before(ca *pebble.Server, nameserver string) []client.Object {
	out := append([]client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: clusterNamespace}},
	}, copies(in.authorities)...)
	acme := func(account string) certmanagerv1.IssuerSpec {
		return certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{
			Server: ca.DirectoryURL, CABundle: ca.TLSBundle, Email: "admin@example.com", PrivateKey: cmmeta.SecretKeySelector{Name: account},
			Solvers: []acmev1.ACMEChallengeSolver{{DNS01: &acmev1.DNS01Solver{RFC2136: &acmev1.RFC2136Provider{Nameserver: nameserver}}}},
		}}
	}
	byCA := func(name string) certmanagerv1.IssuerSpec {
		return certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: name}}
	}
	own := certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}
	urls := byCA("root")
	urls.CA.CRLDistributionPoints, urls.CA.OCSPServers, urls.CA.IssuingCertificateURLs = []string{"http://crl.example.com/a"}, []string{"http://ocsp.example.com"}, []string{"http://ca.example.com/a"}
	noSolver := acme("account-2")
	noSolver.ACME.Solvers[0].Selector = &acmev1.CertificateDNSNameSelector{DNSZones: []string{"example.org"}}
	for _, i := range []struct {
		name string
		spec certmanagerv1.IssuerSpec
	}{
		{"own", own}, {"ca", byCA("root")}, {"intermediate", byCA("intermediate")}, {"no-root", byCA("no-root")}, {"urls", urls}, {"acme", acme("account")},
		{"no-solver", noSolver}, {"expired", byCA("expired")}, {"mismatch", byCA("mismatch")}, {"missing", byCA("missing")},
	} {
		meta := metav1.ObjectMeta{Namespace: namespace, Name: i.name}
		out = append(out, &certmanagerv1.Issuer{ObjectMeta: meta, Spec: i.spec})
	}
	for _, i := range []struct {
		name string
		spec certmanagerv1.IssuerSpec
	}{{"own", own}, {"ca", byCA("root")}, {"acme", acme("account")}} {
		out = append(out, &certmanagerv1.ClusterIssuer{ObjectMeta: metav1.ObjectMeta{Name: i.name}, Spec: i.spec})
	}
	return out
}

func isInvalid(err error) bool { return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) }

// name is that of a generated object.
func name(kind string, i int) string { return fmt.Sprintf("%s-%03d", kind, i) }
