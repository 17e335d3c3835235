package venafi

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/Venafi/vcert/v5/pkg/certificate"
	"github.com/Venafi/vcert/v5/pkg/venafi/fake"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig/tppserver"
	"chancery.dev/internal/signer"
)

// A whole issuance by the library's own fake.
func TestFakeConnector(t *testing.T) {
	block, _ := pem.Decode([]byte(fake.CaCertPEM))
	root, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []pki.KeySpec{{Algorithm: "RSA"}, {Algorithm: "ECDSA"}} {
		for _, kind := range []string{requestKind, signingKind} {
			w := newWorld(t)
			w.signer.connect = func(_ *session, x *exchange) (connector, error) {
				x.step = stepLogin
				return fake.NewConnector(false, nil), nil
			}
			w.secrets.put("ns/venafi", "api-key", "key")
			i := issuer("venafi", certmanagerv1.VenafiIssuer{Zone: "a", Cloud: &certmanagerv1.VenafiCloud{
				APITokenSecretRef: cmmeta.SecretKeySelector{Name: "venafi"},
			}})
			w.inOrder(i)
			r := w.request(kind, newKey(t, key), webTemplate())
			result, _, err := w.finish(i, r)
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Source.GetAnnotations()) != 1 {
				t.Errorf("annotations %v", r.Source.GetAnnotations())
			}
			checkFake(t, result.Bundle, root, r)
		}
	}
}

// checkFake is verify but for the dates: the fake's CA has expired.
func checkFake(t *testing.T, b signer.Bundle, root *x509.Certificate, r signer.Request) {
	t.Helper()
	chain, err := pki.DecodeChain(b.Chain)
	if err != nil || len(chain) != 1 {
		t.Fatalf("chain %d, %v", len(chain), err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(root)
	at := root.NotAfter.Add(-time.Hour)
	if chain[0].NotBefore.After(at) || chain[0].NotAfter.Before(at) {
		err = chain[0].CheckSignatureFrom(root)
	} else {
		_, err = chain[0].Verify(x509.VerifyOptions{Roots: roots, CurrentTime: at, DNSName: "www.example.com"})
	}
	csr, _ := pki.DecodeCSR(r.CSR)
	if err != nil || !pki.PublicKeysEqual(chain[0].PublicKey, csr.PublicKey) || !slices.Equal(chain[0].DNSNames, csr.DNSNames) || string(b.CA) != string(pki.EncodeCertificates(root)) {
		t.Errorf("%v: leaf %+v", err, chain[0].DNSNames)
	}
}

func TestCustomFields(t *testing.T) {
	keys := wordsOf(signingKind).customFieldKeys
	for _, c := range []struct {
		name, issuer, experimental, own, want, err string
	}{
		{name: "none", want: ""},
		{name: "the issuer's", issuer: `[{"name":"a","value":"1"}]`, want: "a=1"},
		{name: "merged: the request wins by name", issuer: `[{"name":"a","value":"1"},{"name":"b","value":"2"}]`, own: `[{"name":"a","value":"3"},{"name":"a","value":"4"}]`, want: "b=2 a=3 a=4"},
		{name: "the CSR's own form first", experimental: `[{"name":"a","value":"1","type":"Plain"}]`, own: `[{"name":"a","value":"2"}]`, want: "a=1"},
		{name: "no JSON", own: `a=1`, err: "annotation venafi.cert-manager.io/custom-fields of the request: invalid character"},
		{name: "no list", experimental: `{"name":"a"}`, err: "annotation venafi.experimental.cert-manager.io/custom-fields of the request"},
		{name: "null", own: `null`, err: "leave the annotation out"},
		{name: "the issuer's is bad", issuer: `[`, err: "annotation venafi.cert-manager.io/custom-fields of the issuer"},
		{name: "another type", own: `[{"name":"a","value":"1","type":"Secret"}]`, err: `entry 1, "a", is of the type "Secret"`},
		{name: "no name", own: `[{"value":"1"}]`, err: "entry 1 has no name"},
	} {
		fields, err := customFields(map[string]string{certmanagerv1.VenafiCustomFieldsAnnotation: c.issuer}, map[string]string{keys[0]: c.experimental, keys[1]: c.own}, keys)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: got %v, want %q", c.name, err, c.err)
			}
			continue
		}
		var got []string
		for _, f := range fields[1:] {
			got = append(got, f.Name+"="+f.Value)
		}
		if err != nil || strings.Join(got, " ") != c.want || fields[0].Value != "cert-manager" {
			t.Errorf("%s: %v, %v, want %s", c.name, fields, err, c.want)
		}
	}
}

