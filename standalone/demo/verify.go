package demo

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/clientside/explain"
	"chancery.dev/internal/machine/podrequest"
)

// signingRequest is a request of which only this process has the key.
type signingRequest struct {
	key crypto.Signer
	pem []byte
}

func newSigningRequest() (signingRequest, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return signingRequest{}, err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: "demo-client"},
		DNSNames: []string{"client.demo.svc"},
	}, key)
	if err != nil {
		return signingRequest{}, err
	}
	return signingRequest{key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})}, nil
}

// verifier looks at what was issued as a relying party would: it trusts the roots, and nothing that the Secret says.
type verifier struct {
	client    client.Client
	peers     *Peers
	request   signingRequest
	node      *node  // nil where no Pod has a certificate
	namespace string // of the Secrets of ClusterIssuers
	now       func() time.Time
}

// verify checks chain, names and key of what a target got, and describes it.
func (v verifier) verify(ctx context.Context, t target) (string, error) {
	var got product
	var err error
	switch t.kind {
	case kindCertificate:
		got, err = v.ofCertificate(ctx, t.NamespacedName)
	case kindPod:
		got, err = v.ofPod(ctx, t.NamespacedName)
	default:
		got, err = v.ofSigningRequest(ctx, t.Name)
	}
	if err != nil {
		return "", err
	}
	chain, err := got.check(v.now())
	if err != nil {
		return "", err
	}
	return got.describe(chain), nil
}

// product is what was issued, and what it has to live up to.
type product struct {
	chain  []*x509.Certificate // leaf first
	roots  *x509.CertPool      // nil are the system's
	public crypto.PublicKey
	names  []string
	id     string // of a Pod
	place  string
}

// ofCertificate reads a Certificate and its Secret.
func (v verifier) ofCertificate(ctx context.Context, name types.NamespacedName) (product, error) {
	crt, secret := &certmanagerv1.Certificate{}, &corev1.Secret{}
	if err := v.client.Get(ctx, name, crt); err != nil {
		return product{}, err
	}
	secretName := types.NamespacedName{Namespace: name.Namespace, Name: crt.Spec.SecretName}
	if err := v.client.Get(ctx, secretName, secret); err != nil {
		return product{}, err
	}
	// It compares the private key with the leaf.
	pair, err := tls.X509KeyPair(secret.Data[cmmeta.TLSCertKey], secret.Data[cmmeta.TLSPrivateKeyKey])
	if err != nil {
		return product{}, fmt.Errorf("Secret %s: %w", secretName, err)
	}
	p, err := productOf(pair, "Secret "+secretName.String())
	if err != nil {
		return product{}, fmt.Errorf("Secret %s: %w", secretName, err)
	}
	p.names = slices.Concat(crt.Spec.DNSNames, crt.Spec.IPAddresses)
	ref := crt.Spec.IssuerRef
	issuer := types.NamespacedName{Namespace: ref.NamespaceFrom(name.Namespace), Name: ref.Name}
	p.roots, err = v.rootsOf(ctx, ref.KindOrDefault(), issuer, p.chain[0])
	return p, err
}

// productOf is a key with its chain.
func productOf(pair tls.Certificate, place string) (product, error) {
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return product{}, errors.New("the private key cannot sign")
	}
	p := product{public: signer.Public(), place: place}
	for _, der := range pair.Certificate {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return product{}, err
		}
		p.chain = append(p.chain, c)
	}
	return p, nil
}

// ofSigningRequest reads a CertificateSigningRequest.
func (v verifier) ofSigningRequest(ctx context.Context, name string) (product, error) {
	csr := &certificatesv1.CertificateSigningRequest{}
	if err := v.client.Get(ctx, types.NamespacedName{Name: name}, csr); err != nil {
		return product{}, err
	}
	chain, err := parse(csr.Status.Certificate)
	if err != nil {
		return product{}, err
	}
	request, _ := pem.Decode(csr.Spec.Request)
	if request == nil {
		return product{}, errors.New("spec.request is not PEM")
	}
	asked, err := x509.ParseCertificateRequest(request.Bytes)
	if err != nil {
		return product{}, err
	}
	p := product{chain: chain, public: asked.PublicKey, names: asked.DNSNames, place: "status.certificate; the key never left the requester"}
	if bytes.Equal(csr.Spec.Request, v.request.pem) {
		p.public = v.request.key.Public()
	}
	kind, namespace, issuer := explain.SignerOf(csr.Spec.SignerName)
	p.roots, err = v.rootsOf(ctx, kind, types.NamespacedName{Namespace: namespace, Name: issuer}, chain[0])
	return p, err
}

