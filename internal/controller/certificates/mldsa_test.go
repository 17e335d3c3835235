package certificates_test

import (
	"crypto/tls"
	"crypto/x509"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
)

// TestMLDSAOfProcesses: two processes talk mutual TLS 1.3 by Secrets of ours, whose chains are ML-DSA from the root to
// the leaf, while the leaves, and the intermediate between them and the root, are renewed with new keys. TLS 1.2 has no
// such signatures.
func TestMLDSAOfProcesses(t *testing.T) {
	t.Parallel()
	w := &town{World: rig.NewWorld(t), dirs: map[string][]string{}, failures: map[string]int{}}
	w.Run(t, w.Config())
	certificate := func(name, issuer string, algorithm certmanagerv1.PrivateKeyAlgorithm, isCA bool) *certmanagerv1.Certificate {
		crt := newCertificate(w.World, name, issuer)
		crt.Spec.PrivateKey.Algorithm = algorithm
		if crt.Spec.IsCA = isCA; isCA {
			crt.Spec.CommonName = name
		}
		return crt
	}
	issuer := func(name string, spec certmanagerv1.IssuerSpec) *certmanagerv1.ClusterIssuer {
		return &certmanagerv1.ClusterIssuer{ObjectMeta: metav1.ObjectMeta{Name: w.ClusterName(name)}, Spec: spec}
	}
	w.Create(t,
		issuer("selfsigned", certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}), certificate("root", "selfsigned", certmanagerv1.MLDSA87KeyAlgorithm, true),
		issuer("ca", certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "root"}}), certificate("sub", "ca", certmanagerv1.MLDSA65KeyAlgorithm, true),
		issuer("sub", certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "sub"}}),
		certificate("server", "sub", certmanagerv1.MLDSA44KeyAlgorithm, false), certificate("client", "sub", certmanagerv1.MLDSA87KeyAlgorithm, false))
	for _, name := range []string{"root", "sub", "server", "client"} {
		awaitReady(t, w.World, name)
	}
	server := w.place(t, "server", "changed")
	said := server.start(t)
	if !said.Scan() {
		t.Fatal("the server does not say where it is: ", said.Err())
	}
	client := w.place(t, "client", "changed")
	client.Server, client.Name = said.Text(), "server.example.com"
	go w.count(client.start(t), "client")
	ended := make(chan struct{})
	t.Cleanup(func() { <-ended }) // before the directories go
	events := w.Watch(t, &corev1.SecretList{})
	go func() {
		defer close(ended)
		w.kubelet(events)
	}()

	w.talks(t, 5)
	before := leafOf(t, w, "server")
	renew(t, w.World, "server")
	w.talks(t, 5)
	renew(t, w.World, "sub")
	awaitSigner(t, w.World, "sub", "sub")
	for _, name := range []string{"server", "client"} {
		renew(t, w.World, name)
	}
	w.talks(t, 5)
	if done, failed := w.counted(); failed > 0 {
		t.Errorf("%d of %d handshakes failed:\n%s", failed, done, w.says())
	}
	after := leafOf(t, w, "server")
	if after.SignatureAlgorithm != x509.MLDSA65 || pki.FactsOfKey(after.PublicKey).Algorithm != pki.MLDSA44 || pki.PublicKeysEqual(after.PublicKey, before.PublicKey) ||
		after.KeyUsage != x509.KeyUsageDigitalSignature {
		t.Errorf("signed by %s, key usage %b, the same key: %t", after.SignatureAlgorithm, after.KeyUsage, pki.PublicKeysEqual(after.PublicKey, before.PublicKey))
	}
	data := secretOf(t, w.World, "client").Data
	pair, err := tls.X509KeyPair(data[cmmeta.TLSCertKey], data[cmmeta.TLSPrivateKeyKey])
	if err != nil {
		t.Fatal(err)
	}
	roots := pki.TrustPool(data[cmmeta.TLSCAKey])
	for version, works := range map[uint16]bool{tls.VersionTLS12: false, tls.VersionTLS13: true} {
		conn, err := tls.Dial("tcp", client.Server, &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, ServerName: client.Name, MaxVersion: version})
		if err == nil {
			_, err = conn.Read(make([]byte, 1))
			_ = conn.Close()
		}
		if (err == nil) != works {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
	}
	for name, most := range map[string]int{"root": 24 << 10, "sub": 32 << 10, "server": 40 << 10} { // far from what docs/limits.md allows
		size := 0
		for _, value := range secretOf(t, w.World, name).Data {
			size += len(value)
		}
		if t.Logf("Secret %s has %d bytes", name, size); size > most {
			t.Errorf("more than %d", most)
		}
	}
}

// leafOf is the certificate in a Secret.
func leafOf(t *testing.T, w *town, name string) *x509.Certificate {
	t.Helper()
	chain, err := pki.DecodeChain(secretOf(t, w.World, name).Data[cmmeta.TLSCertKey])
	if err != nil {
		t.Fatal(err)
	}
	return chain[0]
}
