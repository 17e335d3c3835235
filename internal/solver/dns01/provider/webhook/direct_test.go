package webhook_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/solver/conformance"
	"chancery.dev/internal/solver/dns01"
	"chancery.dev/internal/solver/dns01/provider/limit"
	"chancery.dev/internal/solver/dns01/provider/webhook"
)

// secrets is the namespace team's Secrets by name.
type secrets map[string]map[string][]byte

func (s secrets) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	data, ok := s[name]
	if !ok || namespace != "team" {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
	}
	return &corev1.Secret{Data: data}, nil
}

// authority signs for nobody but itself: a certificate, as a Secret has it, and its pool.
type authority struct {
	pair   tls.Certificate
	bundle []byte
	secret map[string][]byte
}

func newAuthority(t *testing.T, name string) authority {
	t.Helper()
	pair, bundle := certificate(t, name)
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	return authority{pair, bundle, map[string][]byte{"tls.crt": bundle, "tls.key": key, "ca.crt": bundle}}
}

// mutual serves a handler by TLS to those who show the certificate of one client.
func mutual(t *testing.T, own, client authority, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own.pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool()}
	s.TLS.ClientCAs.AppendCertsFromPEM(client.bundle)
	// By TLS 1.3 a client may find the connection gone before it reads that it was refused.
	s.TLS.MaxVersion = tls.VersionTLS12
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// at is the address of a server by the name in its certificate.
func at(s *httptest.Server, path string) string {
	return strings.Replace(s.URL, "127.0.0.1", "localhost", 1) + path
}

func direct(t *testing.T, d webhook.Direct, config *acmev1.WebhookProvider) *webhook.Provider {
	t.Helper()
	config.Config = &apiextensionsv1.JSON{Raw: []byte(`{"zone":"example.test","ttl":60}`)}
	p, err := d.Provider(t.Context(), config, dns01.Use{UID: "1234", Namespace: "team", Ambient: true})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A webhook that is an HTTPS server does what an aggregated one does, and gets the same
// payload, with the client certificate that the solver names.
func TestDirectConformance(t *testing.T) {
	own, client, stranger := newAuthority(t, "localhost"), newAuthority(t, "chancery"), newAuthority(t, "stranger")
	s := &server{}
	hs := mutual(t, own, client, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/challenge" || r.URL.RawQuery != "v=1" || r.Method != http.MethodPost || r.UserAgent() != "chancery/test" ||
			r.Header.Get("Content-Type") != "application/json" || r.TLS.PeerCertificates[0].Subject.CommonName != "chancery" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		_ = json.NewEncoder(w).Encode(s.solve(r)) // a client that is gone does not want it
	}))
	d := webhook.Direct{UserAgent: "chancery/test", Secrets: secrets{"ca": own.secret, "client": client.secret, "stranger": stranger.secret}}
	config := func(certificate string) *acmev1.WebhookProvider {
		return &acmev1.WebhookProvider{
			URL: at(hs, "/challenge?v=1"), CABundleSecretRef: &cmmeta.SecretKeySelector{Name: "ca"},
			ClientCertificateSecretRef: &cmmeta.LocalObjectReference{Name: certificate},
		}
	}
	p, wrong := direct(t, d, config("client")), direct(t, d, config("stranger"))
	conformance.RunProvider(t, s.harness(p, func(ctx context.Context) error { return wrong.Present(ctx, record(2)) }))
	payload(t, s, p)
	err := wrong.Present(t.Context(), record(0))
	if f := fault.Of(err); f == nil || f.Reason != webhook.ReasonForbidden || f.Class != fault.ClassCredential || !strings.Contains(err.Error(), "clientCertificateSecretRef") {
		t.Errorf("with another certificate: %v", err)
	}
	bundled := direct(t, d, &acmev1.WebhookProvider{
		URL: at(hs, "/challenge?v=1"), CABundle: own.bundle, ClientCertificateSecretRef: &cmmeta.LocalObjectReference{Name: "client"},
	})
	if err := bundled.Present(t.Context(), record(0)); err != nil {
		t.Errorf("with a bundle in place: %v", err)
	}
	for says, c := range map[string]*acmev1.WebhookProvider{
		"does it want a client certificate":         {URL: at(hs, "/challenge?v=1"), CABundle: own.bundle},
		"unknown authority":                         {URL: at(hs, "/challenge?v=1")},
		"cannot validate certificate for 127.0.0.1": {URL: hs.URL, CABundle: own.bundle},
	} {
		if err := direct(t, d, c).Present(t.Context(), record(0)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %q", c, err, says)
		}
	}
}

