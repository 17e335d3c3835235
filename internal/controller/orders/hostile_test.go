package orders_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/slow"
)

// maxMemory is what the controllers may take at any time, in bytes, whatever servers answer.
const maxMemory = 300 << 20

// hostileServers is how many servers are hostile in each of three ways.
const hostileServers = 8

// hostiles are ACME servers that send as much as they can, by the first part of the path: chains of 15 MiB with 200
// alternates, orders of 340,000 authorizations, directories of 60,000 profiles. Each name after that is a server.
type hostiles struct {
	*httptest.Server

	chain, order, profiles []byte
	// served counts the large answers, and read the chains that a client has taken to the end.
	served, read atomic.Int64
}

func newHostiles(t *testing.T) *hostiles {
	t.Helper()
	certificate := someCertificate(t)
	h := &hostiles{
		chain:    bytes.Repeat(certificate, 15<<20/len(certificate)),
		order:    []byte(`{"status":"pending","finalize":"/f","authorizations":[` + strings.TrimSuffix(strings.Repeat(`"",`, 340_000), ",") + `]}`),
		profiles: []byte(`,"meta":{"profiles":{`),
	}
	for i := range 60_000 {
		h.profiles = fmt.Appendf(h.profiles, `"%x":"",`, i)
	}
	h.profiles = append(bytes.TrimSuffix(h.profiles, []byte(",")), "}}"...)
	h.Server = httptest.NewServer(h)
	t.Cleanup(h.Close)
	return h
}

