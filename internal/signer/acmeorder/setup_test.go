package acmeorder_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig/pebble"
)

// watchedCA is a Pebble that says what it was asked about accounts.
type watchedCA struct {
	*pebble.Server

	mu    sync.Mutex
	asked []string
	made  int
	// rollover, if set, is called in place of each replacement of a key.
	rollover func(w http.ResponseWriter, act func(http.ResponseWriter))
	// silent makes the CA answer nothing.
	silent bool
	// without is a resource that the directory lacks.
	without string
	// once has a binding to an external account serve for one account, and be looked at before the key.
	once bool
}

// binds reports whether a newAccount request has a binding to an external account. The request can be read again.
func binds(r *http.Request) bool {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	var jws struct{ Payload string }
	_ = json.Unmarshal(body, &jws)
	payload, _ := base64.RawURLEncoding.DecodeString(jws.Payload)
	return strings.Contains(string(payload), "externalAccountBinding")
}

func startCA(t *testing.T, o pebble.Options) *watchedCA {
	t.Helper()
	ca := &watchedCA{}
	o.Wrap = func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked := ""
			for path, name := range map[string]string{"/sign-me-up": "newAccount", "/my-account/": "account", "/rollover": "keyChange", "/dir": ""} {
				if strings.HasPrefix(r.URL.Path, path) {
					asked = name
				}
			}
			ca.mu.Lock()
			if asked != "" {
				ca.asked = append(ca.asked, asked)
			}
			rollover, silent, without, spent := ca.rollover, ca.silent, ca.without, ca.once && ca.made > 0
			ca.mu.Unlock()
			switch {
			case spent && asked == "newAccount" && binds(r):
				w.Header().Set("Content-Type", "application/problem+json")
				w.WriteHeader(http.StatusBadRequest)
				_, _ = w.Write([]byte(`{"type":"urn:ietf:params:acme:error:malformed","detail":"The account is not awaiting external account binding"}`))
			case silent:
				w.WriteHeader(http.StatusBadGateway)
			case asked == "keyChange" && rollover != nil:
				rollover(w, func(w http.ResponseWriter) { next.ServeHTTP(w, r) })
			case asked == "newAccount" || without != "" && r.URL.Path == "/dir":
				answer := httptest.NewRecorder()
				next.ServeHTTP(answer, r)
				ca.pass(w, answer, without)
			default:
				next.ServeHTTP(w, r)
			}
		})
	}
	var err error
	if ca.Server, err = pebble.Start(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	return ca
}

// pass passes an answer on, and counts the accounts that are made.
func (ca *watchedCA) pass(w http.ResponseWriter, answer *httptest.ResponseRecorder, without string) {
	maps.Copy(w.Header(), answer.Header())
	body := answer.Body.String()
	if without != "" {
		body = strings.Replace(body, `"`+without+`"`, `"x"`, 1)
		w.Header().Del("Content-Length")
	}
	if answer.Code == http.StatusCreated {
		ca.mu.Lock()
		ca.made++
		ca.mu.Unlock()
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write([]byte(body))
}

// accounts is how many accounts were made.
func (ca *watchedCA) accounts() int {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	return ca.made
}

// set changes how the CA behaves.
func (ca *watchedCA) set(change func()) {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	change()
}

// questions returns what was asked since the last call.
func (ca *watchedCA) questions() string {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	defer func() { ca.asked = nil }()
	return strings.Join(ca.asked, " ")
}

func (ca *watchedCA) issuer(name, email string) *certmanagerv1.Issuer {
	return &certmanagerv1.Issuer{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
		Spec: certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{
			Server: ca.DirectoryURL, CABundle: ca.TLSBundle, Email: email,
			PrivateKey: cmmeta.SecretKeySelector{Name: "account"},
		}},
	}
}