// What a server answers, however large, however wrong, ends in words that a person can do
// something with, and is followed nowhere.
func TestDirectAnswers(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s was asked", r.URL) }))
	defer elsewhere.Close()
	own, client := newAuthority(t, "localhost"), newAuthority(t, "chancery")
	var status int
	var body string
	asked := 0
	hs := mutual(t, own, client, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.Header().Set("Location", elsewhere.URL)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body)) // as much as is wanted
	}))
	now := time.Now()
	d := webhook.Direct{Secrets: secrets{"client": client.secret}, Limits: limit.New(limit.Options{Now: func() time.Time { return now }})}
	config := &acmev1.WebhookProvider{URL: at(hs, "/"), CABundle: own.bundle, ClientCertificateSecretRef: &cmmeta.LocalObjectReference{Name: "client"}}
	message := func(s string) string { return `{"response": {"success": false, "status": {"message": "` + s + `"}}}` }
	for _, c := range []struct {
		status       int
		body         string
		reason, says string
	}{
		{200, `{"response": {"success": true}}`, "", ""},
		{200, message("no such zone"), webhook.ReasonFailed, "/: no such zone"},
		{200, message(strings.Repeat("x", 4096)), webhook.ReasonFailed, "xxx…"},
		{200, `{"response": {"success": false}}`, webhook.ReasonFailed, "does not say why"},
		{200, password, webhook.ReasonFailed, "not a ChallengePayload"},
		{200, `{"response": {"success": true}, "x": "` + strings.Repeat(password, 100_000) + `"}`, webhook.ReasonFailed, "is longer than 1 MiB"},
		{307, password, webhook.ReasonUnavailable, "redirects (status 307), which is not followed"},
		{401, password, webhook.ReasonForbidden, "clientCertificateSecretRef"},
		{404, password, webhook.ReasonUnavailable, "is url right"},
		{503, password, webhook.ReasonUnavailable, "out of order (status 503)"},
		{500, password, webhook.ReasonFailed, "status 500"},
		{500, `{"message": "it broke"}`, webhook.ReasonFailed, "status 500 it broke"},
	} {
		status, body = c.status, c.body
		unlimited := d
		unlimited.Limits = nil
		err := direct(t, unlimited, config).Present(t.Context(), record(0))
		if c.reason == "" {
			if err != nil {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		if f := fault.Of(err); f == nil || f.Reason != c.reason || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), password) || len(err.Error()) > 1200 {
			t.Errorf("%d %.80s: %v (%+v)", c.status, c.body, err, f)
		}
	}
	status, asked = http.StatusBadGateway, 0
	for range 5 {
		_ = direct(t, d, config).Present(t.Context(), record(0))
	}
	if err := direct(t, d, config).Present(t.Context(), record(0)); fault.Of(err) == nil || fault.Of(err).Reason != limit.ReasonPaused || asked != 3 {
		t.Errorf("asked %d times, then %v", asked, err)
	}
	changed := newAuthority(t, "chancery")
	d.Secrets = secrets{"client": changed.secret}
	if err := direct(t, d, config).Present(t.Context(), record(0)); fault.Of(err) == nil || fault.Of(err).Reason != webhook.ReasonForbidden {
		t.Errorf("with a changed certificate, which the server does not know: %v", err)
	}
}