// ofPod takes what the kubelet writes into the first volume of a Pod that gets a certificate.
func (v verifier) ofPod(ctx context.Context, name types.NamespacedName) (product, error) {
	pod := &corev1.Pod{}
	if err := v.client.Get(ctx, name, pod); err != nil {
		return product{}, err
	}
	volume := explain.PodVolumes(pod, nil, nil)[0]
	pair, err := v.node.Credentials(ctx, pod, volume.Volume)
	if err != nil {
		return product{}, err
	}
	p, err := productOf(pair, "volume "+volume.Volume+" of the Pod; the key never left the node")
	if err != nil {
		return product{}, err
	}
	kind, namespace, by := explain.SignerOf(volume.Source.SignerName)
	issuer := certmanagerv1.NewIssuer(cmmeta.IssuerReference{Kind: kind, Name: by}, namespace)
	if err := v.client.Get(ctx, client.ObjectKeyFromObject(issuer), issuer); err != nil {
		return product{}, err
	}
	p.id = podrequest.SPIFFEID(issuer.GetAnnotations()[certmanagerv1.PodCertificatesAnnotation], pod.Namespace, pod.Spec.ServiceAccountName)
	p.roots, err = v.rootsOf(ctx, kind, client.ObjectKeyFromObject(issuer), p.chain[0])
	return p, err
}

// rootsOf returns what to trust for an issuer.
func (v verifier) rootsOf(ctx context.Context, kind string, name types.NamespacedName, leaf *x509.Certificate) (*x509.CertPool, error) {
	var issuer certmanagerv1.GenericIssuer = &certmanagerv1.ClusterIssuer{}
	namespace := v.namespace
	if kind == cmmeta.DefaultIssuerKind {
		issuer, namespace = &certmanagerv1.Issuer{}, name.Namespace
	}
	if err := v.client.Get(ctx, name, issuer); err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	switch spec := issuer.GetSpec(); {
	case spec.SelfSigned != nil:
		pool.AddCert(leaf)
	case spec.CA != nil:
		secret := &corev1.Secret{}
		if err := v.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: spec.CA.SecretName}, secret); err != nil {
			return nil, fmt.Errorf("read the CA of %s %s: %w", kind, name.Name, err)
		}
		pool.AppendCertsFromPEM(secret.Data[cmmeta.TLSCertKey])
	case spec.ACME != nil && spec.ACME.Server == v.peers.acme.DirectoryURL:
		return v.peers.acme.RootPool(), nil
	default:
		return nil, nil // the system's
	}
	return pool, nil
}

func parse(text []byte) ([]*x509.Certificate, error) {
	var chain []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		chain = append(chain, c)
	}
	if len(chain) == 0 {
		return nil, errors.New("there is no certificate in it")
	}
	return chain, nil
}

// check verifies the chain up to a root, for every name and the identity, and that the key is the requester's. It
// returns the verified chain.
func (p product) check(now time.Time) ([]*x509.Certificate, error) {
	leaf := p.chain[0]
	public, ok := p.public.(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(leaf.PublicKey) {
		return nil, errors.New("it is for another key than the requester's")
	}
	options := x509.VerifyOptions{Roots: p.roots, Intermediates: x509.NewCertPool(), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	for _, c := range p.chain[1:] {
		options.Intermediates.AddCert(c)
	}
	chains, err := leaf.Verify(options)
	if err != nil {
		return nil, fmt.Errorf("its chain does not verify: %w", err)
	}
	if p.id != "" && !slices.ContainsFunc(leaf.URIs, func(uri *url.URL) bool { return uri.String() == p.id }) {
		return nil, fmt.Errorf("it is not for %s, but for %s", p.id, leaf.URIs)
	}
	for _, name := range p.names {
		// A wildcard is good for any one label in its place.
		if err := leaf.VerifyHostname(strings.Replace(name, "*", "any", 1)); err != nil {
			return nil, err
		}
	}
	return chains[0], nil
}

// describe says what a verified certificate is.
func (p product) describe(chain []*x509.Certificate) string {
	leaf, root := chain[0], chain[len(chain)-1]
	names, ids := slices.Clone(leaf.DNSNames), make([]string, len(leaf.URIs))
	for i, uri := range leaf.URIs {
		ids[i] = uri.String()
	}
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	subject := leaf.Subject.String()
	if subject == "" {
		subject = "none: the names say it"
		if len(names) == 0 {
			subject = "none: the identity says it"
		}
	}
	var s strings.Builder
	for _, line := range [][2]string{
		{"subject", subject},
		{"identity", strings.Join(ids, ", ")},
		{"names", strings.Join(names, ", ")},
		{"issuer", leaf.Issuer.String()},
		{"root", root.Subject.String()},
		{"validity", fmt.Sprintf("%s to %s, %.0f h", leaf.NotBefore.UTC().Format(time.RFC3339), leaf.NotAfter.UTC().Format(time.RFC3339),
			leaf.NotAfter.Sub(leaf.NotBefore).Hours())},
		{"kept in", p.place},
	} {
		if line[1] != "" {
			fmt.Fprintf(&s, "    %-9s %s\n", line[0], line[1])
		}
	}
	return s.String()
}
