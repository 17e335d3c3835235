package requests

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"chancery.dev/api"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/kube/ownwrites"
	"chancery.dev/internal/machine/request"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/signer"
)

// pickup is a Signer far away: it takes a request in once, hands out what must not be lost, and gives the certificate
// to whoever has that.
type pickup struct {
	handedIn, given int
	// unapproved counts calls before the approval was stored.
	unapproved int
	// chain is what is given; err instead if set.
	chain []byte
	err   error
}

const pickupID = certmanagerv1.VenafiPickupIDAnnotation

func (p *pickup) Lane(certmanagerv1.GenericIssuer) engine.Lane { return engine.Lane{Name: "afar"} }

func (p *pickup) Sign(_ context.Context, _ certmanagerv1.GenericIssuer, r signer.Request) (signer.Result, error) {
	if cr, ok := r.Source.(*certmanagerv1.CertificateRequest); !ok || !approved(cr) {
		p.unapproved++
	}
	time.Sleep(time.Second)
	switch {
	case p.err != nil:
		return signer.Result{}, p.err
	case r.Source.GetAnnotations()[pickupID] == "":
		p.handedIn++
		return signer.Result{Annotations: map[string]string{pickupID: "42"}}, fault.Pending("", "handed in")
	default:
		p.given++
		return signer.Result{Bundle: signer.Bundle{Chain: p.chain}}, nil
	}
}

func approved(cr *certmanagerv1.CertificateRequest) bool {
	return certmanagerv1.HasCertificateRequestCondition(cr.Status.Conditions, certmanagerv1.CertificateRequestConditionApproved, cmmeta.ConditionTrue)
}

// desk gets one CertificateRequest signed by a call, over an API that keeps objects.
type desk struct {
	*engine.Runner[client.Object, memory, *observation, request.Action]

	t      *testing.T
	store  client.Client
	events *record.FakeRecorder
	signer *pickup
	engine *engine.Engine
	deps   *controller.Deps
	// refuse is what the API server answers to writes of annotations, and of a status.
	refuse struct{ patch, status error }
}

var requestName = types.NamespacedName{Namespace: "ns", Name: "r"}

func newDesk(t *testing.T) *desk {
	t.Helper()
	scheme, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	cr := &certmanagerv1.CertificateRequest{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "r", UID: "1", Annotations: map[string]string{"kept": "yes"},
	}, Spec: certmanagerv1.CertificateRequestSpec{IssuerRef: cmmeta.IssuerReference{Name: "i"}}}
	issuer := &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "i", UID: "2"}}
	issuer.Spec.Venafi = &certmanagerv1.VenafiIssuer{}
	certmanagerv1.SetIssuerCondition(issuer, certmanagerv1.IssuerCondition{Type: certmanagerv1.IssuerConditionReady, Status: cmmeta.ConditionTrue}, time.Now())
	d := &desk{t: t, events: record.NewFakeRecorder(10), signer: &pickup{chain: selfSigned(t)}}
	d.store = fake.NewClientBuilder().WithScheme(scheme).WithObjects(cr, issuer).
		WithStatusSubresource(cr, issuer, &certmanagerv1.ClusterIssuer{}, &certificatesv1.CertificateSigningRequest{}).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if d.refuse.patch != nil {
				return d.refuse.patch
			}
			return c.Patch(ctx, o, p, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if d.refuse.status != nil {
				return d.refuse.status
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	}).Build()
	over := ownwrites.New(d.store, time.Now)
	deps := &controller.Deps{
		Client: over, Now: time.Now, Engine: engine.New(t.Context(), engine.Options{Client: over, Now: time.Now}),
		Signers: map[signer.Type]signer.Adapter{signer.TypeVenafi: d.signer, signer.TypeACME: shop{}}, Manager: manager{reader: d.store},
	}
	d.engine, d.deps = deps.Engine, deps
	deps.Settings.Approvers = map[request.Form]request.Approver{request.FormCertificateRequest: request.ApproveAuto}
	deps.Settings.ApproveSigners = request.SignerPatterns{"*"}
	d.Runner = (&requests{deps, &certificateRequests{deps}}).run(kind{
		Name: certmanagerv1.CertificateRequestKind, Events: d.events, New: func() client.Object { return &certmanagerv1.CertificateRequest{} },
	})
	return d
}

// selfSigned is a certificate, in PEM.
func selfSigned(t *testing.T) []byte {
	t.Helper()
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	return certificateFor(t, key)
}