// A request with custom fields that cannot be read fails for good, in both kinds, and
// before anybody is asked.
func TestCustomFieldsEndTheRequest(t *testing.T) {
	w, tpp := newWorld(t), tppserver.Start(t)
	for kind, reason := range map[string]string{requestKind: "CustomFieldsError", signingKind: "ErrorCustomFields"} {
		r := w.web(kind)
		r.Source.GetAnnotations()[certmanagerv1.VenafiCustomFieldsAnnotation] = "team: web"
		_, err := w.signer.Sign(t.Context(), issuer("venafi", tpp.Spec("venafi")), r)
		if f := fault.Of(err); f == nil || f.Kind != fault.KindTerminal || f.Reason != reason || f.Class != fault.ClassPermanent || !strings.Contains(f.Error(), "JSON list") {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if seen := tpp.Take(); len(seen) > 0 {
		t.Errorf("called %v", calls(seen))
	}
}

// What a look at an issuer finds.
func TestProbe(t *testing.T) {
	tpp := tppserver.Start(t)
	closed := tppserver.Start(t)
	closed.Close()
	stranger, err := tppserver.NewAuthority("another root", nil)
	if err != nil {
		t.Fatal(err)
	}
	other := pki.EncodeCertificates(stranger.Certificate)
	for _, c := range []struct {
		name         string
		secret       []string
		spec         func(*certmanagerv1.VenafiIssuer)
		reason, says string
		kind         fault.Kind
		class        fault.Class
	}{
		{name: "a token", secret: []string{"access-token", "good"}},
		{name: "bundle in a Secret", secret: []string{"access-token", "good", "ca.crt", string(tpp.Spec("venafi").TPP.CABundle)}, spec: func(s *certmanagerv1.VenafiIssuer) {
			s.TPP.CABundle, s.TPP.CABundleSecretRef = nil, &cmmeta.SecretKeySelector{Name: "venafi"}
		}},
		{name: "bundle missing in a Secret", secret: []string{"access-token", "good"}, reason: "ErrorSetup", kind: fault.KindPending, says: "Secret ns/venafi has no entry ca.crt", spec: func(s *certmanagerv1.VenafiIssuer) {
			s.TPP.CABundle, s.TPP.CABundleSecretRef = nil, &cmmeta.SecretKeySelector{Name: "venafi"}
		}},
		{name: "bundle of somebody else", secret: []string{"access-token", "good"}, reason: "ErrorSetup", kind: fault.KindAfter, class: fault.ClassUnavailable, says: "cannot be reached", spec: func(s *certmanagerv1.VenafiIssuer) { s.TPP.CABundle = other }},
		{name: "no bundle for a private server", secret: []string{"access-token", "good"}, reason: "ErrorSetup", kind: fault.KindAfter, class: fault.ClassUnavailable, says: "unknown authority", spec: func(s *certmanagerv1.VenafiIssuer) { s.TPP.CABundle = nil }},
		{name: "a long token", secret: []string{"access-token", strings.Repeat("x", limits.CredentialBytes+1)}, reason: "ErrorSetup", kind: fault.KindPending, says: "entry access-token of Secret ns/venafi has more than 65536 bytes"},
		{name: "a long bundle", secret: []string{"access-token", "good"}, reason: "ErrorSetup", kind: fault.KindPending, says: "more bytes of PEM", spec: func(s *certmanagerv1.VenafiIssuer) {
			s.TPP.CABundle = slices.Repeat([]byte("x"), limits.BundlePEM+1)
		}},
		{name: "no Secret", reason: "ErrorSetup", kind: fault.KindPending, says: "Secret ns/venafi does not exist: create it with access-token"},
		{name: "half a Secret", secret: []string{"username", "me"}, reason: "ErrorSetup", kind: fault.KindPending, says: "neither an entry access-token nor both username and password"},
		{name: "a wrong token", secret: []string{"access-token", "bad"}, reason: "AuthFailed", kind: fault.KindAfter, class: fault.ClassCredential, says: "The access token is expired"},
		{name: "a wrong password", secret: []string{"username", "me", "password", "wrong"}, reason: "AuthFailed", kind: fault.KindAfter, class: fault.ClassCredential, says: "combination not valid"},
		{name: "no such zone", secret: []string{"access-token", "good"}, reason: "ErrorSetup", kind: fault.KindAfter, class: fault.ClassNotFound, says: `has no zone "Nowhere"`, spec: func(s *certmanagerv1.VenafiIssuer) { s.Zone = "Nowhere" }},
		{name: "no address", secret: []string{"access-token", "good"}, reason: "ErrorSetup", kind: fault.KindPending, says: `spec.venafi.tpp.url "https://" is not the address of a server`, spec: func(s *certmanagerv1.VenafiIssuer) { s.TPP.URL = "https://" }},
		{name: "nobody there", secret: []string{"access-token", "good"}, reason: "ErrorSetup", kind: fault.KindAfter, class: fault.ClassUnavailable, says: "cannot be reached", spec: func(s *certmanagerv1.VenafiIssuer) { s.TPP.URL = closed.URL }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			if c.secret != nil {
				w.secrets.put("ns/venafi", c.secret...)
			}
			spec := tpp.Spec("venafi")
			if c.spec != nil {
				c.spec(&spec)
			}
			if c.reason == "" {
				w.inOrder(issuer("venafi", spec))
				return
			}
			_, f := w.probe(issuer("venafi", spec))
			if f == nil || f.Reason != c.reason || f.Kind != c.kind || f.Class != c.class || !strings.Contains(f.Error(), c.says) {
				t.Fatalf("%+v, want %s %s, %s with %q", f, c.kind, c.class, c.reason, c.says)
			}
		})
	}
}

// An API server that is away says nothing about an issuer.
func TestProbeWithoutTheAPIServer(t *testing.T) {
	w, tpp := newWorld(t), tppserver.Start(t)
	w.secrets.err = errors.New("the API server is away")
	if facts, err := w.signer.Probe(t.Context(), issuer("venafi", tpp.Spec("venafi"))); err == nil || fault.Of(err) != nil || facts.Reason != "" {
		t.Errorf("%+v, %v", facts, err)
	}
}

// A server that wants to be left alone is, and one whose clock differs is not asked
// without end.
func TestProbeWaits(t *testing.T) {
	w, tpp := newWorld(t), tppserver.Start(t)
	w.secrets.put("ns/venafi", "access-token", "good")
	i := issuer("venafi", tpp.Spec("venafi"))
	for _, asked := range []string{"99", "Fri, 02 Jan 2026 00:01:39 GMT"} { // RFC 9110 §10.2.3: seconds or a date
		tpp.Answers("/vedsdk/certificates/checkpolicy", http.StatusTooManyRequests, "", "Retry-After", asked, "Date", "Fri, 02 Jan 2026 00:00:00 GMT")
		if _, f := w.probe(i); f == nil || f.Delay != 99*time.Second || f.Class != fault.ClassRateLimited {
			t.Errorf("limited by %q: %+v", asked, f)
		}
	}
	tpp.Change(func(s *tppserver.State) {
		delete(s.Overrides, "/vedsdk/certificates/checkpolicy")
		s.Expires = w.signer.Now().Add(-time.Minute)
	})
	w.signer.accounts = signer.Kept[*session]{}
	if facts := w.inOrder(i); facts.Until.Sub(w.signer.Now()) != tokenAgain {
		t.Errorf("a token that ended by our clock alone: %+v", facts)
	}
}

// A request of either kind waits for a Secret that is missing: a person who makes the Secret later need not ask again.
func TestMissingSecrets(t *testing.T) {
	w, tpp := newWorld(t), tppserver.Start(t)
	for kind, reason := range map[string]string{requestKind: "SecretMissing", signingKind: "SecretNotFound"} {
		_, err := w.signer.Sign(t.Context(), issuer("venafi", tpp.Spec("venafi")), w.web(kind))
		if f := fault.Of(err); f == nil || f.Kind != fault.KindPending || f.Reason != reason || !strings.Contains(f.Error(), "Secret ns/venafi does not exist") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// A certificate that has been waited for long is asked for less often.
func TestPatience(t *testing.T) {
	for waited, want := range map[time.Duration]time.Duration{
		0: firstPoll, 8 * time.Second: firstPoll, time.Minute: 15 * time.Second, time.Hour: lastPoll, -time.Hour: firstPoll,
	} {
		if got := patience(waited); got != want {
			t.Errorf("after %s: %s, want %s", waited, got, want)
		}
	}
}

// A policy that makes CAs makes nobody a CA who has not asked for it by CertificateSigningRequest: it was not asked
// then whether the requester may.
func TestCAForLeaf(t *testing.T) {
	key := newKey(t, pki.KeySpec{Algorithm: "ECDSA"})
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: now, NotAfter: now.Add(time.Hour), BasicConstraintsValid: true, IsCA: true, PublicKey: key.Public(),
		Subject: pkix.Name{CommonName: "www.example.com"},
	}
	ca, err := pki.Sign(template, template, key)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	for kind, refused := range map[string]bool{requestKind: false, signingKind: true} {
		o, err := newOrder(w.request(kind, key, webTemplate()), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = o.bundle(t.Context(), &certificate.PEMCollection{Certificate: string(pki.EncodeCertificates(ca))})
		if refused != (err != nil && strings.Contains(err.Error(), "CA certificate, which was not asked for")) {
			t.Errorf("%s: %v", kind, err)
		}
		o.r.IsCA = true
		if _, err = o.bundle(t.Context(), &certificate.PEMCollection{Certificate: string(pki.EncodeCertificates(ca))}); err != nil {
			t.Errorf("%s that asks for it: %v", kind, err)
		}
	}
}

// A port that differs from try to try would be a write of the status each time.
func TestSameTroubleSameText(t *testing.T) {
	a := &session{access: access{server: "https://tpp.example.com"}}
	said := func(port int) string {
		return a.classify(&exchange{err: &net.OpError{
			Op: "read", Net: "tcp", Source: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: port}, Err: syscall.ECONNRESET,
		}}, errors.New("the library's words")).Error()
	}
	if first, second := said(41001), said(41002); first != second || !strings.Contains(first, "connection reset") || !strings.Contains(first, a.server) {
		t.Errorf("%q, then %q", first, second)
	}
}

// An API key does not follow a redirect to another server.
func TestRedirectKeepsTheKey(t *testing.T) {
	w, cloud, thief := newWorld(t), newSaaS(t, ""), newSaaS(t, "")
	cloud.override["/v1/useraccounts"] = func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Location", thief.URL+"/v1/useraccounts")
		rw.WriteHeader(http.StatusFound)
	}
	w.secrets.put("ns/venafi", "api-key", "key")
	if _, f := w.probe(issuer("venafi", cloud.cloud())); f == nil {
		t.Error("a redirect was taken for a login")
	}
	if seen := thief.Take(); len(seen) != 0 {
		t.Errorf("the other server was asked %v with %v", calls(seen), seen[0].Header)
	}
}