// ServeHTTP answers whatever the account, nonce and signature are.
func (h *hostiles) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 3)
	way, base, what := parts[0], h.URL+"/"+parts[0]+"/"+parts[1], parts[2]
	w.Header().Set("Replay-Nonce", "nonce")
	switch {
	case what == "dir":
		_, _ = fmt.Fprintf(w, `{"newNonce":"%[1]s/nonce","newAccount":"%[1]s/account","newOrder":"%[1]s/order"`, base)
		if way == "directories" {
			h.served.Add(1)
			_, _ = w.Write(h.profiles)
		}
		_, _ = io.WriteString(w, "}")
	case what == "account":
		w.Header().Set("Location", base+"/account/1")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"status":"valid"}`)
	case what == "order" && way == "orders":
		h.served.Add(1)
		w.Header().Set("Location", base+"/order/1")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(h.order)
	case what == "order":
		w.Header().Set("Location", base+"/order/1")
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, `{"status":"valid","finalize":"%[1]s/f","certificate":"%[1]s/chain","authorizations":["%[1]s/authz"]}`, base)
	case strings.HasPrefix(what, "chain"):
		h.served.Add(1)
		for i := range 200 {
			w.Header().Add("Link", fmt.Sprintf(`<%s/chain/%d>;rel="alternate"`, base, i))
		}
		if _, err := w.Write(h.chain); err == nil {
			h.read.Add(1)
		}
	}
}

// someCertificate is a certificate in PEM, for no name.
func someCertificate(t *testing.T) []byte {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func newKey(t *testing.T) crypto.Signer {
	t.Helper()
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// reportMemory writes the highest amount of memory that the process has had, each time it grows, until ctx ends.
func reportMemory(ctx context.Context, w io.Writer) {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for peak := uint64(0); ; {
		metrics.Read(samples)
		if now := samples[0].Value.Uint64() - samples[1].Value.Uint64(); now > peak {
			peak = now
			_, _ = fmt.Fprintln(w, peak)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// apart runs the controllers of a world in a process of their own, and returns what their highest amount of memory is.
func apart(t *testing.T, w *rig.World) (peak *atomic.Int64) {
	t.Helper()
	text, err := json.Marshal(starved{Kubeconfig: kubeconfig(t, w.Admin), Namespace: w.Namespace, Nameserver: "127.0.0.1:1", Port: 1})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), starvedEnv+"="+string(text)), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	peak, done := new(atomic.Int64), make(chan struct{})
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if n, err := strconv.ParseInt(lines.Text(), 10, 64); err == nil {
				peak.Store(n)
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
		_ = cmd.Wait()
	})
	return peak
}

// TestHostileServersExhaustNothing: eight Issuers each at servers that send long chains, large orders and large
// directories. The controllers read none of the chains to its end, and their memory stays below its bound. The Orders
// and Issuers say what was too large, and another tenant's certificates are issued meanwhile.
func TestHostileServersExhaustNothing(t *testing.T) {
	w, h := neighbour{rig.NewWorld(t)}, newHostiles(t)
	peak := apart(t, w.World)
	w.Create(t, &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "self"}, Spec: certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}})
	w.median(t, "before")
	stop := h.attack(t, w.World)
	h.begun(t)
	w.median(t, "during")
	requests := stop()
	for n := range hostileServers {
		said(t, w.World, fmt.Sprintf("chains-%d", n), "the answer is too large: the body is longer than 95000 bytes")
		said(t, w.World, fmt.Sprintf("orders-%d", n), "the answer is too large: more than 20000 authorizations")
		refused(t, w.World, fmt.Sprintf("directories-%d", n), "the answer is too large")
	}
	t.Logf("%d requests were made at hostile servers, which sent %d large answers, of which %d chains were read to the end; at most %d MiB of memory",
		requests, h.served.Load(), h.read.Load(), peak.Load()>>20)
	if h.read.Load() > 0 {
		t.Errorf("%d chains of 15 MiB were read to the end", h.read.Load())
	}
	if peak.Load() > maxMemory || peak.Load() == 0 {
		t.Errorf("the controllers took %d MiB of memory", peak.Load()>>20)
	}
}

// TestHostileServersTakeNoTime: another tenant's certificates come as fast as they did before the servers were asked.
func TestHostileServersTakeNoTime(t *testing.T) {
	slow.Test(t, slow.Numbers)
	w, h := neighbour{rig.NewWorld(t)}, newHostiles(t)
	apart(t, w.World)
	w.Create(t, &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "self"}, Spec: certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}})
	usual, run := w.median(t, "before"), 0
	defer h.attack(t, w.World)()
	h.begun(t)
	t.Logf("a certificate takes %s", usual)
	slow.Best(t, "a certificate beside hostile servers", 5*usual+3*time.Second, func() time.Duration { // the machine has to send all that, too
		run++
		return w.median(t, fmt.Sprintf("during-%d", run))
	})
}

// begun waits until the attack is under way.
func (h *hostiles) begun(t *testing.T) {
	t.Helper()
	rig.Eventually(t, "the attack has begun", func(context.Context) string {
		if n := h.served.Load(); n < 24 {
			return fmt.Sprintf("%d large answers", n)
		}
		return ""
	})
}

// neighbour is a tenant beside hostile ones, with an Issuer "self".
type neighbour struct{ *rig.World }

// median is how long a certificate takes, in the middle of seven.
func (w neighbour) median(t *testing.T, round string) time.Duration {
	t.Helper()
	var took []time.Duration
	for n := range 7 {
		name, began := fmt.Sprintf("%s-%d", round, n), time.Now()
		w.Create(t, &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certmanagerv1.CertificateSpec{
			SecretName: name, CommonName: name, IssuerRef: cmmeta.IssuerReference{Name: "self"},
			PrivateKey: &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm},
		}})
		rig.Eventually(t, name+" is issued", func(ctx context.Context) string {
			crt := &certmanagerv1.Certificate{}
			if err := w.Get(ctx, name, crt); err != nil {
				return err.Error()
			}
			if !certmanagerv1.HasCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionReady, cmmeta.ConditionTrue) {
				return fmt.Sprintf("%+v", crt.Status.Conditions)
			}
			return ""
		})
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// attack creates Issuers at hostile servers, and requests for them, a few each second, until stop is called. It returns
// how many.
func (h *hostiles) attack(t *testing.T, w *rig.World) (stop func() (requests int)) {
	t.Helper()
	var names []string
	for n := range hostileServers {
		for _, way := range []string{"chains", "orders", "directories"} {
			name := fmt.Sprintf("%s-%d", way, n)
			names = append(names, name)
			w.Create(t, &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{
				Server: h.URL + "/" + way + "/" + name + "/dir", PrivateKey: cmmeta.SecretKeySelector{Name: name}, PreferredChain: "none of these",
			}}})
		}
	}
	csr, err := pki.CreateCSR(pki.CSRTemplate{Subject: pkix.Name{CommonName: "a.example.com"}, AltNames: pki.AltNames{DNSNames: []string{"a.example.com"}}}, newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	requests, stopped, done := 0, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(300 * time.Millisecond)
		defer tick.Stop()
		for ; ; requests++ {
			name := names[requests%len(names)]
			if err := w.Client.Create(t.Context(), &certmanagerv1.CertificateRequest{
				ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: fmt.Sprintf("%s-%d", name, requests/len(names))},
				Spec:       certmanagerv1.CertificateRequestSpec{Request: csr, IssuerRef: cmmeta.IssuerReference{Name: name}},
			}); err != nil {
				t.Error(err)
				return
			}
			if requests < len(names) {
				continue
			}
			select {
			case <-stopped:
				return
			case <-tick.C:
			}
		}
	}()
	return func() int {
		close(stopped)
		<-done
		return requests
	}
}

// said waits until the first request of an Issuer has failed with the words.
func said(t *testing.T, w *rig.World, issuer, words string) {
	t.Helper()
	rig.Eventually(t, "the request has failed", func(ctx context.Context) string {
		cr := &certmanagerv1.CertificateRequest{}
		if err := w.Get(ctx, issuer+"-0", cr); err != nil {
			return err.Error()
		}
		if slices.ContainsFunc(cr.Status.Conditions, func(c certmanagerv1.CertificateRequestCondition) bool {
			return c.Reason == certmanagerv1.CertificateRequestReasonFailed && strings.Contains(c.Message, words)
		}) {
			return ""
		}
		return fmt.Sprintf("%+v", cr.Status.Conditions)
	})
}

// refused waits until an Issuer is not ready and says so in the words.
func refused(t *testing.T, w *rig.World, name, words string) {
	t.Helper()
	rig.Eventually(t, "the Issuer says so", func(ctx context.Context) string {
		issuer := &certmanagerv1.Issuer{}
		if err := w.Get(ctx, name, issuer); err != nil {
			return err.Error()
		}
		ready := certmanagerv1.FindIssuerCondition(issuer.Status.Conditions, certmanagerv1.IssuerConditionReady)
		if ready == nil || ready.Status != cmmeta.ConditionFalse || !strings.Contains(ready.Message, words) {
			return fmt.Sprintf("%+v", ready)
		}
		return ""
	})
}
