package certificates

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/kube/ownwrites"
	"chancery.dev/internal/kube/secrets"
	"chancery.dev/internal/machine/certificate"
)

// GetCache makes the cache show what the API server has.
func (m readsLive) GetCache() cache.Cache { return liveCache{api: m.api} }

type liveCache struct {
	cache.Cache

	api client.Client
}

func (c liveCache) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	return c.api.List(ctx, into, opts...)
}

// sharing are Certificates that name one Secret, and the controller that looks at them.
type sharing struct {
	raw    client.Client
	of     *certificates
	runner *runner
	on     *inOrderLast
	queue  controller.Queue
	// visits counts the Certificates that were read, each time that one was.
	visits int
	// owners says whose the Secret is, by the Certificate that was looked at.
	owners map[string]string
}

func certificateNamed(i int) string { return fmt.Sprintf("web-%03d", i) }

// newSharing has n Certificates, each a second younger than the one before.
func newSharing(t *testing.T, n int) *sharing {
	t.Helper()
	s, scheme := &sharing{}, runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{certmanagerv1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	b := fake.NewClientBuilder().WithScheme(scheme).
		WithIndex(&certmanagerv1.CertificateRequest{}, ownwrites.OwnerIndex, ownwrites.OwnerOf).WithIndex(&corev1.Secret{}, ownwrites.OwnerIndex, ownwrites.OwnerOf).
		WithIndex(&certmanagerv1.Certificate{}, secretNameIndex, secretNameOf).WithIndex(&certmanagerv1.Certificate{}, passwordIndex, passwordSecretsOf)
	for i := range n {
		crt := &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: certificateNamed(i), UID: "1"}}
		crt.CreationTimestamp = metav1.NewTime(time.Unix(int64(i), 0))
		crt.Spec = certmanagerv1.CertificateSpec{SecretName: "shared", IssuerRef: cmmeta.IssuerReference{Name: "none"}}
		b = b.WithObjects(crt)
	}
	s.raw = b.WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, api client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, ok := o.(*certmanagerv1.Certificate); ok {
				s.visits++
			}
			return api.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := api.List(ctx, list, opts...)
			if found, ok := list.(*certmanagerv1.CertificateList); ok {
				s.visits += len(found.Items)
			}
			return err
		},
	}).Build()
	s.start(t)
	return s
}

// start tells a process that has just started of all that is there.
func (s *sharing) start(t *testing.T) {
	t.Helper()
	api, kept := ownwrites.New(s.raw, time.Now), secrets.New(time.Now)
	if err := kept.Connect(t.Context(), secrets.Source{Client: api, Live: s.raw}); err != nil {
		t.Fatal(err)
	}
	s.of = &certificates{Deps: &controller.Deps{Now: time.Now, Client: api, Secrets: kept, Manager: readsLive{api: s.raw}}, claims: secrets.NewClaims()}
	s.runner = engine.Run(engine.New(t.Context(), engine.Options{Client: api, Now: time.Now}), engine.Kind[*certmanagerv1.Certificate, memory, *view, certificate.Action]{
		Name: "Certificate", New: func() *certmanagerv1.Certificate { return &certmanagerv1.Certificate{} }, Events: record.NewFakeRecorder(9),
		Observe: func(ctx context.Context, p *pass) (*view, error) {
			v, err := s.of.observe(ctx, p)
			if err == nil {
				s.owners[p.Object.Name] = v.SecretOwner
			}
			return v, err
		},
		Decide: func(*view, time.Time) certificate.Action { return certificate.Action{} },
		Plan: func(context.Context, *pass, *view, certificate.Action) (engine.Plan, error) {
			return engine.Plan{}, nil
		},
	})
	s.queue = controller.NewQueue("", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(s.queue.ShutDown)
	s.on = &inOrderLast{claims: s.of.claims, now: time.Now}
	for _, crt := range s.all(t) {
		s.on.Create(t.Context(), event.CreateEvent{Object: &crt, IsInInitialList: true}, s.queue)
	}
	s.visits = 0
}

func (s *sharing) all(t *testing.T) []certmanagerv1.Certificate {
	t.Helper()
	list := &certmanagerv1.CertificateList{}
	if err := s.raw.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// lookAtAll makes the controller look at each again, as each is after some minutes.
func (s *sharing) lookAtAll(t *testing.T) {
	t.Helper()
	for _, crt := range s.all(t) {
		s.queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&crt)})
	}
	s.visits = 0
}

