package stories_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/app"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/kube/stub"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
)

// tenantIssuer is an Issuer at the world's CA: any tenant can have a CA of its own.
func (w *watched) tenantIssuer(name string, solvers ...acmev1.ACMEChallengeSolver) *certmanagerv1.Issuer {
	spec := w.spec(solvers...)
	spec.ACME.PrivateKey.Name = name + "-account"
	return &certmanagerv1.Issuer{ObjectMeta: named(name), Spec: spec}
}

// by gets a Certificate signed by an Issuer of the namespace.
func by(issuer string, crt *certmanagerv1.Certificate) *certmanagerv1.Certificate {
	crt.Spec.IssuerRef = cmmeta.IssuerReference{Name: issuer}
	return crt
}

// TestTenantsHaveNoAnswersForOthersHosts: a tenant with a CA of its own asks for a certificate for a host that
// is not its own. All hosts lead to the responder. The CA gets no answer, for the Challenge is never started.
// The host that the operator lets the tenant have is proved, and so are all hosts for ClusterIssuers.
func TestTenantsHaveNoAnswersForOthersHosts(t *testing.T) {
	t.Parallel()
	w := newWatched(t, nil)
	w.cfg.ACME.TLSALPN01Address = rig.FreeAddress(t).String()
	w.cfg.ACME.HTTP01Hosts, w.cfg.ACME.TLSALPN01Hosts = []string{w.Namespace + "=*.tenant.example.com"}, nil
	history := w.record(t)
	w.run(t)
	w.withIssuer(t, httpSolver())
	w.Create(t, w.tenantIssuer("http", httpSolver()), w.tenantIssuer("tls", tlsSolver()),
		by("http", certificate(w.World, "relayed", "", "bank.example.com")),
		by("tls", certificate(w.World, "shown", "", "bank.example.com")),
		by("http", certificate(w.World, "own", "", "www.tenant.example.com")))
	for kind, flag := range map[acmev1.ACMEChallengeType]string{acmev1.ChallengeTypeHTTP01: "--http01-hosts ", acmev1.ChallengeTypeTLSALPN01: "--tlsalpn01-hosts "} {
		c := w.awaitChallenge(t, "by "+string(kind)+" is refused", func(c *acmev1.Challenge) bool {
			return c.Spec.Type == kind && c.Status.State == acmev1.Errored && strings.Contains(c.Status.Reason, flag+w.Namespace+"=bank.example.com")
		})
		if code := w.askResponder(t, c); kind == acmev1.ChallengeTypeHTTP01 && code != http.StatusNotFound {
			t.Errorf("the responder answers %d", code)
		}
	}
	awaitReady(t, w.World, "own")
	w.Create(t, certificate(w.World, "operators", "acme", "bank.example.com"))
	awaitReady(t, w.World, "operators")
	history.each(func(_, now *acmev1.Challenge, _ bool) {
		if now.Status.Processing && now.Spec.DNSName == "bank.example.com" && now.Spec.IssuerRef.Kind != cmmeta.ClusterIssuerKind {
			t.Errorf("Challenge %s was started", now.Name)
		}
	})
}

// TestTenantsUseTheOperatorsCredentials: a tenant's certificate by DNS-01 comes by the Secret that the ClusterIssuer
// has in the operator's namespace. The tenant's own Secret of that name, with another key, is not read.
func TestTenantsUseTheOperatorsCredentials(t *testing.T) {
	t.Parallel()
	w := newACMEWorld(t, nil)
	crt, tenant := certificate(w.World, "web", "acme", "web.example.com"), w.Namespace+"-tenant"
	crt.Namespace = tenant
	w.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "tsig"}, StringData: map[string]string{"key": "YW5vdGhlciBrZXk="}},
		w.issuer(), crt)
	cfg := w.Config()
	cfg.Scope.Namespaces = append(cfg.Scope.Namespaces, tenant)
	w.Run(t, cfg)
	rig.Eventually(t, "the tenant's Certificate is ready", func(ctx context.Context) string {
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(crt), crt); err != nil {
			return err.Error()
		}
		ready := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionReady)
		if ready == nil || ready.Status != cmmeta.ConditionTrue {
			return fmt.Sprintf("%+v", crt.Status)
		}
		return ""
	})
}

