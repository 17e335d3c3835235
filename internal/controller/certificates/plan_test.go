package certificates

import (
	"context"
	"crypto/x509"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/kube/ownwrites"
	"chancery.dev/internal/machine/certificate"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/machine/revocation"
	"chancery.dev/internal/signer"
)

// revoked is a CA: the serial numbers that it is asked to revoke.
type revoked map[string]int

func (r revoked) Revoke(_ context.Context, _ certmanagerv1.GenericIssuer, what signer.Revocation) error {
	r[string(what.Certificate)]++
	return nil
}

// TestRevocationBesideAStepThatFails: the CA is asked to revoke a compromised key, once, though each step of the
// issuance that is decided beside it fails.
func TestRevocationBesideAStepThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scheme := runtime.NewScheme()
		if err := certmanagerv1.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		crt := &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "1"}}
		api := ownwrites.New(fake.NewClientBuilder().WithScheme(scheme).WithObjects(crt).Build(), time.Now)
		r := &certificates{Deps: &controller.Deps{Now: time.Now, Client: api}}
		ca := revoked{}
		v := &view{pinned: &pinned{
			Pin: revocation.Pin{Reason: revocation.KeyCompromise}, leaf: &x509.Certificate{Raw: []byte("leaf")}, by: ca, issuer: &certmanagerv1.Issuer{},
		}}
		runner := engine.Run(engine.New(t.Context(), engine.Options{Client: api, Now: time.Now}), engine.Kind[*certmanagerv1.Certificate, memory, *view, certificate.Action]{
			Name: "Certificate", New: func() *certmanagerv1.Certificate { return &certmanagerv1.Certificate{} }, Events: record.NewFakeRecorder(9),
			Observe: func(context.Context, *pass) (*view, error) { return v, nil }, Plan: r.plan,
			Decide: func(*view, time.Time) certificate.Action { return certificate.Action{Step: -1, Revoke: true} },
		})
		for range 3 {
			if _, err := runner.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(crt)}); err == nil {
				t.Fatal("the step does not fail: the test shows nothing")
			}
			synctest.Wait()
		}
		if len(ca) != 1 || ca["leaf"] != 1 {
			t.Errorf("the CA was asked to revoke %v", ca)
		}
	})
}

// readsLive is a Manager that has only the API server to read from.
type readsLive struct {
	ctrl.Manager

	api client.Client
}

func (m readsLive) GetAPIReader() client.Reader { return m.api }
func (m readsLive) GetClient() client.Client    { return m.api }

// requestOf is a CertificateRequest that the Certificate with a UID owns; nobody owns it if that is empty.
func requestOf(name string, owner types.UID) *certmanagerv1.CertificateRequest {
	r := &certmanagerv1.CertificateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	if owner != "" {
		r.OwnerReferences = []metav1.OwnerReference{facts.OwnedBy(&certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: owner}})}
	}
	return r
}

// TestOrphansAreNotInTheWay: a backup may bring back the request of the next revision without its owner, or with the
// owner that the Certificate was before. Another name is taken then, always the same one.
func TestOrphansAreNotInTheWay(t *testing.T) {
	second := controller.SecondName("web-1", "1")
	for name, c := range map[string]struct {
		there []client.Object
		made  string
		// young says that the Certificate has just been made.
		young bool
	}{
		"nothing is there": {made: "web-1"},
		"an orphan":        {there: []client.Object{requestOf("web-1", "")}, made: second},
		"that of the Certificate before, which is about to be deleted": {there: []client.Object{requestOf("web-1", "2")}, young: true},
		"an orphan, beside a Certificate that has just been made":      {there: []client.Object{requestOf("web-1", "")}, made: second, young: true},
		"that of another Certificate":                                  {there: []client.Object{requestOf("web-1", "2")}, made: second},
		"ours, by a pass that was cut short":                           {there: []client.Object{requestOf("web-1", "1")}},
		"an orphan, and ours by a pass that was cut short":             {there: []client.Object{requestOf("web-1", ""), requestOf(second, "1")}},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := certmanagerv1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			raw := fake.NewClientBuilder().WithScheme(scheme).WithObjects(c.there...).WithInterceptorFuncs(interceptor.Funcs{
				Create: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.CreateOption) error {
					if _, asks := o.(*authenticationv1.SelfSubjectReview); asks {
						return nil
					}
					return api.Create(ctx, o, opts...)
				},
			}).Build()
			r := &certificates{Deps: &controller.Deps{Now: time.Now, Client: ownwrites.New(raw, time.Now), Manager: readsLive{api: raw}}}
			crt := &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "1"}}
			if c.young {
				crt.CreationTimestamp = metav1.Now()
			}
			crt.Spec = certmanagerv1.CertificateSpec{DNSNames: []string{"example.com"}, SecretName: "web", IssuerRef: cmmeta.IssuerReference{Name: "ca"}}
			crt.Spec.PrivateKey = &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm}
			a := certificate.Action{Step: certificate.StepCreateRequest, Name: "web-1", Revision: 1}
			if err := r.createRequest(t.Context(), &memory{}, crt, a); (err != nil) != (c.young && c.made == "") {
				t.Fatal(err)
			}
			all := &certmanagerv1.CertificateRequestList{}
			if err := raw.List(t.Context(), all); err != nil {
				t.Fatal(err)
			}
			var made []string
			for _, got := range all.Items {
				if !slices.ContainsFunc(c.there, func(o client.Object) bool { return o.GetName() == got.Name }) {
					made = append(made, got.Name)
				}
			}
			if strings.Join(made, " ") != c.made {
				t.Errorf("made %q, want %q", made, c.made)
			}
		})
	}
}