// pass looks at the request once, and waits for the call that comes of it. It returns the request, and the error of
// the pass.
func (d *desk) pass() (*certmanagerv1.CertificateRequest, error) {
	d.t.Helper()
	_, err := d.Reconcile(d.t.Context(), reconcile.Request{NamespacedName: requestName})
	time.Sleep(2 * time.Second)
	synctest.Wait()
	cr := &certmanagerv1.CertificateRequest{}
	if err := d.store.Get(d.t.Context(), requestName, cr); err != nil {
		d.t.Fatal(err)
	}
	return cr, err
}

// annotateIssuer sets an annotation of the issuer.
func (d *desk) annotateIssuer(key, value string) {
	d.t.Helper()
	issuer := &certmanagerv1.Issuer{}
	if err := d.store.Get(d.t.Context(), types.NamespacedName{Namespace: "ns", Name: "i"}, issuer); err != nil {
		d.t.Fatal(err)
	}
	metav1.SetMetaDataAnnotation(&issuer.ObjectMeta, key, value)
	if err := d.store.Update(d.t.Context(), issuer); err != nil {
		d.t.Fatal(err)
	}
}

// TestWhatIsBroughtIsStored: what a Signer has given to remember is stored before it is called again, also when the
// API server is away at the first tries and the issuer changes meanwhile: nothing is handed in twice.
func TestWhatIsBroughtIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		d.refuse.patch = errors.New("the API server is away")
		if _, err := d.pass(); err != nil || d.signer.handedIn != 1 {
			t.Fatalf("%v, handed in %d times", err, d.signer.handedIn)
		}
		for _, fields := range []string{"1", "2"} {
			d.annotateIssuer(certmanagerv1.VenafiCustomFieldsAnnotation, fields)
			if _, err := d.pass(); !errors.Is(err, d.refuse.patch) {
				t.Fatalf("%v: want the error of the API server", err)
			}
		}
		d.refuse.patch = nil
		cr, err := d.pass()
		if want := map[string]string{"kept": "yes", pickupID: "42"}; err != nil || !maps.Equal(cr.Annotations, want) {
			t.Errorf("annotations %v, %v", cr.Annotations, err)
		}
		if cr, err = d.pass(); err != nil || len(cr.Status.Certificate) == 0 || d.signer.handedIn != 1 || d.signer.given != 1 {
			t.Errorf("%v: handed in %d times, given %d times, %+v", err, d.signer.handedIn, d.signer.given, cr.Status)
		}
	})
}

// TestApprovalIsStoredFirst: nothing leaves the process before the approval is stored. That the API server refuses it
// is said once.
func TestApprovalIsStoredFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		d.refuse.status = apierrors.NewForbidden(certmanagerv1.SchemeGroupVersion().WithResource("certificaterequests").GroupResource(), "r", errors.New("no"))
		for range 2 {
			if _, err := d.pass(); err != nil {
				t.Fatal(err)
			}
		}
		if d.signer.handedIn != 0 || len(d.events.Events) != 1 {
			t.Fatalf("handed in %d times, %d events", d.signer.handedIn, len(d.events.Events))
		}
		d.refuse.status = nil
		cr, err := d.pass()
		if err != nil || d.signer.handedIn != 1 || d.signer.unapproved != 0 || !approved(cr) {
			t.Errorf("%v, handed in %d times, %d times before the approval was stored", err, d.signer.handedIn, d.signer.unapproved)
		}
	})
}

// TestCertificateIsKept: a certificate that cannot be stored yet is not asked for again.
func TestCertificateIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		for range 2 { // handed in, and given
			if _, err := d.pass(); err != nil {
				t.Fatal(err)
			}
		}
		d.refuse.status = errors.New("the API server is away")
		for range 3 {
			if _, err := d.pass(); !errors.Is(err, d.refuse.status) {
				t.Fatalf("%v: want the error of the API server", err)
			}
		}
		d.refuse.status = nil
		if cr, err := d.pass(); err != nil || len(cr.Status.Certificate) == 0 || d.signer.given != 1 {
			t.Errorf("%v: given %d times, %+v", err, d.signer.given, cr.Status)
		}
	})
}

