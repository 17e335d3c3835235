package podrequests

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"chancery.dev/api"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/kube/ownwrites"
	"chancery.dev/internal/kube/podapi"
	"chancery.dev/internal/kube/secrets"
	"chancery.dev/internal/machine/podrequest"
	"chancery.dev/internal/metrics"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/signer"
)

func (r replica) GetClient() client.Client    { return r.store }
func (r replica) GetAPIReader() client.Reader { return r.store }

// server is a Signer that asks a server, whose answers are scripted.
type server struct {
	key   crypto.Signer
	began time.Time
	// answers are what it answers before it signs; calls says when it was asked.
	answers []func(r *signer.Request) error
	calls   []time.Duration
}

func (*server) Lane(certmanagerv1.GenericIssuer) engine.Lane {
	return engine.Lane{Name: "server", Limit: 2}
}

func (s *server) Sign(_ context.Context, _ certmanagerv1.GenericIssuer, r signer.Request) (signer.Result, error) {
	s.calls = append(s.calls, time.Since(s.began))
	if n := len(s.calls); n <= len(s.answers) {
		if err := s.answers[n-1](&r); err != nil {
			return signer.Result{}, err
		}
	}
	template, err := r.Template(pki.Issuance{NotBefore: time.Now()})
	if err != nil {
		return signer.Result{}, err
	}
	leaf, err := pki.Sign(template, &x509.Certificate{Subject: pkix.Name{CommonName: "CA"}}, s.key)
	return signer.Result{Bundle: signer.Bundle{Chain: pki.EncodeCertificates(leaf)}}, err
}

// served is the controller of a process, and the request of a Pod for an issuer of Vault, which a server stands in for.
type served struct {
	*engine.Runner[*podCertificateRequest, memory, *observation, podrequest.Action]

	t      *testing.T
	store  client.Client
	queue  workqueue.TypedRateLimitingInterface[reconcile.Request]
	events *record.FakeRecorder
	issuer *certmanagerv1.Issuer
	name   types.NamespacedName
}

func newServed(t *testing.T, elected chan struct{}, by *server) *served {
	t.Helper()
	scheme, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	if by.key, err = pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA}); err != nil {
		t.Fatal(err)
	}
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, by.key)
	if err != nil {
		t.Fatal(err)
	}
	pcr := &podCertificateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", UID: "r"}, Spec: certificatesv1.PodCertificateRequestSpec{
		SignerName: "issuers.cert-manager.io/shop.pods", PodName: "web-0", PodUID: "u", ServiceAccountName: "web", MaxExpirationSeconds: new(int32(7200)), StubPKCS10Request: stub,
	}}
	issuer := &certmanagerv1.Issuer{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pods", UID: "i", Annotations: map[string]string{
			certmanagerv1.PodCertificatesAnnotation: "prod.example.com", certmanagerv1.PodCertificatesForAnnotation: "all",
		}},
		Spec: certmanagerv1.IssuerSpec{Vault: &certmanagerv1.VaultIssuer{}},
	}
	issuer.Status.CA = &certmanagerv1.CAIssuerStatus{NotAfter: new(metav1.NewTime(time.Now().Add(time.Minute)))} // of a CA that it had once
	s := &served{t: t, issuer: issuer, name: client.ObjectKeyFromObject(pcr), events: record.NewFakeRecorder(100)}
	s.store = fake.NewClientBuilder().WithScheme(scheme).WithObjects(pcr, issuer).WithStatusSubresource(pcr, issuer).Build()
	s.ready(cmmeta.ConditionTrue)
	over, kept := ownwrites.New(s.store, time.Now), secrets.New(time.Now)
	if err := kept.Connect(t.Context(), secrets.Source{Client: over, Live: s.store, Cache: &informertest.FakeInformers{Scheme: scheme}}); err != nil {
		t.Fatal(err)
	}
	r := newRequests(&controller.Deps{
		Manager: replica{elected: elected, store: s.store}, Client: over, Pods: podapi.New(s.store), Secrets: kept, Now: time.Now, Signers: map[signer.Type]signer.Adapter{signer.TypeVault: by},
		Engine: engine.New(t.Context(), engine.Options{Client: over, Now: time.Now, Chance: func() float64 { return 0 }}),
		Events: func(string) record.EventRecorder { return s.events },
	}, metrics.NewPodRequests())
	s.Runner = engine.Run(r.Engine, r.kind())
	s.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(s.queue.ShutDown)
	if err := s.Start(t.Context(), s.queue); err != nil {
		t.Fatal(err)
	}
	s.Ring(s.name)
	by.began = time.Now()
	return s
}

