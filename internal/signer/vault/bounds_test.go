package vault

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig/growth"
)

// TestSessionsAreBounded: a tenant makes Issuers with large CA bundles and deletes them. What is kept of those that are
// there has a bound in bytes, and nothing is kept of one that is gone.
func TestSessionsAreBounded(t *testing.T) {
	growth.NotUnderRace(t)
	w, bundle := newWorld(t, newStandIn(t, plain)), manyRoots(t, 300_000)
	make1 := func(n int) types.UID {
		issuer := w.issuer("team", func(v *certmanagerv1.VaultIssuer) {
			w.byToken(v)
			v.CABundle = bytes.Clone(bundle)
		})
		issuer.SetUID(types.UID(fmt.Sprint(n)))
		if _, err := w.session(t.Context(), issuer); err != nil {
			t.Fatal(err)
		}
		return issuer.GetUID()
	}
	before := heap()
	for n := range 100 {
		make1(n)
	}
	if grown := heap() - before; grown > 6<<20 {
		t.Errorf("%d KiB are kept of 100 Issuers of one namespace", grown>>10)
	}
	for n := range 100 {
		w.Forget(make1(n))
	}
	if grown := heap() - before; grown > 1<<20 {
		t.Errorf("%d KiB are kept of Issuers that are gone", grown>>10)
	}
}

// TestAllOfASessionCounts: whatever an issuer has that is large, not much is kept of as many Issuers as a namespace may
// have. The Secrets are gone and the issuers changed by the time, so that nothing else holds what a session does.
func TestAllOfASessionCounts(t *testing.T) {
	growth.NotUnderRace(t)
	const size, issuers = 60_000, 250
	key := newKey(t)
	long, pair := strings.Repeat("x", size), map[string]string{"tls.key": keyPEM(t, key)}
	leaf := certPEM(issue(t, "client", false, key, nil, key))
	pair["tls.crt"] = strings.Repeat(leaf, size/len(leaf))
	for name, c := range map[string]struct {
		secret map[string]string
		token  string // Vault's
		change func(*certmanagerv1.VaultIssuer)
	}{
		"a token": {secret: map[string]string{"token": long}, change: func(v *certmanagerv1.VaultIssuer) {
			v.Auth.TokenSecretRef = &cmmeta.SecretKeySelector{Name: "large"}
		}},
		"a secret id": {secret: map[string]string{"id": long}, change: func(v *certmanagerv1.VaultIssuer) {
			v.Auth.AppRole = &certmanagerv1.VaultAppRole{RoleID: "r", SecretRef: cmmeta.SecretKeySelector{Name: "large", Key: "id"}}
		}},
		"a role id": {secret: map[string]string{"id": "x"}, change: func(v *certmanagerv1.VaultIssuer) {
			v.Auth.AppRole = &certmanagerv1.VaultAppRole{RoleID: strings.Clone(long), SecretRef: cmmeta.SecretKeySelector{Name: "large", Key: "id"}}
		}},
		"a client certificate": {secret: pair, change: func(v *certmanagerv1.VaultIssuer) {
			v.Auth.ClientCertificate = &certmanagerv1.VaultClientCertificateAuth{SecretName: "large"}
		}},
		"a service account's token": {secret: map[string]string{"token": long}, change: func(v *certmanagerv1.VaultIssuer) {
			v.Auth.Kubernetes = &certmanagerv1.VaultKubernetesAuth{Role: "r", SecretRef: cmmeta.SecretKeySelector{Name: "large"}}
		}},
		"an issuer": {change: func(v *certmanagerv1.VaultIssuer) {
			v.Auth.Kubernetes = &certmanagerv1.VaultKubernetesAuth{Role: "r", ServiceAccountRef: &acmev1.ServiceAccountRef{Name: "sa"}}
		}},
		"what Vault grants": {token: strings.Repeat("s", 3*size), secret: map[string]string{"id": "x"}, change: func(v *certmanagerv1.VaultIssuer) {
			v.Auth.AppRole = &certmanagerv1.VaultAppRole{RoleID: "r", SecretRef: cmmeta.SecretKeySelector{Name: "large", Key: "id"}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			vault := newStandIn(t, plain)
			w := newWorld(t, vault)
			if c.token != "" {
				vault.say["/v1/auth/approle/login"] = answering{200, `{"auth":{"client_token":"` + c.token + `"}}`}
			}
			before := heap()
			for n := range issuers {
				fresh := map[string]string{}
				for key, value := range c.secret {
					fresh[key] = strings.Clone(value)
				}
				w.secrets.put("team", "large", fresh)
				issuer := w.issuer("team", c.change)
				issuer.SetUID(types.UID(fmt.Sprint(n)))
				issuer.SetAnnotations(map[string]string{"large": strings.Clone(long)})
				session, err := w.session(t.Context(), issuer)
				if err == nil && c.token != "" && n < issuers/4 { // each has connections, too
					err = session.verify(t.Context())
				}
				if err != nil {
					t.Fatal(err)
				}
				vault.mu.Lock()
				vault.calls = nil
				vault.mu.Unlock()
			}
			w.secrets.put("team", "large", nil)
			if grown := heap() - before; grown > 7<<20 {
				t.Errorf("%d KiB are kept of %d Issuers of one namespace", grown>>10, issuers)
			} else {
				t.Logf("%d KiB", grown>>10)
			}
			runtime.KeepAlive(w)
		})
	}
}

// heap is how many bytes are in use.
func heap() int {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}

// manyRoots returns certificates in PEM, no two alike, of so many bytes.
func manyRoots(t *testing.T, size int) (out []byte) {
	t.Helper()
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	for n := int64(1); len(out) < size; n++ {
		template := &x509.Certificate{SerialNumber: big.NewInt(n), NotAfter: time.Now().Add(time.Hour)}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return out
}

// TestHeadersAreBounded: Go's own bound is 10 MiB, and short lines of headers take 16 times as much once they are read.
func TestHeadersAreBounded(t *testing.T) {
	hostile := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for n := range 20_000 {
			w.Header().Set(fmt.Sprintf("X-%x", n), "")
		}
	}))
	defer hostile.Close()
	w := newWorld(t, newStandIn(t, plain))
	_, f := w.probe(w.issuer("team", func(v *certmanagerv1.VaultIssuer) {
		w.byToken(v)
		v.Server = hostile.URL
	}))
	if f == nil || f.Kind != fault.KindAfter || !strings.Contains(f.Error(), "more than 64 KiB of headers") {
		t.Errorf("%v", f)
	}
}