// askResponder asks for an answer as a CA does, and returns the status.
func (w *watched) askResponder(t *testing.T, c *acmev1.Challenge) int {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+w.http.String()+"/.well-known/acme-challenge/"+c.Spec.Token, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = c.Spec.DNSName
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// internalServer is one that the controller reaches, and tenants do not.
type internalServer struct {
	url    string
	bundle []byte
	hits   atomic.Int32
}

// newInternalServer starts a server that is neither an ACME server, nor Vault, nor Certificate Manager: it answers
// everything with a document of its own.
func newInternalServer(t *testing.T) *internalServer {
	t.Helper()
	in := &internalServer{}
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in.hits.Add(1)
		w.Header().Set("Content-Type", "application/json")
		if !strings.Contains(r.URL.Path, "fine") {
			w.WriteHeader(http.StatusBadRequest)
		}
		_, _ = io.WriteString(w, `{"password":"topsecret","detail":"topsecret","secret":["topsecret"]}`)
	}))
	t.Cleanup(s.Close)
	in.url, in.bundle = s.URL, pki.EncodeCertificates(s.Certificate())
	return in
}

// specs are issuers of each type at the server.
func (in *internalServer) specs() map[string]certmanagerv1.IssuerSpec {
	acme := func(name, path string) certmanagerv1.IssuerSpec {
		return certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{
			Server: in.url + path, CABundle: in.bundle, PrivateKey: cmmeta.SecretKeySelector{Name: name}, Solvers: []acmev1.ACMEChallengeSolver{httpSolver()},
		}}
	}
	return map[string]certmanagerv1.IssuerSpec{
		"acme": acme("acme-key", "/dir"), "fine": acme("fine-key", "/fine"),
		"vault": {Vault: &certmanagerv1.VaultIssuer{
			Server: in.url, Path: "pki/sign/role", CABundle: in.bundle,
			Auth: certmanagerv1.VaultAuth{TokenSecretRef: &cmmeta.SecretKeySelector{Name: "creds", Key: "token"}},
		}},
		"venafi": {Venafi: &certmanagerv1.VenafiIssuer{Zone: "zone", TPP: &certmanagerv1.VenafiTPP{
			URL: in.url, CABundle: in.bundle, CredentialsRef: cmmeta.LocalObjectReference{Name: "creds"},
		}}},
	}
}

// creates adds issuers of all types at the server, and returns them.
func (in *internalServer) creates(t *testing.T, w *rig.World, build func(name string, spec certmanagerv1.IssuerSpec) certmanagerv1.GenericIssuer) []certmanagerv1.GenericIssuer {
	t.Helper()
	var all []certmanagerv1.GenericIssuer
	for name, spec := range in.specs() {
		all = append(all, build(name, spec))
		w.Create(t, all[len(all)-1])
	}
	return all
}

func (in *internalServer) tenants(t *testing.T, w *rig.World) []certmanagerv1.GenericIssuer {
	t.Helper()
	w.Create(t, &corev1.Secret{ObjectMeta: named("creds"), StringData: map[string]string{"token": "t", "access-token": "t"}})
	return in.creates(t, w, func(name string, spec certmanagerv1.IssuerSpec) certmanagerv1.GenericIssuer {
		return &certmanagerv1.Issuer{ObjectMeta: named(name), Spec: spec}
	})
}

// awaitWords waits until an issuer says why it is not ready, and returns the words.
func awaitWords(t *testing.T, w *rig.World, issuer certmanagerv1.GenericIssuer, words string) string {
	t.Helper()
	said := ""
	rig.Eventually(t, issuer.GetName()+" says "+words, func(ctx context.Context) string {
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(issuer), issuer); err != nil {
			return err.Error()
		}
		ready := certmanagerv1.FindIssuerCondition(issuer.GetStatus().Conditions, certmanagerv1.IssuerConditionReady)
		if ready == nil || ready.Status != cmmeta.ConditionFalse || !strings.Contains(ready.Message, words) {
			return fmt.Sprintf("%+v", ready)
		}
		said = ready.Message
		return ""
	})
	return said
}

// TestTenantsReachNoServersOffLimits: Issuers of a tenant name a server on the controller's own machine. No
// connection is made to it. A ClusterIssuer may name it.
func TestTenantsReachNoServersOffLimits(t *testing.T) {
	t.Parallel()
	w, in := rig.NewWorld(t), newInternalServer(t)
	cfg := w.Config()
	cfg.IssuerEgress = app.EgressConfig{} // as it is by default
	w.Run(t, cfg)
	for _, issuer := range in.tenants(t, w) {
		awaitWords(t, w, issuer, "127.0.0.1 is off limits")
	}
	if n := in.hits.Load(); n > 0 {
		t.Errorf("the server was asked %d times", n)
	}
	for _, issuer := range in.creates(t, w, func(name string, spec certmanagerv1.IssuerSpec) certmanagerv1.GenericIssuer {
		return clusterIssuer(w, name, spec)
	}) {
		if said := awaitWords(t, w, issuer, ""); strings.Contains(said, "off limits") {
			t.Errorf("%s of the operator: %s", issuer.GetName(), said)
		}
	}
	if in.hits.Load() == 0 {
		t.Error("the operator's issuers have not asked the server")
	}
}

