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

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/pki"
)

// TestSessionsAreBounded: a tenant makes Issuers with large CA bundles and deletes them. What is kept of those that are
// there has a bound in bytes, and nothing is kept of one that is gone.
func TestSessionsAreBounded(t *testing.T) {
	w, bundle := newWorld(t, newStandIn(t, plain)), manyRoots(t, 300_000)
	heap := func() int {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return int(stats.HeapAlloc)
	}
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