// ready sets the condition of the issuer, and looks at the request.
func (s *served) ready(status cmmeta.ConditionStatus) {
	s.t.Helper()
	s.issuer.Status.Conditions = []certmanagerv1.IssuerCondition{{Type: certmanagerv1.IssuerConditionReady, Status: status, Message: "sealed", LastTransitionTime: new(metav1.Now())}}
	if err := s.store.Status().Update(s.t.Context(), s.issuer); err != nil {
		s.t.Fatal(err)
	}
	if s.Runner != nil {
		s.Ring(s.name)
	}
}

// look makes the passes that are due now, and returns the request.
func (s *served) look() *podCertificateRequest {
	s.t.Helper()
	for synctest.Wait(); s.queue.Len() > 0; synctest.Wait() {
		request, _ := s.queue.Get()
		result, err := s.Reconcile(s.t.Context(), request)
		if err != nil {
			s.t.Fatal(err)
		}
		s.queue.Done(request)
		if result.RequeueAfter > 0 {
			s.queue.AddAfter(request, result.RequeueAfter)
		}
	}
	got := &podCertificateRequest{}
	if err := s.store.Get(s.t.Context(), s.name, got); err != nil {
		s.t.Fatal(err)
	}
	return got
}

// within looks at the request each second until it has a verdict, for so long.
func (s *served) within(most time.Duration) *podCertificateRequest {
	s.t.Helper()
	for end := time.Now().Add(most); time.Now().Before(end); time.Sleep(time.Second) {
		if got := s.look(); len(got.Status.Conditions) > 0 {
			return got
		}
	}
	s.t.Fatalf("no verdict after %s", most)
	return nil
}

// said returns the next event; empty for none.
func (s *served) said() string {
	select {
	case said := <-s.events.Events:
		return said
	default:
		return ""
	}
}

// TestServerSigns: a server is asked again after each answer that is no certificate for the Pod, with a longer wait,
// and also if it says that it never signs: somebody may correct its role. The request waits, and the Pod says why. A
// certificate that the Pod cannot have is not handed out.
func TestServerSigns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		leads, by := make(chan struct{}), &server{answers: []func(r *signer.Request) error{
			func(*signer.Request) error {
				return fault.Failed(fault.ClassPolicy, "SigningError", "not by this role")
			},
			func(r *signer.Request) error {
				r.Names = &pki.AltNames{URIs: []string{"spiffe://prod.example.com/ns/shop/sa/bank"}}
				return nil
			},
			func(r *signer.Request) error { r.Duration *= 2; return nil },
			func(*signer.Request) error { return fault.ClassUnavailable.After(0, "SigningError", "sealed") },
		}}
		close(leads)
		s := newServed(t, leads, by)
		got := s.within(time.Minute)
		if fmt.Sprint(by.calls) != "[0s 1s 3s 6s 7s]" {
			t.Errorf("asked after %s", by.calls)
		}
		for _, want := range []string{"not by this role", "sa/bank", "valid for 4h0m0s", "sealed"} {
			if said := s.said(); !strings.Contains(said, want) || !strings.HasPrefix(said, "Warning SigningError "+doesNotCome) {
				t.Errorf("said %q, want %q", said, want)
			}
		}
		if c := got.Status.Conditions; len(c) != 1 || c[0].Type != certificatesv1.PodCertificateRequestConditionTypeIssued || c[0].Reason != reasonIssued {
			t.Fatalf("%+v", c)
		}
		chain, err := pki.DecodeChain([]byte(got.Status.CertificateChain))
		if err != nil || len(chain[0].URIs) != 1 || chain[0].URIs[0].Path != "/ns/shop/sa/web" || !got.Status.NotAfter.Time.Equal(chain[0].NotAfter) {
			t.Errorf("%v %+v", err, got.Status)
		}
	})
}