// TestStatusesQuoteNoForeignAnswer: what a server answers that is none of those that an Issuer is for is in no status,
// and in no event.
func TestStatusesQuoteNoForeignAnswer(t *testing.T) {
	t.Parallel()
	w, in := rig.NewWorld(t), newInternalServer(t)
	w.Run(t, w.Config())
	for _, issuer := range in.tenants(t, w) {
		if said := awaitWords(t, w, issuer, in.url); strings.Contains(said, "topsecret") {
			t.Errorf("%s quotes the answer: %s", issuer.GetName(), said)
		}
	}
	if in.hits.Load() == 0 {
		t.Error("the server was not asked")
	}
	events := &corev1.EventList{}
	if err := w.Client.List(t.Context(), events, client.InNamespace(w.Namespace)); err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		if strings.Contains(e.Message, "topsecret") {
			t.Errorf("an event quotes the answer: %s", e.Message)
		}
	}
}

// TestLargeIssuer: an issuer of more than half a megabyte is not kept in memory, and is not sent back when its status
// is written. It is not ready, and says why, as do the Certificates that name it, until it is shorter.
func TestLargeIssuer(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	large := &certmanagerv1.Issuer{ObjectMeta: named("large"), Spec: certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{
		CRLDistributionPoints: []string{"http://crl.example.com/" + strings.Repeat("x", limits.ObjectBytes)},
	}}}
	w.Create(t, large, by("large", certificate(w, "web", "", "www.example.com")))
	var written, answered atomic.Int64
	rc := rig.As(w.Admin, rig.Controller, "system:serviceaccounts", "system:serviceaccounts:cert-manager")
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if err == nil && strings.HasSuffix(r.URL.Path, "/issuers/large/status") {
				written.Add(1)
				resp.Body = countedBody{resp.Body, &answered}
			}
			return resp, err
		})
	})
	w.RunAs(t, w.Config(), rc)
	const why = "fewer or shorter labels"
	rig.Eventually(t, "the Certificate says why", func(ctx context.Context) string {
		crt := &certmanagerv1.Certificate{}
		if err := w.Get(ctx, "web", crt); err != nil {
			return err.Error()
		}
		if c := crt.Status.Cause; c == nil || c.Class != string(cause.IssuerNotReady) || !strings.Contains(c.Message, why) {
			return fmt.Sprintf("%+v", crt.Status)
		}
		return ""
	})
	if err := w.Get(t.Context(), "large", large); err != nil {
		t.Fatal(err)
	}
	ready := certmanagerv1.FindIssuerCondition(large.Status.Conditions, certmanagerv1.IssuerConditionReady)
	if ready == nil || ready.Reason != "TooLarge" || !strings.Contains(ready.Message, why) || len(large.Spec.SelfSigned.CRLDistributionPoints) != 1 {
		t.Errorf("the issuer says %+v, and has %d addresses", ready, len(large.Spec.SelfSigned.CRLDistributionPoints))
	}
	if n := answered.Load(); written.Load() == 0 || n > 64<<10 {
		t.Errorf("%d writes of the status were answered with %d bytes", written.Load(), n)
	}
	shorter := large.DeepCopy()
	shorter.Spec.SelfSigned.CRLDistributionPoints = nil
	if err := w.Client.Patch(t.Context(), shorter, client.MergeFrom(large)); err != nil {
		t.Fatal(err)
	}
	awaitReady(t, w, "web")
}