// TestRefusalsAreSaidOnce: why a CertificateRequest cannot be made, or deleted, is one event however often it is tried.
func TestRefusalsAreSaidOnce(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "certificaterequests"}, "web-1", errors.New("a policy"))
	for name, c := range map[string]struct {
		step    certificate.Step
		objects []client.Object
		err     error
		says    string
		again   time.Duration
	}{
		"somebody else's is there": {
			step: certificate.StepCreateRequest, says: `CertificateRequest "web-1" is in the way`, again: 30 * time.Second,
			objects: []client.Object{requestOf("web-1", ""), requestOf(controller.SecondName("web-1", "1"), "")},
		},
		"a webhook is down": {
			step: certificate.StepCreateRequest, says: "refuses to create request: Internal error occurred: no endpoints",
			err: apierrors.NewInternalError(errors.New("no endpoints")), again: 10 * time.Second,
		},
		"no right to create": {step: certificate.StepCreateRequest, says: "a policy", err: forbidden, again: 10 * time.Second},
		"no right to delete": {step: certificate.StepDropSurplus, says: "earlier revisions stay", err: forbidden, again: fault.WatchedWrites.With("").First},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := certmanagerv1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			crt := &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "1"}}
			crt.Spec = certmanagerv1.CertificateSpec{DNSNames: []string{"example.com"}, SecretName: "web", IssuerRef: cmmeta.IssuerReference{Name: "ca"}}
			crt.Spec.PrivateKey = &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm} // an RSA key is waited for
			raw := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(crt).WithObjects(append(c.objects, crt)...).WithInterceptorFuncs(interceptor.Funcs{
				Create: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.CreateOption) error {
					if _, asks := o.(*authenticationv1.SelfSubjectReview); asks {
						return nil
					}
					if c.err != nil {
						return c.err
					}
					return api.Create(ctx, o, opts...)
				},
				Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error { return c.err },
			}).Build()
			now := func() time.Time { return time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC) }
			api, events := ownwrites.New(raw, now), record.NewFakeRecorder(99)
			r := &certificates{Deps: &controller.Deps{Now: now, Client: api, Manager: readsLive{api: raw}}}
			runner := engine.Run(engine.New(t.Context(), engine.Options{Client: api, Now: now}), engine.Kind[*certmanagerv1.Certificate, memory, *view, certificate.Action]{
				Name: "Certificate", New: func() *certmanagerv1.Certificate { return &certmanagerv1.Certificate{} }, Events: events, Plan: r.plan,
				Observe: func(_ context.Context, p *pass) (*view, error) {
					v := &view{State: certificate.State{Certificate: p.Object, SecretOwner: "web", Issuer: &certificate.IssuerFacts{InLine: true}}}
					if c.step == certificate.StepDropSurplus {
						old := &certmanagerv1.CertificateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-1"}}
						v.Requests = []facts.Request{{CertificateRequest: old}}
					}
					p.Memory.recall(&v.State)
					return v, nil
				},
				Decide: func(v *view, now time.Time) certificate.Action {
					if c.step == certificate.StepCreateRequest {
						return certificate.Decide(v.State, now)
					}
					a := certificate.Action{Step: c.step, Names: []string{"web-1"}}
					for _, p := range v.Postponed {
						a = certificate.Action{Step: certificate.StepRest, Wake: p.Until}
						if p.News != "" {
							a.Events = []certificate.Event{{Message: p.News}}
						}
					}
					return a
				},
			})
			for range 3 {
				result, err := runner.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(crt)})
				if (err == nil) != (c.again > 0) || result.RequeueAfter != c.again {
					t.Fatalf("%+v, %v", result, err)
				}
			}
			close(events.Events)
			var said []string
			for e := range events.Events {
				said = append(said, e)
			}
			if len(said) != 1 || !strings.Contains(said[0], c.says) {
				t.Errorf("says %q", said)
			}
		})
	}
}
