package controlplane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Lifetimes of what the control plane issues to itself. Leaf certificates are made anew at each start and
// live long, because nothing restarts an all-in-one process for years; the key of the CA lies beside them in a
// directory of mode 0700, so shorter lives would protect nothing.
const (
	caLifetime   = 20 * 365 * 24 * time.Hour
	leafLifetime = 5 * 365 * 24 * time.Hour
	backdate     = time.Hour // a clock that is set back a little must not lock the user out
)

// serviceIPRange is the range of cluster IPs; its first address is the API server's own.
const (
	serviceIPRange = "10.96.0.0/16"
	serviceIP      = "10.96.0.1"
)

// authority is a certificate authority with its key.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// pki is the set of keys of a control plane, in memory and, where kube-apiserver wants files, on disk.
type pki struct {
	ca         authority // signs the serving certificate and all client certificates
	caFile     string
	frontProxy string // certificate of the CA by which aggregated API servers know the aggregator
	serving    keyPair
	proxy      keyPair // client certificate with which the aggregator speaks to aggregated API servers
	saKey      crypto.Signer
	saKeyFile  string
}

// keyPair names the files of a certificate and its key.
type keyPair struct{ cert, key string }

// loadPKI reads the authorities and the service-account key, makes those that do not exist yet, and issues the leaf
// certificates of this run for the address that the API server listens on.
func (d *dataDir) loadPKI(now time.Time, listen net.IP) (*pki, error) {
	ca, err := d.loadAuthority("ca", "chancery-ca", now)
	if err != nil {
		return nil, err
	}
	front, err := d.loadAuthority("front-proxy-ca", "chancery-front-proxy-ca", now)
	if err != nil {
		return nil, err
	}
	keys := &pki{ca: ca, caFile: d.path("pki", "ca.crt"), frontProxy: d.path("pki", "front-proxy-ca.crt")}
	if keys.serving, err = d.issue("apiserver", ca, servingTemplate(listen), now); err != nil {
		return nil, err
	}
	if keys.proxy, err = d.issue("front-proxy-client", front, clientTemplate(frontProxyUser, nil), now); err != nil {
		return nil, err
	}
	keys.saKeyFile = d.path("pki", "sa.key")
	if keys.saKey, err = d.loadKey("sa.key"); err != nil {
		return nil, err
	}
	return keys, nil
}

// loadAuthority reads a CA, or makes it. It writes the certificate last. So a key without a certificate, which a crash
// has left, has signed nothing yet: loadAuthority makes a certificate for it.
func (d *dataDir) loadAuthority(name, commonName string, now time.Time) (authority, error) {
	key, err := d.loadKey(name + ".key")
	if err != nil {
		return authority{}, err
	}
	file := d.path("pki", name+".crt")
	certs, err := cert.CertsFromFile(file)
	switch {
	case err == nil && now.After(certs[0].NotAfter):
		return authority{}, fmt.Errorf("the control plane's CA certificate %s expired at %s: check the clock of this machine; if it is "+
			"right, delete the file and every kubeconfig made from it, and start again", file, certs[0].NotAfter.Format(time.RFC3339))
	case err == nil:
		return authority{cert: certs[0], key: key}, nil
	case !errors.Is(err, fs.ErrNotExist):
		return authority{}, fmt.Errorf("the control plane's CA certificate %s cannot be read: %w: restore it, or delete it to get a new CA", file, err)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: commonName}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		NotAfter: now.Add(caLifetime),
	}
	made, err := sign(template, template, key.Public(), key, now)
	if err != nil {
		return authority{}, err
	}
	encoded, err := cert.EncodeCertificates(made)
	if err != nil {
		return authority{}, fmt.Errorf("encode the certificate of %s: %w", commonName, err)
	}
	if err := writeFileAtomic(file, encoded); err != nil {
		return authority{}, unusable(d.root, err)
	}
	return authority{cert: made, key: key}, nil
}

// loadKey reads a private key, or makes a P-256 key.
func (d *dataDir) loadKey(name string) (crypto.Signer, error) {
	file := d.path("pki", name)
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		key, encoded, err := newKey()
		if err != nil {
			return nil, err
		}
		if err := writeFileAtomic(file, encoded); err != nil {
			return nil, unusable(d.root, err)
		}
		return key, nil
	}
	if err != nil {
		return nil, unusable(d.root, err)
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(data)
	if err != nil {
		return nil, fmt.Errorf("the private key %s cannot be read: %w: restore it from a copy, or start with an empty --data-dir", file, err)
	}
	key, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("the private key %s cannot sign: restore it from a copy, or start with an empty --data-dir", file)
	}
	return key, nil
}

// issue signs a leaf certificate for a fresh key and writes both.
func (d *dataDir) issue(name string, ca authority, template *x509.Certificate, now time.Time) (keyPair, error) {
	pair := keyPair{cert: d.path("pki", name+".crt"), key: d.path("pki", name+".key")}
	certPEM, keyPEM, err := ca.issue(template, now)
	if err != nil {
		return keyPair{}, err
	}
	if err := errors.Join(writeFileAtomic(pair.key, keyPEM), writeFileAtomic(pair.cert, certPEM)); err != nil {
		return keyPair{}, unusable(d.root, err)
	}
	return pair, nil
}

// issue returns a certificate of this authority and its fresh P-256 key, both in PEM. It never outlives the authority.
func (a authority) issue(template *x509.Certificate, now time.Time) (certPEM, keyPEM []byte, err error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	template.NotAfter = now.Add(leafLifetime)
	if template.NotAfter.After(a.cert.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	made, err := sign(template, a.cert, key.Public(), a.key, now)
	if err != nil {
		return nil, nil, err
	}
	certPEM, err = cert.EncodeCertificates(made)
	return certPEM, keyPEM, err
}

func sign(template, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer, now time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("draw a serial number: %w", err)
	}
	template.SerialNumber = serial.Add(serial, big.NewInt(1)) // RFC 5280 section 4.1.2.2: positive
	template.NotBefore = now.Add(-backdate)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of %q: %w", template.Subject.CommonName, err)
	}
	return x509.ParseCertificate(der)
}

func newKey() (crypto.Signer, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generate a private key: %w", err)
	}
	encoded, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encode a private key: %w", err)
	}
	return key, encoded, nil
}

// servingTemplate names the API server in all the ways in which clients may call it.
func servingTemplate(listen net.IP) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{
			"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, net.ParseIP(serviceIP), listen},
	}
}

// clientTemplate is the certificate by which Kubernetes knows a user: common name and organizations.
func clientTemplate(user string, groups []string) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}
