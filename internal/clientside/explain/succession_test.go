package explain_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/clientside/explain"
)

// TestSuccession: of an issuer whose CA was replaced, a person sees since when, how many certificates are left, and
// what becomes of clients that know an older root alone.
func TestSuccession(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 10, 0, 0, 0, 0, time.UTC)
	at := func(days int) metav1.Time { return metav1.NewTime(now.AddDate(0, 0, days)) }
	until := at(300)
	issuer := &certmanagerv1.ClusterIssuer{
		ObjectMeta: metav1.ObjectMeta{Name: "internal", UID: "i", Annotations: map[string]string{certmanagerv1.DeliverRootsAnnotation: "true"}},
		Spec:       certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "root"}},
		Status: certmanagerv1.IssuerStatus{
			Conditions: []certmanagerv1.IssuerCondition{{Type: certmanagerv1.IssuerConditionReady, Status: cmmeta.ConditionTrue}},
			CA: &certmanagerv1.CAIssuerStatus{Authority: "a", FirstSeen: at(-3), Replaced: true, NotAfter: &until, NotBefore: &until, OlderRoots: []certmanagerv1.OlderRoot{
				{Authority: "b", NotAfter: at(40)}, {Authority: "c", NotAfter: at(20), Unlinked: "the key\nis gone"},
			}},
		},
	}
	objects := []metav1.Object{issuer}
	var all []*certmanagerv1.Certificate
	for i, days := range []int{-30, -4, -2, 0} {
		issued := at(days)
		crt := &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("c", i)}, Status: certmanagerv1.CertificateStatus{NotBefore: &issued}}
		crt.Spec.IssuerRef = cmmeta.IssuerReference{Name: "internal", Kind: cmmeta.ClusterIssuerKind}
		all = append(all, crt)
	}
	all[3].Spec.IssuerRef.Name = "another"
	justBefore := metav1.NewTime(issuer.Status.CA.FirstSeen.Add(-5 * time.Second)) // signed by the CA, before the status said so
	all[2].Status.NotBefore = &justBefore
	w := explain.NewCluster(objects, nil, now)
	if r := w.Issuer(cmmeta.IssuerReference{Name: "none", Kind: cmmeta.ClusterIssuerKind}, "", all); r != nil {
		t.Errorf("an issuer that does not exist: %+v", r)
	}
	r := w.Issuer(cmmeta.IssuerReference{Name: "internal", Kind: cmmeta.ClusterIssuerKind}, "", all)
	if r == nil || r.CA == nil || r.CA.Certificates != 3 || len(r.CA.Earlier) != 2 || len(r.Chain()) != 0 {
		t.Fatalf("%+v", r)
	}
	said := func() (out string) {
		for _, line := range r.Advice(now) {
			out += line.Label + ": " + line.Text + "\n"
		}
		return out
	}
	text := said()
	for _, want := range []string{
		"CA since: 2030-01-07T00:00:00Z, 3d ago\n", "earlier CA: 2 of 3 certificates, in all namespaces: shop/c0, shop/c1\n", "older root: expires 2030-02-19", "no other root accept",
		"no other root refuse what the issuer signs: the key is gone",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it lacks %q:\n%s", want, text)
		}
	}
	r.CA.Namespace, r.CA.HandsOn = "shop", false
	if text := said(); strings.Count(text, "does not hand it on, which takes the annotation chancery.dev/deliver-roots=true") != 2 || !strings.Contains(text, "in namespace shop, -A counts all") {
		t.Errorf("without the annotation:\n%s", text)
	}
	issuer.Status.CA.Replaced = false // as after a take-over: nothing is known of a CA before
	if r := w.Issuer(cmmeta.IssuerReference{Name: "internal", Kind: cmmeta.ClusterIssuerKind}, "", all); len(r.CA.Earlier) != 0 {
		t.Errorf("of the first CA: %+v", r.CA)
	}
}