// TestWaitIsSaidAndEnds: what a Signer waits for is said in the status, and in the list of waits with its end. A change
// of what the call is made with ends the wait, and a change of an annotation that no Signer reads does not.
func TestWaitIsSaidAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		d.signer.err = fault.ClassCredential.After(0, "VenafiInitError", "who are you?")
		for range 2 {
			if _, err := d.pass(); err != nil {
				t.Fatal(err)
			}
		}
		cr, _ := d.pass()
		ready := certmanagerv1.FindCertificateRequestCondition(cr.Status.Conditions, certmanagerv1.CertificateRequestConditionReady)
		if ready == nil || ready.Reason != "Pending" || ready.Message != "who are you?" {
			t.Errorf("%+v", ready)
		}
		if w := d.engine.Waits(); len(w) != 1 || w[0].What != engine.WaitTime || w[0].Detail != "who are you?" || time.Until(w[0].Until) < time.Minute {
			t.Errorf("waits %+v", w)
		}
		d.signer.err = nil
		d.annotateIssuer("stamped", "by a tool")
		cr.Annotations["other"] = "yes"
		if err := d.store.Update(t.Context(), cr); err != nil {
			t.Fatal(err)
		}
		if _, err := d.pass(); err != nil || d.signer.handedIn != 0 {
			t.Errorf("%v, handed in %d times before the back-off has ended", err, d.signer.handedIn)
		}
		d.annotateIssuer(certmanagerv1.VenafiCustomFieldsAnnotation, "[]")
		if _, err := d.pass(); err != nil || d.signer.handedIn != 1 {
			t.Errorf("%v, handed in %d times once the issuer has changed", err, d.signer.handedIn)
		}
	})
}

// setReady sets the condition Ready of the issuer.
func (d *desk) setReady(status cmmeta.ConditionStatus) {
	d.t.Helper()
	issuer := &certmanagerv1.Issuer{}
	if err := d.store.Get(d.t.Context(), types.NamespacedName{Namespace: "ns", Name: "i"}, issuer); err != nil {
		d.t.Fatal(err)
	}
	certmanagerv1.SetIssuerCondition(issuer, certmanagerv1.IssuerCondition{Type: certmanagerv1.IssuerConditionReady, Status: status}, time.Now())
	if err := d.store.Status().Update(d.t.Context(), issuer); err != nil {
		d.t.Fatal(err)
	}
}

// TestRecoveryOfTheIssuerEndsTheWait: a request of an issuer that is ready again is tried at once.
func TestRecoveryOfTheIssuerEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		d.signer.err = fault.ClassCredential.After(0, "VenafiInitError", "who are you?")
		for range 2 {
			if _, err := d.pass(); err != nil {
				t.Fatal(err)
			}
		}
		d.signer.err = nil
		for _, status := range []cmmeta.ConditionStatus{cmmeta.ConditionFalse, cmmeta.ConditionTrue} {
			if d.signer.handedIn != 0 {
				t.Fatal("handed in before the issuer is ready again")
			}
			d.setReady(status)
			if _, err := d.pass(); err != nil {
				t.Fatal(err)
			}
		}
		if d.signer.handedIn != 1 {
			t.Errorf("handed in %d times once the issuer is ready again", d.signer.handedIn)
		}
	})
}

// TestAnswerIsKeptWhileTheIssuerIsNotReady: what a call brings is stored although its issuer is not ready any more.
func TestAnswerIsKeptWhileTheIssuerIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		for _, done := range []func(cr *certmanagerv1.CertificateRequest) bool{
			func(cr *certmanagerv1.CertificateRequest) bool { return cr.Annotations[pickupID] == "42" },
			func(cr *certmanagerv1.CertificateRequest) bool { return len(cr.Status.Certificate) > 0 },
		} {
			d.setReady(cmmeta.ConditionTrue)
			if _, err := d.Reconcile(t.Context(), reconcile.Request{NamespacedName: requestName}); err != nil {
				t.Fatal(err)
			}
			d.setReady(cmmeta.ConditionFalse)
			for range 2 { // while the call is under way, and once it has come back
				if _, err := d.pass(); err != nil {
					t.Fatal(err)
				}
			}
			if cr, _ := d.pass(); !done(cr) {
				t.Fatalf("annotations %v, status %+v", cr.Annotations, cr.Status)
			}
		}
		if d.signer.handedIn != 1 || d.signer.given != 1 {
			t.Errorf("handed in %d times, given %d times", d.signer.handedIn, d.signer.given)
		}
	})
}

