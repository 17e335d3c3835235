package requests

import (
	"context"
	"crypto"
	"crypto/x509/pkix"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/signer"
)

// shop is an Orderer whose Orders are all called "order".
type shop struct{}

func (shop) Order(_ certmanagerv1.GenericIssuer, r signer.Request) (*acmev1.Order, error) {
	owner := metav1.NewControllerRef(r.Source, certmanagerv1.SchemeGroupVersion().WithKind(certmanagerv1.CertificateRequestKind))
	return &acmev1.Order{ObjectMeta: metav1.ObjectMeta{
		Namespace: r.ResourceNamespace, Name: "order", OwnerReferences: []metav1.OwnerReference{*owner},
	}}, nil
}

func (shop) Replaces(context.Context, certmanagerv1.GenericIssuer, signer.Request) (string, error) {
	return "the one before", nil
}

type manager struct {
	ctrl.Manager

	reader client.Reader
}

func (m manager) GetAPIReader() client.Reader { return m.reader }

// newOrderingDesk gets the request signed by an Order. The key is that of the request.
func newOrderingDesk(t *testing.T) (*desk, crypto.Signer) {
	t.Helper()
	d := newDesk(t)
	issuer, cr := &certmanagerv1.Issuer{}, &certmanagerv1.CertificateRequest{}
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err == nil {
		err = errors.Join(d.store.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: "i"}, issuer), d.store.Get(t.Context(), requestName, cr))
	}
	issuer.Spec = certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{}}
	if err == nil {
		cr.Spec.Request, err = pki.CreateCSR(pki.CSRTemplate{Subject: pkix.Name{CommonName: "x"}}, key)
	}
	if err = errors.Join(err, d.store.Update(t.Context(), issuer), d.store.Update(t.Context(), cr)); err != nil {
		t.Fatal(err)
	}
	return d, key
}

// order is the Order that there is; nil if there is none.
func (d *desk) order() *acmev1.Order {
	d.t.Helper()
	o := &acmev1.Order{}
	err := d.store.Get(d.t.Context(), types.NamespacedName{Namespace: "ns", Name: "order"}, o)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		d.t.Fatal(err)
	}
	return o
}

// comes makes the Order come to a status.
func (d *desk) comes(status acmev1.OrderStatus) {
	d.t.Helper()
	o := d.order()
	o.Status = status
	if err := d.store.Update(d.t.Context(), o); err != nil {
		d.t.Fatal(err)
	}
}

// says checks what the condition Ready of the request says after a pass.
func (d *desk) says(reason, text string) *certmanagerv1.CertificateRequest {
	d.t.Helper()
	cr, err := d.pass()
	ready := certmanagerv1.FindCertificateRequestCondition(cr.Status.Conditions, certmanagerv1.CertificateRequestConditionReady)
	if err != nil || ready == nil || ready.Reason != reason || !strings.Contains(ready.Message, text) {
		d.t.Fatalf("%v, %+v: want %s with %q", err, ready, reason, text)
	}
	return cr
}

// TestAnOrderIsMadeOnce: after the approval is stored, and not before. The request says what the Order says, and fails
// with the class of the Order.
func TestAnOrderIsMadeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := newOrderingDesk(t)
		d.refuse.status = errors.New("the API server is away")
		if _, err := d.pass(); !errors.Is(err, d.refuse.status) || d.order() != nil {
			t.Fatalf("%v: %+v was ordered before the approval was stored", err, d.order())
		}
		d.refuse.status = nil
		d.says("Pending", "Waiting on certificate issuance from order ns/order")
		made := d.order()
		if made == nil || made.Spec.Replaces != "the one before" {
			t.Fatalf("made %+v", made)
		}
		before := d.says("Pending", "from order ns/order")
		if after := d.says("Pending", "from order ns/order"); before.ResourceVersion != after.ResourceVersion || d.order().ResourceVersion != made.ResourceVersion {
			t.Error("something was written while nothing has changed")
		}
		d.comes(acmev1.OrderStatus{State: acmev1.Pending, Reason: "no solver"})
		d.says("Pending", `"pending": no solver`)
		if w := d.engine.Waits(); len(w) != 1 || w[0].What != engine.WaitEvent || !strings.Contains(w[0].Detail, "no solver") {
			t.Errorf("waits %+v", w)
		}
		d.comes(acmev1.OrderStatus{State: acmev1.Errored, Reason: "in other words", FailureClass: "RateLimited"})
		cr := d.says("Failed", `order is in "errored" state: in other words`)
		class := certmanagerv1.FindCertificateRequestCondition(cr.Status.Conditions, certmanagerv1.CertificateRequestConditionFailureClass)
		if class == nil || class.Reason != "RateLimited" {
			t.Errorf("class %+v", class)
		}
	})
}