// TestServerSaysTheTime: an answer that differs in numbers alone is told once.
func TestServerSaysTheTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		leads, by := make(chan struct{}), &server{}
		for range 5 {
			by.answers = append(by.answers, func(*signer.Request) error {
				return fmt.Errorf("beyond the end of the CA: %s", time.Now().Format(time.RFC3339Nano))
			})
		}
		close(leads)
		s := newServed(t, leads, by)
		s.within(10 * time.Minute)
		if first, second := s.said(), s.said(); !strings.Contains(first, "end of the CA") || second != "" || len(by.calls) != 6 {
			t.Errorf("said %q, then %q, in %d calls", first, second, len(by.calls))
		}
	})
}

// TestNews: our own words are told anew if a number is another one, such as in the name of a Service. Those of a server
// are not.
func TestNews(t *testing.T) {
	t.Parallel()
	for reason, isNew := range map[string]bool{
		podrequest.ReasonServices: true, podrequest.ReasonCAEndsSoon: true, podrequest.ReasonForbidden: true,
		podrequest.ReasonSigningError: false, podrequest.ReasonIssuerNotReady: false,
	} {
		first, second := podrequest.Action{Reason: reason, Message: "the Service web-1 is missing"}, podrequest.Action{Reason: reason, Message: "the Service web-2 is missing"}
		if got := news(first) != news(second); got != isNew {
			t.Errorf("%s: %q and %q", reason, news(first), news(second))
		}
		if second.Message = "the Service db-1 is missing"; news(first) == news(second) {
			t.Errorf("%s: other words are no news", reason)
		}
	}
}

// TestServerIsAskedByTheLeader: a replica that does not lead asks no server to sign, however long a request waits. It
// asks as soon as it leads.
func TestServerIsAskedByTheLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		leads, by := make(chan struct{}), &server{}
		s := newServed(t, leads, by)
		for range 60 {
			if got := s.look(); len(got.Status.Conditions) > 0 || len(by.calls) > 0 || s.said() != "" {
				t.Fatalf("%+v, asked %d times", got.Status, len(by.calls))
			}
			time.Sleep(time.Minute)
		}
		close(leads)
		s.Restart()
		if got := s.look(); len(got.Status.Conditions) != 1 || len(by.calls) != 1 {
			t.Errorf("%+v, asked %d times", got.Status, len(by.calls))
		}
	})
}

// TestIssuerIsNotReadyMeanwhile: what a server has signed is handed out, also if the issuer was not ready meanwhile: it
// is not asked to sign again.
func TestIssuerIsNotReadyMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		leads, by := make(chan struct{}), &server{answers: []func(*signer.Request) error{
			func(*signer.Request) error { time.Sleep(20 * time.Second); return nil },
		}}
		close(leads)
		s := newServed(t, leads, by)
		s.look()
		time.Sleep(10 * time.Second)
		s.ready(cmmeta.ConditionFalse)
		s.look()
		time.Sleep(time.Second)
		s.ready(cmmeta.ConditionTrue)
		s.within(time.Minute)
		if fmt.Sprint(by.calls) != "[0s]" || !strings.Contains(s.said(), "sealed") {
			t.Errorf("asked after %s", by.calls)
		}
	})
}

// TestOldCertificate: a certificate that has become too old before it could be handed out is asked for anew: the API
// server would not take it.
func TestOldCertificate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		leads, by := make(chan struct{}), &server{answers: []func(*signer.Request) error{
			func(*signer.Request) error { time.Sleep(10 * time.Second); return nil },
		}}
		close(leads)
		s := newServed(t, leads, by)
		s.look()
		s.ready(cmmeta.ConditionFalse)
		time.Sleep(time.Minute)
		s.look()
		time.Sleep(5 * time.Minute)
		s.ready(cmmeta.ConditionTrue)
		if got := s.look(); len(got.Status.Conditions) != 1 || fmt.Sprint(by.calls) != "[0s 6m0s]" || time.Since(got.Status.NotBefore.Time) > time.Minute {
			t.Errorf("asked after %s: %+v", by.calls, got.Status)
		}
	})
}