// TestSigningRequestEndsWithItsCertificate: a CertificateSigningRequest whose ClusterIssuer is gone fails, but not
// while a call is under way for it: the certificate would be lost.
func TestSigningRequestEndsWithItsCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for what, refusal := range map[string]error{"signed": nil, "refused": fault.After(time.Hour, "Busy", "no")} {
			d := newDesk(t)
			issuer := &certmanagerv1.ClusterIssuer{ObjectMeta: metav1.ObjectMeta{Name: "i", UID: "3"}}
			issuer.Spec.Venafi = &certmanagerv1.VenafiIssuer{}
			issuer.Status.Conditions = []certmanagerv1.IssuerCondition{{Type: certmanagerv1.IssuerConditionReady, Status: cmmeta.ConditionTrue}}
			csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{
				Name: "r", UID: "4", Annotations: map[string]string{pickupID: "42"},
			}, Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: "cert-manager.io/i"}}
			csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: "True"}}
			for _, o := range []client.Object{issuer, csr} {
				if err := d.store.Create(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
			runner := (&requests{d.deps, &signingRequests{d.deps}}).run(kind{
				Name: SigningRequestKind, Events: d.events, New: func() client.Object { return &certificatesv1.CertificateSigningRequest{} },
			})
			pass := func() {
				if _, err := runner.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(csr)}); err != nil {
					t.Fatal(err)
				}
			}
			d.signer.err = refusal
			pass()
			if err := d.store.Delete(t.Context(), issuer); err != nil {
				t.Fatal(err)
			}
			pass()
			time.Sleep(2 * time.Second)
			synctest.Wait()
			pass()
			if err := d.store.Get(t.Context(), client.ObjectKeyFromObject(csr), csr); err != nil {
				t.Fatal(err)
			}
			if failed := hasSigningCondition(csr, certificatesv1.CertificateFailed); failed != (refusal != nil) || failed == (len(csr.Status.Certificate) > 0) {
				t.Errorf("%s: %+v", what, csr.Status)
			}
		}
	})
}

// TestASigningRequestFailsByTheLastStateOfItsIssuer: a CertificateSigningRequest that is made as soon as its
// ClusterIssuer is ready does not fail because the watch of the issuers is behind; one whose issuer is not ready does.
func TestASigningRequestFailsByTheLastStateOfItsIssuer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, status := range []cmmeta.ConditionStatus{cmmeta.ConditionTrue, cmmeta.ConditionFalse} {
			d := newDesk(t)
			stale := &certmanagerv1.ClusterIssuer{ObjectMeta: metav1.ObjectMeta{Name: "i", UID: "3"}}
			stale.Spec.Venafi = &certmanagerv1.VenafiIssuer{}
			stale.Status.Conditions = []certmanagerv1.IssuerCondition{{Type: certmanagerv1.IssuerConditionReady, Status: cmmeta.ConditionFalse, Message: "no Secret"}}
			csr := &certificatesv1.CertificateSigningRequest{
				ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "4"},
				Spec:       certificatesv1.CertificateSigningRequestSpec{SignerName: "cert-manager.io/i"},
			}
			csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: "True"}}
			for _, o := range []client.Object{stale, csr} {
				if err := d.store.Create(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
			ready := stale.DeepCopy()
			ready.Status.Conditions[0].Status = status
			server := fake.NewClientBuilder().WithScheme(d.store.Scheme()).WithObjects(ready).WithStatusSubresource(ready).Build()
			d.deps.Manager = manager{reader: server}
			runner := (&requests{d.deps, &signingRequests{d.deps}}).run(kind{
				Name: SigningRequestKind, Events: d.events, New: func() client.Object { return &certificatesv1.CertificateSigningRequest{} },
			})
			if _, err := runner.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(csr)}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if err := d.store.Get(t.Context(), client.ObjectKeyFromObject(csr), csr); err != nil {
				t.Fatal(err)
			}
			if failed := hasSigningCondition(csr, certificatesv1.CertificateFailed); failed != (status == cmmeta.ConditionFalse) {
				t.Errorf("the API server has Ready=%s: %+v", status, csr.Status)
			}
		}
	})
}

// TestRefusedApprovalIsTriedAgain: after a second at first, whatever it was refused for, then ever later, up to
// five minutes.
func TestRefusedApprovalIsTriedAgain(t *testing.T) {
	t.Parallel()
	r, p := &requests{}, &pass{Memory: &memory{approving: `Foo "x"`}}
	var waits []time.Duration
	for range 10 {
		r.refused(p, errors.New("no"))
		waits = append(waits, p.Retry)
	}
	want := []time.Duration{
		time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, 64 * time.Second,
		128 * time.Second, 256 * time.Second, 5 * time.Minute,
	}
	if !slices.Equal(waits, want) {
		t.Errorf("tried again after %v, want %v", waits, want)
	}
}
