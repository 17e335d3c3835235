package stub

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/bounds"
)

var bound = Bound(cache.TransformStripManagedFields())

// through passes an object as caches do, which may hand a transform what it has returned.
func through[O client.Object](t *testing.T, o O) O {
	t.Helper()
	for range 2 {
		kept, err := bound(o)
		if err != nil {
			t.Fatal(err)
		}
		o = kept.(O)
	}
	return o
}

func metadata() metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: "shop", Name: "web", UID: "1", ResourceVersion: "7", Generation: 3,
		Annotations: map[string]string{"chancery.dev/paused": ""}, Labels: map[string]string{"app": "web"},
		Finalizers: []string{"example.com/a"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: manager, Operation: "Apply"}}, OwnerReferences: []metav1.OwnerReference{{UID: "2"}, {UID: "3", Controller: new(true)}},
	}
}

// fill is a text that is too large by itself.
var fill = strings.Repeat("x", limits.ObjectBytes)

// TestBound: an object above the bound loses first the labels and foreign owners, then the spec, then all but its
// identity, until it is below. Nobody else can make an object look so.
func TestBound(t *testing.T) {
	ref := cmmeta.IssuerReference{Name: "ca"}
	whole := func() *certmanagerv1.Certificate {
		return &certmanagerv1.Certificate{
			ObjectMeta: metadata(), Spec: certmanagerv1.CertificateSpec{SecretName: "web-tls", CommonName: "web", IssuerRef: ref},
			Status: certmanagerv1.CertificateStatus{Revision: new(4), Conditions: []certmanagerv1.CertificateCondition{{Type: "Ready"}}},
		}
	}
	for name, c := range map[string]struct {
		grow                       func(*certmanagerv1.Certificate)
		stub, labels, spec, status bool
	}{
		"as usual": {grow: func(*certmanagerv1.Certificate) {}, labels: true, spec: true, status: true},
		"a label":  {grow: func(c *certmanagerv1.Certificate) { c.Labels["b"] = fill }, stub: true, spec: true, status: true},
		"owners": {grow: func(c *certmanagerv1.Certificate) {
			for i := range 10_000 {
				c.OwnerReferences = append(c.OwnerReferences, metav1.OwnerReference{UID: types.UID(fmt.Sprint("u", i))})
			}
		}, stub: true, spec: true, status: true},
		"a template": {grow: func(c *certmanagerv1.Certificate) {
			c.Spec.SecretTemplate = &certmanagerv1.CertificateSecretTemplate{Labels: map[string]string{"b": fill}}
		}, stub: true, status: true},
		"conditions": {grow: func(c *certmanagerv1.Certificate) { c.Status.Conditions[0].Message = fill }, stub: true},
		"finalizers": {grow: func(c *certmanagerv1.Certificate) { c.Finalizers = append(c.Finalizers, fill) }, stub: true},
	} {
		t.Run(name, func(t *testing.T) {
			crt := whole()
			c.grow(crt)
			crt = through(t, crt)
			if Is(crt) != c.stub || (TooLarge(crt) != "") != c.stub {
				t.Errorf("a stub: %t, %q", Is(crt), TooLarge(crt))
			}
			if (crt.Labels != nil) != c.labels || (crt.Spec.CommonName != "") != c.spec || (crt.Status.Revision != nil) != c.status {
				t.Errorf("kept: labels %t, spec %t, status %t", crt.Labels != nil, crt.Spec.CommonName != "", crt.Status.Revision != nil)
			}
			if c.stub && len(crt.OwnerReferences) != 1 || crt.OwnerReferences[len(crt.OwnerReferences)-1].UID != "3" {
				t.Errorf("%d owners", len(crt.OwnerReferences))
			}
			if HasStatus(crt) != c.status {
				t.Errorf("it has its status: %t", HasStatus(crt))
			}
			if crt.Name != "web" || crt.UID != "1" || crt.Generation != 3 || crt.Spec.SecretName != "web-tls" || crt.Spec.IssuerRef != ref {
				t.Errorf("%s %s %d, %s by %+v", crt.Name, crt.UID, crt.Generation, crt.Spec.SecretName, crt.Spec.IssuerRef)
			}
			if _, paused := crt.Annotations["chancery.dev/paused"]; paused != (c.status) {
				t.Errorf("paused: %t", paused)
			}
			if size := Size(crt); size > limits.ObjectBytes {
				t.Errorf("%d bytes are left", size)
			}
		})
	}
	bounds.Holds(t, "object", func(n int) limits.Outcome {
		crt := whole()
		crt.ManagedFields = nil
		crt.Spec.CommonName += fill[:n-Size(crt)]
		if crt = through(t, crt); Is(crt) {
			return limits.Refused
		}
		return limits.Taken
	})
}