// setup sets an issuer up, and returns the Ready condition.
func (b *bench) setup(t *testing.T, is *certmanagerv1.Issuer) certmanagerv1.IssuerCondition {
	t.Helper()
	_, err := b.probe(t, is)
	ready := certmanagerv1.FindIssuerCondition(is.Status.Conditions, certmanagerv1.IssuerConditionReady)
	if ready == nil {
		t.Fatalf("no condition: %v", err)
	}
	return *ready
}

func (b *bench) ready(t *testing.T, is *certmanagerv1.Issuer) {
	t.Helper()
	if c := b.setup(t, is); c.Status != cmmeta.ConditionTrue || c.Reason != certmanagerv1.IssuerReasonACMEAccountRegistered {
		t.Fatalf("issuer %s: %+v", is.Name, c)
	}
}

// TestIssuersShareAnAccount: a key is registered once, whoever uses it, and not at all by a
// new process. The contact is changed when an issuer changes it, and issuers that differ do
// not contradict each other for ever.
func TestIssuersShareAnAccount(t *testing.T) {
	ca, b := startCA(t, pebble.Options{}), newBench(t)
	one, two, three := ca.issuer("one", "a@example.com"), ca.issuer("two", "a@example.com"), ca.issuer("three", "b@example.com")
	for _, step := range []struct {
		what   string
		issuer *certmanagerv1.Issuer
		change func()
		want   string
	}{
		{"the first one registers", one, nil, "newAccount"},
		{"the second one finds it registered", two, nil, ""},
		{"the third one has another contact", three, nil, "account"},
		{"the first one has had its say", one, nil, ""},
		{"the second one too", two, nil, ""},
		{"the second one changes the contact", two, func() { two.Spec.ACME.Email = "c@example.com" }, "account"},
		{"and stays with that", two, nil, ""},
		{"the process is a new one", three, func() { b = b.restarted(t) }, ""},
		{"and the others know the account too", one, nil, ""},
	} {
		if step.change != nil {
			step.change()
		}
		b.ready(t, step.issuer)
		if got := ca.questions(); got != step.want {
			t.Errorf("%s: asked %q, want %q", step.what, got, step.want)
		}
	}
	if one.Status.ACME.URI != two.Status.ACME.URI || one.Status.ACME.URI != three.Status.ACME.URI {
		t.Errorf("accounts %s, %s, %s", one.Status.ACME.URI, two.Status.ACME.URI, three.Status.ACME.URI)
	}
}

// TestAccountKeys: RSA and ECDSA keys that somebody else has made are used as they are, in each
// encoding. That Ed25519 signs as it should is tested on the wire: Pebble refuses it, and that
// is said.
func TestAccountKeys(t *testing.T) {
	ca := startCA(t, pebble.Options{})
	for algorithm, want := range map[string]string{pki.RSA: "", pki.ECDSA: "", pki.Ed25519: "badSignatureAlgorithm"} {
		key, err := pki.GenerateKey(pki.KeySpec{Algorithm: algorithm})
		if err != nil {
			t.Fatal(err)
		}
		uris := map[string]bool{}
		for _, encoding := range []string{pki.PKCS8, pki.PKCS1} {
			b := newBench(t)
			text, err := pki.EncodePrivateKey(key, encoding)
			if err != nil {
				t.Fatal(err)
			}
			b.secret(t, "account", "tls.key", text)
			is := ca.issuer("i", "")
			c := b.setup(t, is)
			if (c.Status == cmmeta.ConditionTrue) != (want == "") || !strings.Contains(c.Message, want) {
				t.Errorf("%s as %s: %+v", algorithm, encoding, c)
			}
			if is.Status.ACME != nil {
				uris[is.Status.ACME.URI] = true
			}
			if string(b.account(t).Data["tls.key"]) != string(text) {
				t.Errorf("%s as %s: the Secret is changed", algorithm, encoding)
			}
		}
		if len(uris) > 1 {
			t.Errorf("%s: the account depends on the encoding: %v", algorithm, uris)
		}
	}
}