// What cannot work is said before anybody is asked, without a word of a key.
func TestDirectMistakes(t *testing.T) {
	client := newAuthority(t, "chancery")
	other := newAuthority(t, "other")
	d := webhook.Direct{Secrets: secrets{
		"client": client.secret, "empty": {}, "mixed": {"tls.crt": client.secret["tls.crt"], "tls.key": other.secret["tls.key"]},
		"large": {"ca.crt": make([]byte, limits.BundlePEM+1), "tls.crt": make([]byte, limits.CredentialBytes+1), "tls.key": client.secret["tls.key"]},
		"text":  {"ca.crt": []byte(password), "tls.crt": []byte(password), "tls.key": []byte(password)},
	}}
	const address = "https://dns.example.test/challenge"
	ca := func(name, key string) *acmev1.WebhookProvider {
		return &acmev1.WebhookProvider{URL: address, CABundleSecretRef: &cmmeta.SecretKeySelector{Name: name, Key: key}}
	}
	certificate := func(name string) *acmev1.WebhookProvider {
		return &acmev1.WebhookProvider{URL: address, ClientCertificateSecretRef: &cmmeta.LocalObjectReference{Name: name}}
	}
	for _, c := range []struct {
		config       *acmev1.WebhookProvider
		kind         fault.Kind
		reason, says string
	}{
		{&acmev1.WebhookProvider{URL: "http://dns.example.test"}, fault.KindTerminal, dns01.ReasonInvalidConfig, "https"},
		{&acmev1.WebhookProvider{URL: "https://user:" + password + "@dns.example.test"}, fault.KindTerminal, dns01.ReasonInvalidConfig, "without a user"},
		{&acmev1.WebhookProvider{URL: "https://%zz" + password}, fault.KindTerminal, dns01.ReasonInvalidConfig, "https"},
		{&acmev1.WebhookProvider{URL: address, CABundle: []byte(password)}, fault.KindAfter, dns01.ReasonSecret, "no certificate in PEM"},
		{ca("gone", ""), fault.KindAfter, dns01.ReasonSecret, "Secret team/gone"},
		{ca("client", "ca.pem"), fault.KindAfter, dns01.ReasonSecret, `no entry "ca.pem"`},
		{ca("text", ""), fault.KindAfter, dns01.ReasonSecret, "no certificate in PEM"},
		{&acmev1.WebhookProvider{URL: address, CABundle: make([]byte, limits.BundlePEM+1)}, fault.KindAfter, dns01.ReasonSecret, "more than 330000 bytes"},
		{ca("large", ""), fault.KindAfter, dns01.ReasonSecret, `"ca.crt" of Secret team/large has more than 330000 bytes`},
		{certificate("large"), fault.KindAfter, dns01.ReasonSecret, `"tls.crt" of Secret team/large has more than 65536 bytes`},
		{certificate("gone"), fault.KindAfter, dns01.ReasonSecret, "Secret team/gone"},
		{certificate("empty"), fault.KindAfter, dns01.ReasonSecret, `no entry "tls.crt"`},
		{certificate("mixed"), fault.KindAfter, dns01.ReasonSecret, "Secret team/mixed"},
		{certificate("text"), fault.KindAfter, dns01.ReasonSecret, "Secret team/text"},
	} {
		_, err := d.Provider(t.Context(), c.config, dns01.Use{Namespace: "team"})
		if f := fault.Of(err); f == nil || f.Kind != c.kind || f.Reason != c.reason || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), password) {
			t.Errorf("%+v: %v (%+v)", c.config, err, f)
		}
	}
}

// The words about a certificate that has expired are the same on every try.
func TestDirectExpired(t *testing.T) {
	expired := newAuthority(t, "localhost")
	client := newAuthority(t, "chancery")
	hs := mutual(t, expired, client, http.NotFoundHandler())
	d := webhook.Direct{Secrets: secrets{"client": client.secret}, Now: func() time.Time { return time.Now().Add(24 * time.Hour) }}
	p := direct(t, d, &acmev1.WebhookProvider{URL: at(hs, "/"), CABundle: expired.bundle, ClientCertificateSecretRef: &cmmeta.LocalObjectReference{Name: "client"}})
	err := p.Present(t.Context(), record(0))
	if err == nil || !strings.Contains(err.Error(), "good only from") || strings.Contains(err.Error(), "current time") {
		t.Errorf("got %v", err)
	}
}
