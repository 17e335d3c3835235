package informers

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
)

// TestRequestsPutsBack: the two ends of an issued request are there until they are
// forgotten, and those of a request of nobody's Certificate are not kept at all.
func TestRequestsPutsBack(t *testing.T) {
	b := NewRequests()
	made := func(owner string) *certmanagerv1.CertificateRequest {
		yes := true
		r := &certmanagerv1.CertificateRequest{ObjectMeta: metav1.ObjectMeta{
			Name: "r", UID: "u", OwnerReferences: []metav1.OwnerReference{{APIVersion: "g/v1", Kind: owner, Name: "crt", Controller: &yes}},
		}}
		r.Spec.Request, r.Status.Certificate, r.Status.CA = []byte("csr"), []byte("chain"), []byte("ca")
		return r
	}
	for range 2 { // caches may hand it over twice
		if _, err := b.Transform(made(certmanagerv1.CertificateKind)); err != nil {
			t.Fatal(err)
		}
	}
	kept := made(certmanagerv1.CertificateKind)
	if _, err := b.Transform(kept); err != nil || !IsStripped(kept) || kept.Spec.Request != nil || kept.Status.CA != nil {
		t.Fatalf("%v: the cache is given %+v", err, kept)
	}
	whole := *kept
	if !b.Complete(&whole) || string(whole.Status.Certificate) != "chain" || string(whole.Status.CA) != "ca" || string(whole.Spec.Request) != "csr" {
		t.Errorf("put back: %+v", whole)
	}
	b.gone(kept)
	if whole := *kept; b.Complete(&whole) {
		t.Error("the certificate of a request that is gone is kept")
	}
	if _, err := b.Transform(made("Pod")); err != nil || len(b.issued) != 0 {
		t.Errorf("%v: the certificate of a request that is not a Certificate's is kept", err)
	}
	pending := made(certmanagerv1.CertificateKind)
	pending.Status.Certificate = nil
	if _, err := b.Transform(pending); err != nil || IsStripped(pending) || pending.Spec.Request == nil {
		t.Errorf("%v: a pending request is taken apart: %+v", err, pending)
	}
}