// change changes a Certificate as a user does, and tells of it.
func (s *sharing) change(t *testing.T, i int, change func(*certmanagerv1.Certificate)) {
	t.Helper()
	crt := &certmanagerv1.Certificate{}
	if err := s.raw.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: certificateNamed(i)}, crt); err != nil {
		t.Fatal(err)
	}
	old := crt.DeepCopy()
	change(crt)
	if err := s.raw.Update(t.Context(), crt); err != nil {
		t.Fatal(err)
	}
	s.visits = 0
	s.on.Update(t.Context(), event.UpdateEvent{ObjectOld: old, ObjectNew: crt}, s.queue)
}

// remove deletes a Certificate, and tells of it.
func (s *sharing) remove(t *testing.T, i int) {
	t.Helper()
	crt := &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: certificateNamed(i)}}
	if err := s.raw.Delete(t.Context(), crt); err != nil {
		t.Fatal(err)
	}
	s.on.Delete(t.Context(), event.DeleteEvent{Object: crt}, s.queue)
}

// work makes all passes that are due.
func (s *sharing) work(t *testing.T) {
	t.Helper()
	s.owners = map[string]string{}
	for s.queue.Len() > 0 {
		item, _ := s.queue.Get()
		if _, err := s.runner.Reconcile(t.Context(), item); err != nil {
			t.Fatal(err)
		}
		s.queue.Done(item)
	}
}

// TestCertificatesOfOneSecretAreVisitedOnce: a start, a change and a look after some minutes read each Certificate of a
// Secret that all of them name once, or twice where the Secret changes, and not as often as there are Certificates. The
// oldest has the Secret all the time.
func TestCertificatesOfOneSecretAreVisitedOnce(t *testing.T) {
	const few, part = 30, 4
	steps := []struct {
		name    string
		owner   int
		passes  func(n int) int
		visits  int // of each Certificate that has a pass, at most
		prepare func(s *sharing)
	}{
		{"a start", 0, func(n int) int { return n }, 1, func(*sharing) {}},
		{"the Secret has changed", 0, func(n int) int { return n }, 2, func(s *sharing) {
			secret := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "shared"}}
			for _, req := range s.of.dependents(t.Context(), secret) {
				s.queue.Add(req)
			}
		}},
		{"the owner has changed", 0, func(int) int { return 1 }, 1, func(s *sharing) {
			s.change(t, 0, func(c *certmanagerv1.Certificate) { c.Spec.DNSNames = []string{"example.com"} })
		}},
		{"the owner is gone", 1, func(n int) int { return n - 1 }, 1, func(s *sharing) {
			s.remove(t, 0)
			s.work(t)
			s.lookAtAll(t)
		}},
		{"the owner names another Secret", 1, func(int) int { return 1 }, 1, func(s *sharing) {
			s.change(t, 1, func(c *certmanagerv1.Certificate) { c.Spec.SecretName = "own" })
		}},
		{"a look at all", 2, func(n int) int { return n - 1 }, 1, func(s *sharing) { s.lookAtAll(t) }},
		{"another start", 2, func(n int) int { return n - 1 }, 1, func(s *sharing) { s.start(t) }},
	}
	for _, n := range []int{few, part * few} {
		s := newSharing(t, n)
		for _, step := range steps {
			s.visits = 0
			step.prepare(s)
			s.work(t)
			if want := step.passes(n); len(s.owners) != want || s.visits > step.visits*want {
				t.Errorf("%d Certificates, %s: looked at %d and read %d, want %d and at most %d of each", n, step.name, len(s.owners), s.visits, want, step.visits)
			}
			for name, owner := range s.owners {
				want := certificateNamed(step.owner)
				if step.owner > 1 && name == certificateNamed(1) {
					want = name // it has a Secret of its own by then
				}
				if owner != want {
					t.Errorf("%d Certificates, %s: to %s, the Secret belongs to %s, want %s", n, step.name, name, owner, want)
				}
			}
			t.Logf("%d Certificates, %s: looked at %d, read %d", n, step.name, len(s.owners), s.visits)
		}
	}
}
