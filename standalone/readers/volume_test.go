package readers_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	volumeutil "k8s.io/kubernetes/pkg/volume/util"

	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/tool"
)

// mount writes the volume of a Pod as the kubelet does: its key and its chain in one file, and the roots in another.
// Both change at once.
func (k *node) mount(pod *corev1.Pod, roots []*x509.Certificate, dir string) {
	k.t.Helper()
	key, chain, err := k.GetPodCertificateCredentialBundle(k.t.Context(), pod.Namespace, pod.Name, string(pod.UID), "identity", 0)
	if err != nil {
		k.t.Fatal(err)
	}
	var bundle []byte
	for _, root := range roots {
		bundle = append(bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Raw})...)
	}
	files, err := volumeutil.NewAtomicWriter(dir, pod.Name)
	if err != nil {
		k.t.Fatal(err)
	}
	if err := files.Write(map[string]volumeutil.FileProjection{
		"credentials.pem": {Data: append(key, chain...), Mode: 0o600}, "roots.pem": {Data: bundle, Mode: 0o644},
	}, nil); err != nil {
		k.t.Fatal(err)
	}
}

// serve answers TLS connections with the files of a volume, which it reads for each, and tells the client who it is.
func serve(t *testing.T, dir string) (address string) {
	t.Helper()
	config := &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "credentials.pem"), filepath.Join(dir, "credentials.pem"))
		if err != nil {
			return nil, err
		}
		text, err := os.ReadFile(filepath.Join(dir, "roots.pem"))
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(text)
		return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots}, err
	}}
	listener, err := tls.Listen("tcp4", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go answer(t.Context(), conn)
		}
	}()
	return listener.Addr().String()
}

func answer(ctx context.Context, conn net.Conn) {
	defer func() { _ = conn.Close() }()
	if c, is := conn.(*tls.Conn); is && c.HandshakeContext(ctx) == nil {
		_, _ = fmt.Fprintf(c, "you are %s\n", c.ConnectionState().PeerCertificates[0].URIs[0])
	}
}

// selfSigned is a root of somebody else.
func selfSigned(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "others"}, IsCA: true, BasicConstraintsValid: true, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// TestVolume: the files of two Pods, as the kubelet writes them, serve programs as they are: a server in Go and
// `openssl s_client`, each in a process of its own, verify each other, also when the certificate of the server was
// refreshed. A client with a root of somebody else does not.
func TestVolume(t *testing.T) {
	t.Parallel()
	openssl := tool.Path(t, "openssl")
	w, signerName := podsWorld(t, rig.Cluster(t))
	web, api := pod(t, w, "web", signerName), pod(t, w, "api", signerName)
	k := newNode(t, w, web, api)
	roots := k.roots(signerName, 1)
	ofWeb, ofAPI := t.TempDir(), t.TempDir()
	k.files(web, tls.Certificate{})
	before := k.files(api, tls.Certificate{})
	k.mount(web, roots, ofWeb)
	k.mount(api, roots, ofAPI)
	address := serve(t, ofAPI)
	// connect returns what openssl says, which begins with the certificates of the server.
	connect := func(roots string) string {
		cmd := exec.CommandContext(t.Context(), openssl, "s_client", "-connect", address, "-cert", "credentials.pem", "-key", "credentials.pem", "-CAfile", roots,
			"-verify_return_error", "-verify_hostname", "api."+w.Namespace+".svc", "-ign_eof", "-showcerts")
		cmd.Dir = ofWeb
		said, _ := cmd.CombinedOutput() // it ends with an error when the server ends the connection
		return string(said)
	}
	leafOf := func(pair tls.Certificate) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}))
	}
	want := "you are spiffe://" + trustDomain + "/ns/" + w.Namespace + "/sa/web"
	if said := connect("roots.pem"); !strings.Contains(said, want) || !strings.Contains(said, leafOf(before)) {
		t.Errorf("openssl says:\n%s", said)
	}
	k.refreshed(api, before, roots[0])
	k.Clear() // its clock is ahead: each new certificate is due again at once
	k.mount(api, roots, ofAPI)
	if said := connect("roots.pem"); !strings.Contains(said, want) || strings.Contains(said, leafOf(before)) {
		t.Errorf("after a refresh, openssl says:\n%s", said)
	}
	if err := os.WriteFile(filepath.Join(ofWeb, "others.pem"), selfSigned(t), 0o600); err != nil {
		t.Fatal(err)
	}
	if said := connect("others.pem"); strings.Contains(said, want) || !strings.Contains(said, "verify error") {
		t.Errorf("with a root of somebody else, openssl says:\n%s", said)
	}
}