// TestLargeCertificate: of a Certificate that is too large, next to nothing is kept in memory. It is not ready, says
// why, and is left alone until it is smaller: what was issued stays.
func TestLargeCertificate(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	issuer := &certmanagerv1.Issuer{ObjectMeta: named("own"), Spec: certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}}
	large := by("own", certificate(w, "large", "", "large.example.com"))
	fill := strings.Repeat("x", limits.ObjectBytes)
	large.Spec.SecretTemplate = &certmanagerv1.CertificateSecretTemplate{Annotations: map[string]string{"example.com/fill": fill}}
	w.Create(t, issuer, large, by("own", certificate(w, "grows", "", "grows.example.com")))
	w.RunAs(t, w.Config(), rig.As(w.Admin, rig.Controller, "system:serviceaccounts", "system:serviceaccounts:cert-manager"))
	awaitReady(t, w, "grows")
	before := &corev1.Secret{}
	if err := w.Get(t.Context(), "grows", before); err != nil {
		t.Fatal(err)
	}
	edit := func(name string, change func(*certmanagerv1.Certificate)) {
		t.Helper()
		crt := &certmanagerv1.Certificate{}
		if err := w.Get(t.Context(), name, crt); err != nil {
			t.Fatal(err)
		}
		changed := crt.DeepCopy()
		change(changed)
		if err := w.Client.Patch(t.Context(), changed, client.MergeFrom(crt)); err != nil {
			t.Fatal(err)
		}
	}
	edit("grows", func(crt *certmanagerv1.Certificate) {
		crt.Labels, crt.Spec.DNSNames = map[string]string{}, []string{"other.example.com"}
		for i := range limits.ObjectBytes / 60 {
			crt.Labels[fmt.Sprintf("l%d", i)] = strings.Repeat("x", 60)
		}
	})
	for _, name := range []string{"large", "grows"} {
		rig.Eventually(t, name+" says that it is too large", func(ctx context.Context) string {
			crt := &certmanagerv1.Certificate{}
			if err := w.Get(ctx, name, crt); err != nil {
				return err.Error()
			}
			ready := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionReady)
			if ready == nil || ready.Reason != stub.Reason || ready.ObservedGeneration != crt.Generation || !strings.Contains(ready.Message, "fewer or shorter labels") {
				return fmt.Sprintf("%+v", crt.Status)
			}
			return ""
		})
		rig.Eventually(t, "one event says so", func(ctx context.Context) string {
			events, said := &corev1.EventList{}, 0
			if err := w.Client.List(ctx, events, client.InNamespace(w.Namespace)); err != nil {
				return err.Error()
			}
			for _, e := range events.Items {
				if e.InvolvedObject.Name == name && e.Reason == stub.Reason {
					said += int(e.Count)
				}
			}
			if said != 1 {
				return fmt.Sprintf("%d", said)
			}
			return ""
		})
	}
	after := &corev1.Secret{}
	if err := w.Get(t.Context(), "grows", after); err != nil || after.ResourceVersion != before.ResourceVersion {
		t.Errorf("the Secret of the Certificate that has grown has changed, %v", err)
	}
	requests := &certmanagerv1.CertificateRequestList{}
	if err := w.Client.List(t.Context(), requests, client.InNamespace(w.Namespace)); err != nil || len(requests.Items) != 1 {
		t.Errorf("%d requests, %v", len(requests.Items), err)
	}
	edit("large", func(crt *certmanagerv1.Certificate) { crt.Spec.SecretTemplate = nil })
	edit("grows", func(crt *certmanagerv1.Certificate) { crt.Labels = nil })
	awaitReady(t, w, "large")
	awaitReady(t, w, "grows")
	if err := w.Get(t.Context(), "grows", after); err != nil || after.ResourceVersion == before.ResourceVersion {
		t.Errorf("the Certificate that is small again has not been issued for its new name, %v", err)
	}
}

// countedBody counts the bytes that are read of a body.
type countedBody struct {
	io.ReadCloser

	bytes *atomic.Int64
}

// Read implements io.Reader.
func (b countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.bytes.Add(int64(n))
	return n, err
}

// TestLargeChallengeIsFinished: a Challenge of which the finalizers alone are too large is finished when it is deleted,
// and the finalizers of others stay.
func TestLargeChallengeIsFinished(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	w.Run(t, w.Config())
	large := &acmev1.Challenge{ObjectMeta: named("large"), Spec: acmev1.ChallengeSpec{
		Type: acmev1.ChallengeTypeDNS01, DNSName: "large.example.com", Token: "token", Key: "key", URL: "https://ca.example.com/1",
		AuthorizationURL: "https://ca.example.com/2", IssuerRef: cmmeta.IssuerReference{Name: "none"},
		Solver: acmev1.ACMEChallengeSolver{DNS01: &acmev1.DNS01Solver{AcmeDNS: &acmev1.AcmeDNSProvider{
			Host: "https://dns.example.com", AccountSecretRef: cmmeta.SecretKeySelector{Name: "none", Key: "none"},
		}}},
	}}
	large.Finalizers = []string{acmev1.ChallengeFinalizer}
	for i := range limits.ObjectBytes / 60 {
		large.Finalizers = append(large.Finalizers, fmt.Sprintf("example.com/%060d", i))
	}
	others := len(large.Finalizers) - 1
	w.Create(t, large)
	if err := w.Client.Delete(t.Context(), large); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "our finalizer has gone, and no other", func(ctx context.Context) string {
		if err := w.Get(ctx, "large", large); err != nil {
			return err.Error()
		}
		if len(large.Finalizers) != others || slices.Contains(large.Finalizers, acmev1.ChallengeFinalizer) {
			return fmt.Sprintf("%d finalizers, %d of others", len(large.Finalizers), others)
		}
		return ""
	})
	large.Finalizers = nil
	if err := w.Client.Update(t.Context(), large); err != nil {
		t.Error(err)
	}
}