// TestMLDSAAccountKey: such a key is refused before the CA is asked, in words that say which keys serve.
func TestMLDSAAccountKey(t *testing.T) {
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.MLDSA44})
	if err != nil {
		t.Fatal(err)
	}
	text, err := pki.EncodePKCS8(key)
	if err != nil {
		t.Fatal(err)
	}
	ca, b := startCA(t, pebble.Options{}), newBench(t)
	b.secret(t, "account", "tls.key", text)
	c := b.setup(t, ca.issuer("i", ""))
	if c.Status == cmmeta.ConditionTrue || !strings.Contains(c.Message, "use RSA, ECDSA or Ed25519") || ca.questions() != "" {
		t.Errorf("%+v", c)
	}
}

// TestExternalAccount: RFC 8555 §7.3.4 with each algorithm; a key that is too short for its
// algorithm is found out before the CA is asked.
func TestExternalAccount(t *testing.T) {
	keys := map[acmev1.HMACKeyAlgorithm]int{"": 32, acmev1.HS256: 32, acmev1.HS384: 48, acmev1.HS512: 64}
	known := map[string]string{}
	for algorithm, length := range keys {
		known["kid-"+string(algorithm)] = base64.RawURLEncoding.EncodeToString([]byte(strings.Repeat("k", length)))
	}
	ca := startCA(t, pebble.Options{RequireEAB: true, EABKeys: known})
	for algorithm, length := range keys {
		b := newBench(t)
		b.secret(t, "eab", "key", []byte(known["kid-"+string(algorithm)]))
		b.secret(t, "short", "key", []byte(base64.RawURLEncoding.EncodeToString([]byte(strings.Repeat("k", length-1)))))
		is := ca.issuer("i", "")
		is.Spec.ACME.ExternalAccountBinding = &acmev1.ACMEExternalAccountBinding{
			KeyID: "kid-" + string(algorithm), KeyAlgorithm: algorithm,
			KeySecretRef: cmmeta.SecretKeySelector{Name: "short", Key: "key"},
		}
		if c := b.setup(t, is); c.Status == cmmeta.ConditionTrue || !strings.Contains(c.Message, "RFC 7518") || ca.questions() != "" {
			t.Errorf("%q with a short key: %+v", algorithm, c)
		}
		is.Spec.ACME.ExternalAccountBinding.KeySecretRef.Name = "eab"
		b.ready(t, is)
		ca.questions()
	}
}

// TestABoundAccountIsFoundAgain: a backup brings back the key of the account, the issuer is made again, and the CA
// takes a binding once. The account of the key is used; a key without an account is told what the CA has said.
func TestABoundAccountIsFoundAgain(t *testing.T) {
	const mac = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W"
	ca, b := startCA(t, pebble.Options{RequireEAB: true, EABKeys: map[string]string{"kid": mac}}), newBench(t)
	ca.once = true
	bound := func(name string) *certmanagerv1.Issuer {
		is := ca.issuer(name, "")
		is.Spec.ACME.ExternalAccountBinding = &acmev1.ACMEExternalAccountBinding{KeyID: "kid", KeySecretRef: cmmeta.SecretKeySelector{Name: "eab", Key: "key"}}
		return is
	}
	b.secret(t, "eab", "key", []byte(mac))
	before := bound("i")
	b.ready(t, before)
	ca.questions()
	b = b.restarted(t)
	after := bound("again")
	b.ready(t, after)
	if after.Status.ACME.URI != before.Status.ACME.URI || ca.accounts() != 1 || ca.questions() != "newAccount newAccount" {
		t.Errorf("account %q, want %q; %d were made", after.Status.ACME.URI, before.Status.ACME.URI, ca.accounts())
	}
	other := newBench(t)
	other.secret(t, "eab", "key", []byte(mac))
	if c := other.setup(t, bound("other")); c.Status == cmmeta.ConditionTrue || !strings.Contains(c.Message, "not awaiting external account binding") {
		t.Errorf("%+v", c)
	}
}

