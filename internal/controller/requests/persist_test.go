package requests

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"chancery.dev/api"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/overlay"
	"chancery.dev/internal/request"
	"chancery.dev/internal/signer"
)

// pickup is a Signer that hands out what must not be lost, once.
type pickup struct{ handedIn int }

func (p *pickup) Sign(_ context.Context, _ certmanagerv1.GenericIssuer, r signer.Request) (signer.Result, error) {
	if r.Source.GetAnnotations()["pickup"] != "" {
		return signer.Result{}, fault.Pending("Waiting", "waiting for %s", r.Source.GetAnnotations()["pickup"])
	}
	p.handedIn++
	return signer.Result{Annotations: map[string]string{"pickup": "42"}}, fault.After(time.Minute, "", "handed in")
}

// TestAnnotationsOutliveTrouble: what a Signer has annotated is stored before it is called again, also when the
// API server is away at the first try, so that nothing is handed in twice.
func TestAnnotationsOutliveTrouble(t *testing.T) {
	scheme, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	cr := &certmanagerv1.CertificateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r", Annotations: map[string]string{"kept": "yes"}}}
	away := true
	store := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cr).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if away {
				return errors.New("the API server is away")
			}
			return c.Patch(ctx, o, p, opts...)
		},
	}).Build()
	p := &pickup{}
	d := &controller.Deps{Client: overlay.New(store, time.Now), Signers: map[signer.Type]signer.Signer{signer.TypeVenafi: p}}
	r := newRequests(d, nil, record.NewFakeRecorder(10), newLastSaid())
	issuer := &certmanagerv1.Issuer{Spec: certmanagerv1.IssuerSpec{Venafi: &certmanagerv1.VenafiIssuer{}}}
	pass := func() (verdict, error) {
		seen := &certmanagerv1.CertificateRequest{}
		if err := store.Get(t.Context(), client.ObjectKeyFromObject(cr), seen); err != nil {
			t.Fatal(err)
		}
		return r.sign(t.Context(), issuer, &observation{object: seen, sign: signer.Request{Source: seen}}, verdict{step: request.StepSign})
	}
	for range 2 { // handed in, then tried again
		if v, err := pass(); err == nil || fault.Of(err) != nil || v.step != request.StepIgnore {
			t.Fatalf("%+v, %v: want the error of the API server, and nothing recorded", v, err)
		}
	}
	away = false
	if v, err := pass(); v.reason != "Waiting" || fault.Of(err) == nil {
		t.Errorf("%+v, %v", v, err)
	}
	if err := store.Get(t.Context(), client.ObjectKeyFromObject(cr), cr); err != nil || !maps.Equal(cr.Annotations, map[string]string{"kept": "yes", "pickup": "42"}) {
		t.Errorf("annotations %v, %v", cr.Annotations, err)
	}
	if p.handedIn != 1 || len(r.unsaved.kept) != 0 {
		t.Errorf("handed in %d times, %d annotations are still kept", p.handedIn, len(r.unsaved.kept))
	}
}

// TestAnnotationsOfOneRequestOnly: what could not be stored on a request that was then deleted is not stored on the
// next one of its name, which nobody has handed in.
func TestAnnotationsOfOneRequestOnly(t *testing.T) {
	u := newUnsaved()
	of := func(uid string) client.Object {
		return &certmanagerv1.CertificateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r", UID: types.UID(uid)}}
	}
	u.add(of("1"), map[string]string{"pickup": "42"})
	if kept := u.add(of("1"), map[string]string{"more": "yes"}); !maps.Equal(kept, map[string]string{"pickup": "42", "more": "yes"}) {
		t.Errorf("kept %v", kept)
	}
	if kept := u.add(of("2"), nil); len(kept) > 0 {
		t.Errorf("the next request gets %v", kept)
	}
	if u.add(of("2"), map[string]string{"pickup": "43"}); len(u.kept) != 1 {
		t.Errorf("%d requests are kept of one name", len(u.kept))
	}
}