// TestAnOrderOfManyNamesFits: a Certificate may have so many names, and the CA says of each where its authorization and
// three challenges are.
func TestAnOrderOfManyNamesFits(t *testing.T) {
	whole := func(names int) *acmev1.Order {
		o := &acmev1.Order{ObjectMeta: metadata()}
		o.ManagedFields = nil
		for i := range names {
			name := fmt.Sprintf("a-name-as-long-as-some-are-%d.shop.example.com", i)
			a := acmev1.ACMEAuthorization{
				URL: "https://ca.example.com/" + fill[:80], Identifier: name, Wildcard: new(false), InitialState: acmev1.Pending, Solver: "the first of the issuer, which has no selector",
			}
			for _, kind := range []string{"http-01", "dns-01", "tls-alpn-01"} {
				a.Challenges = append(a.Challenges, acmev1.ACMEChallenge{URL: "https://ca.example.com/" + fill[:80], Token: fill[:43], Type: kind})
			}
			o.Spec.DNSNames, o.Status.Authorizations = append(o.Spec.DNSNames, name), append(o.Status.Authorizations, a)
		}
		return o
	}
	if o := through(t, whole(limits.CertificateNames)); Is(o) {
		t.Errorf("an Order of %d names, which takes %d bytes, is a stub", limits.CertificateNames, Size(whole(limits.CertificateNames)))
	}
	bounds.Holds(t, "Order", func(n int) limits.Outcome {
		o := whole(1)
		o.Spec.CommonName = strings.Repeat("x", n-Size(o))
		if o = through(t, o); Is(o) {
			return limits.Refused
		}
		return limits.Taken
	})
}

// TestStubsOfOtherKinds: what others need to know of the spec stays, where it can be a name.
func TestStubsOfOtherKinds(t *testing.T) {
	ref := cmmeta.IssuerReference{Name: "ca", Kind: "ClusterIssuer"}
	request := through(t, &certmanagerv1.CertificateRequest{ObjectMeta: metadata(), Spec: certmanagerv1.CertificateRequestSpec{IssuerRef: ref, Request: []byte(fill)}})
	order := through(t, &acmev1.Order{ObjectMeta: metadata(), Spec: acmev1.OrderSpec{IssuerRef: ref, CommonName: fill}})
	challenge := through(t, &acmev1.Challenge{ObjectMeta: metadata(), Spec: acmev1.ChallengeSpec{
		IssuerRef: ref, DNSName: "www.example.com", Type: acmev1.ChallengeTypeDNS01, Token: fill,
	}})
	for kind, got := range map[string]cmmeta.IssuerReference{"CertificateRequest": request.Spec.IssuerRef, "Order": order.Spec.IssuerRef, "Challenge": challenge.Spec.IssuerRef} {
		if got != ref {
			t.Errorf("%s: the issuer is %+v", kind, got)
		}
	}
	if s := challenge.Spec; s.DNSName != "www.example.com" || s.Type != acmev1.ChallengeTypeDNS01 || s.Token != "" || len(challenge.Finalizers) != 1 {
		t.Errorf("%s %s %q, %v", s.DNSName, s.Type, s.Token, challenge.Finalizers)
	}
	const mine, older = acmev1.ChallengeFinalizer, acmev1.ChallengeFinalizerLegacy
	for name, more := range map[string][]string{"one that is long": {fill}, "ours, often": slices.Repeat([]string{mine}, limits.ObjectBytes/len(mine))} {
		dying := metadata()
		dying.Finalizers = append([]string{mine, older}, more...)
		if c := through(t, &acmev1.Challenge{ObjectMeta: dying}); !slices.Equal(c.Finalizers, []string{mine, older}) {
			t.Errorf("%s: %d finalizers, so a Challenge that is being deleted hangs", name, len(c.Finalizers))
		}
	}
	few := metadata()
	few.Annotations["b"] = fill
	if c := through(t, &acmev1.Challenge{ObjectMeta: few}); !slices.Equal(c.Finalizers, few.Finalizers) {
		t.Errorf("finalizers that have room are gone: %q", c.Finalizers)
	}
	nameless := through(t, &certmanagerv1.Certificate{ObjectMeta: metadata(), Spec: certmanagerv1.CertificateSpec{SecretName: fill, IssuerRef: ref}})
	if nameless.Spec.SecretName != "" || nameless.Spec.IssuerRef != ref {
		t.Errorf("%d bytes of name, %+v", len(nameless.Spec.SecretName), nameless.Spec.IssuerRef)
	}
	issuer := through(t, &certmanagerv1.Issuer{ObjectMeta: metadata(), Spec: certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: fill}}})
	if issuer.Spec.CA != nil || TooLarge(issuer) == "" {
		t.Error("the spec of an issuer is kept")
	}
}