// TestKeysOfExternalAccounts: an operator may give the key in either alphabet of base64, with or without padding.
func TestKeysOfExternalAccounts(t *testing.T) {
	key := bytes.Repeat([]byte{0xfb, 0xff}, 20)
	ca := startCA(t, pebble.Options{RequireEAB: true, EABKeys: map[string]string{"kid": base64.RawURLEncoding.EncodeToString(key)}})
	for name, encoding := range map[string]*base64.Encoding{
		"RawURL": base64.RawURLEncoding, "URL": base64.URLEncoding, "RawStd": base64.RawStdEncoding, "Std": base64.StdEncoding,
	} {
		b, is := newBench(t), ca.issuer("i", "")
		b.secret(t, "eab", "key", []byte(encoding.EncodeToString(key)+"\n"))
		is.Spec.ACME.ExternalAccountBinding = &acmev1.ACMEExternalAccountBinding{KeyID: "kid", KeySecretRef: cmmeta.SecretKeySelector{Name: "eab", Key: "key"}}
		if c := b.setup(t, is); c.Status != cmmeta.ConditionTrue {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// TestSecretOfProgramIsMissing: the credentials of a provider program are looked for before the issuer is ready, as
// those of any other provider are (spec §5.1, step 3).
func TestSecretOfProgramIsMissing(t *testing.T) {
	ca, b := startCA(t, pebble.Options{}), newBench(t)
	is := ca.issuer("i", "")
	is.Spec.ACME.Solvers = []acmev1.ACMEChallengeSolver{{DNS01: &acmev1.DNS01Solver{
		Exec: &acmev1.ExecProvider{Name: "hetzner", SecretRef: &cmmeta.LocalObjectReference{Name: "dns"}},
	}}}
	if c := b.setup(t, is); c.Status == cmmeta.ConditionTrue || c.Reason != certmanagerv1.IssuerReasonInvalidSolver || !strings.Contains(c.Message, `"dns"`) {
		t.Errorf("%+v", c)
	}
	b.secret(t, "dns", "HETZNER_API_KEY", []byte("x"))
	b.ready(t, is)
}

// TestTheAccountKeyIsMadeWhateverSolversLack: a credential that a solver lacks keeps the issuer from being ready, and
// from asking the CA, but not from having the Secret with its key (spec §5.1, steps 2 and 3).
func TestTheAccountKeyIsMadeWhateverSolversLack(t *testing.T) {
	for name, want := range map[string]string{"none": `failed to get secret "none"`, "dns": `the secret "dns" does not have key "token"`} {
		ca, b := startCA(t, pebble.Options{}), cheap(newBench(t))
		b.secret(t, "dns", "other", []byte("x"))
		is := ca.issuer("i", "")
		is.Spec.ACME.Solvers = []acmev1.ACMEChallengeSolver{{DNS01: &acmev1.DNS01Solver{DigitalOcean: &acmev1.DigitalOceanProvider{
			TokenSecretRef: cmmeta.SecretKeySelector{Name: name, Key: "token"},
		}}}}
		for range 2 { // the second look finds the Secret
			if c := b.setup(t, is); c.Status != cmmeta.ConditionFalse || c.Reason != certmanagerv1.IssuerReasonInvalidSolver || !strings.Contains(c.Message, want) {
				t.Errorf("%s: %+v", name, c)
			}
		}
		if secret := b.account(t); len(secret.Data) != 1 || ca.questions() != "" {
			t.Errorf("%s: %d entries, asked %q", name, len(secret.Data), ca.questions())
		}
	}
}

// restarted is a new process on the same API.
func (b *bench) restarted(t *testing.T) *bench {
	t.Helper()
	next := newBench(t)
	list := &corev1.SecretList{}
	if err := b.api.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		list.Items[i].ResourceVersion = ""
		if err := next.api.Create(t.Context(), &list.Items[i]); err != nil {
			t.Fatal(err)
		}
	}
	return next
}

func (b *bench) secret(t *testing.T, name, entry string, data []byte) {
	t.Helper()
	if err := b.api.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Data: map[string][]byte{entry: data},
	}); err != nil {
		t.Fatal(err)
	}
}