// TestAnOrderIsFound: the Order of a pass that was cut short is used. One of somebody else is neither used nor changed;
// nobody tells when it goes, so it is looked for again. The request has no owner: nobody waits for it.
func TestAnOrderIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, uid := range []types.UID{"1", "another"} {
			d, _ := newOrderingDesk(t)
			o, _ := shop{}.Order(nil, signer.Request{Source: &certmanagerv1.CertificateRequest{ObjectMeta: metav1.ObjectMeta{UID: uid}}, ResourceNamespace: "ns"})
			if err := d.store.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			if uid == "1" {
				d.says("Pending", "from order ns/order")
			} else if cr, err := d.pass(); err == nil || !strings.Contains(err.Error(), "belongs to another request: delete it") || !approved(cr) {
				t.Errorf("%v, %+v", err, cr.Status)
			}
			if d.order().ResourceVersion != o.ResourceVersion {
				t.Error("the Order was changed")
			}
		}
	})
}

// TestCertificateForAnotherKey: the Order is deleted, and the next one is not made in haste.
func TestCertificateForAnotherKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, key := newOrderingDesk(t)
		d.says("Pending", "from order")
		d.comes(acmev1.OrderStatus{State: acmev1.Valid, Certificate: selfSigned(t)})
		d.says("Pending", "public key")
		d.says("Pending", "ordering another one at")
		if d.order() != nil {
			t.Fatal("the Order is there")
		}
		until := d.engine.Waits()[0].Until
		if wait := time.Until(until); wait < 30*time.Second || wait > time.Minute {
			t.Errorf("the next one in %s", wait)
		}
		time.Sleep(3 * time.Minute) // and the fake API server counts versions of the name from one again
		d.says("Pending", "from order")
		d.comes(acmev1.OrderStatus{State: acmev1.Valid, Certificate: certificateFor(t, key)})
		if cr := d.says("Issued", "fetched"); string(cr.Status.Certificate) != string(d.order().Status.Certificate) || cr.Status.CA != nil {
			t.Errorf("%+v", cr.Status)
		}
	})
}

// TestAnOrphanIsNotInTheWay: a backup has brought back an Order without its owner. The request of a Certificate gets
// one by another name, and stays with it, also once the orphan is gone. Where that name is taken, too, the request says
// so.
func TestAnOrphanIsNotInTheWay(t *testing.T) {
	orphan := func(name string) *acmev1.Order {
		return &acmev1.Order{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Status: acmev1.OrderStatus{State: acmev1.Valid, Certificate: []byte("x")}}
	}
	for _, taken := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d, _ := newOrderingDesk(t)
			cr := &certmanagerv1.CertificateRequest{}
			err := d.store.Get(t.Context(), requestName, cr)
			second := controller.SecondName("order", cr.UID)
			cr.OwnerReferences = []metav1.OwnerReference{facts.OwnedBy(&certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "w"}})}
			err = errors.Join(err, d.store.Update(t.Context(), cr), d.store.Create(t.Context(), orphan("order")))
			if taken {
				err = errors.Join(err, d.store.Create(t.Context(), orphan(second)))
			}
			if err != nil {
				t.Fatal(err)
			}
			if taken {
				if cr, err := d.pass(); err == nil || !strings.Contains(err.Error(), "ns/order belongs to another request: delete it") || !approved(cr) {
					t.Errorf("%v, %+v", err, cr.Status)
				}
				return
			}
			d.says("Pending", "from order ns/"+second)
			if err := d.store.Delete(t.Context(), orphan("order")); err != nil {
				t.Fatal(err)
			}
			d.says("Pending", "from order ns/"+second)
			if d.order() != nil {
				t.Error("a second Order was made")
			}
		})
	}
}

// TestIssuedChainIsClean: whoever may write the status of an Order may put anything around the certificates. Requests
// of both kinds store PEM of the certificates alone.
func TestIssuedChainIsClean(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, key := newOrderingDesk(t)
		clean := string(certificateFor(t, key))
		d.says("Pending", "from order")
		d.comes(acmev1.OrderStatus{State: acmev1.Valid, Certificate: []byte("Subject: x\n" + clean)})
		if cr := d.says("Issued", "fetched"); string(cr.Status.Certificate) != clean {
			t.Errorf("the status has\n%s", cr.Status.Certificate)
		}
	})
}

// certificateFor is a certificate that a key has signed for itself, in PEM.
func certificateFor(t *testing.T, key crypto.Signer) []byte {
	t.Helper()
	text, err := pki.CreateCSR(pki.CSRTemplate{Subject: pkix.Name{CommonName: "x"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := pki.DecodeCSR(text)
	if err != nil {
		t.Fatal(err)
	}
	template, err := pki.NewTemplate(csr, pki.Issuance{NotBefore: time.Now(), Duration: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	cert, err := pki.Sign(template, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return pki.EncodeCertificates(cert)
}
