package certificate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/pki"
)

func TestBackoffBounds(t *testing.T) {
	h := time.Hour
	for _, c := range []struct {
		b        Backoff
		attempts int
		want     time.Duration
	}{
		{Backoff{Min: h, Max: 32 * h}, -1, h}, {Backoff{Min: h, Max: 32 * h}, 0, h}, {Backoff{Min: h, Max: 32 * h}, 1, h}, {Backoff{Min: h, Max: 32 * h}, 6, 32 * h},
		{Backoff{Min: h, Max: 32 * h}, 7, 32 * h}, {Backoff{Min: h, Max: 32 * h}, math.MaxInt, 32 * h}, {Backoff{Min: h, Max: 3 * h}, 2, 2 * h}, {Backoff{Min: h, Max: 3 * h}, 3, 3 * h},
		{Backoff{Min: h, Max: math.MaxInt64}, math.MaxInt, math.MaxInt64}, {Backoff{Min: 0, Max: 32 * h}, 5, 0}, {Backoff{Min: -h, Max: 32 * h}, 5, 0}, {Backoff{Min: 2 * h, Max: h}, 1, h},
	} {
		if got := c.b.After(c.attempts); got != c.want {
			t.Errorf("%+v after %d: %s, want %s", c.b, c.attempts, got, c.want)
		}
	}
}

func TestAnnotationFilter(t *testing.T) {
	all := map[string]string{
		"a/x": "1", "b/x": "2", "plain": "3", "kubectl.kubernetes.io/last-applied-configuration": "4", "fluxcd.io/x": "5", "argocd.argoproj.io/x": "6",
	}
	for _, c := range []struct {
		filter AnnotationFilter
		want   string
	}{
		{DefaultAnnotationFilter(), "a/x b/x plain"},
		{AnnotationFilter{"*"}, "a/x argocd.argoproj.io/x b/x fluxcd.io/x kubectl.kubernetes.io/last-applied-configuration plain"},
		{AnnotationFilter{"a/"}, "a/x"},
		{AnnotationFilter{"a/", "b/", "-b/"}, "a/x"},
		{AnnotationFilter{"-a/"}, ""},
		{nil, ""},
	} {
		var got []string
		for _, key := range []string{"a/x", "argocd.argoproj.io/x", "b/x", "fluxcd.io/x", "kubectl.kubernetes.io/last-applied-configuration", "plain"} {
			if _, ok := c.filter.Apply(all)[key]; ok {
				got = append(got, key)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%q passes %q, want %q", c.filter, got, c.want)
		}
	}
}

func TestRequestNames(t *testing.T) {
	long := strings.Repeat("a", 234)
	for certificate, want := range map[string]string{
		"web":                    "web-7",
		strings.Repeat("a", 233): strings.Repeat("a", 233) + "-7",
		long:                     strings.Repeat("a", 168) + "-" + sum(long) + "-7",
	} {
		if got := RequestName(certificate, 7); got != want {
			t.Errorf("%q: %q, want %q", certificate, got, want)
		}
	}
	if RequestName(long+"b", 7) == RequestName(long+"c", 7) {
		t.Error("two long names have one request name")
	}
}

func sum(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:])
}

func TestNewRequest(t *testing.T) {
	w := newWorld(t)
	w.crt.Labels = map[string]string{"team": "a"}
	w.crt.Annotations = map[string]string{
		"note": "b", "kubectl.kubernetes.io/last-applied-configuration": "{}", certmanagerv1.CertificateRevisionAnnotation: "99",
	}
	w.crt.Spec.Duration, w.crt.Spec.IsCA = &metav1.Duration{Duration: time.Hour}, true
	w.crt.Spec.Usages = []certmanagerv1.KeyUsage{certmanagerv1.UsageCertSign}
	key := newKey(t, facts.KeySpecOf(&w.crt.Spec))
	r, err := NewRequest(w.crt, Action{Name: "web-3", Revision: 3, Key: "web-k"}, key, DefaultAnnotationFilter())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"note": "b", "cert-manager.io/certificate-revision": "3", "cert-manager.io/private-key-secret-name": "web-k", "cert-manager.io/certificate-name": "web",
	}
	if !maps.Equal(r.Annotations, want) || !maps.Equal(r.Labels, w.crt.Labels) || r.Name != "web-3" || r.Namespace != "ns" {
		t.Errorf("metadata %+v", r.ObjectMeta)
	}
	owner := r.OwnerReferences[0]
	if len(r.OwnerReferences) != 1 || owner.UID != "uid-web" || owner.Kind != "Certificate" || owner.APIVersion != "cert-manager.io/v1" ||
		owner.Controller == nil || !*owner.Controller || owner.BlockOwnerDeletion == nil || !*owner.BlockOwnerDeletion {
		t.Errorf("owners %+v", r.OwnerReferences)
	}
	if !r.Spec.IsCA || r.Spec.Duration.Duration != time.Hour || r.Spec.IssuerRef != w.crt.Spec.IssuerRef || len(r.Spec.Usages) != 1 {
		t.Errorf("spec %+v", r.Spec)
	}
	csr, err := pki.DecodeCSR(r.Spec.Request)
	if err != nil || !pki.PublicKeysEqual(csr.PublicKey, key.Public()) {
		t.Errorf("request: %v", err)
	}
	if w.crt.Annotations[certmanagerv1.CertificateRevisionAnnotation] != "99" {
		t.Error("the Certificate was changed")
	}
}

// TestEachNameOnce: a name that is there twice, perhaps in another spelling, is in the request once, as it is first. A
// request and a certificate that have it twice, or in another spelling, are as good: they may be older than that, or a
// CA's, and are not renewed for it.
func TestEachNameOnce(t *testing.T) {
	other := certmanagerv1.OtherName{OID: "1.2.3", UTF8Value: "x"}
	for name, c := range map[string]struct{ spec, want, got certmanagerv1.CertificateSpec }{
		"DNS names": {
			spec: certmanagerv1.CertificateSpec{DNSNames: []string{"a.example.test", "a.example.test", "A.example.test", "b.example.test"}},
			want: certmanagerv1.CertificateSpec{DNSNames: []string{"a.example.test", "b.example.test"}},
			got:  certmanagerv1.CertificateSpec{DNSNames: []string{"B.EXAMPLE.TEST", "a.example.test", "A.example.test"}},
		},
		"a name in capitals": {
			spec: certmanagerv1.CertificateSpec{DNSNames: []string{"*.A.example.test"}},
			want: certmanagerv1.CertificateSpec{DNSNames: []string{"*.A.example.test"}},
			got:  certmanagerv1.CertificateSpec{DNSNames: []string{"*.a.example.test"}},
		},
		"addresses": {
			spec: certmanagerv1.CertificateSpec{IPAddresses: []string{"2001:db8:0::1", "2001:DB8::1", "::ffff:192.0.2.1", "192.0.2.1"}},
			want: certmanagerv1.CertificateSpec{IPAddresses: []string{"2001:db8::1", "192.0.2.1"}},
			got:  certmanagerv1.CertificateSpec{IPAddresses: []string{"192.0.2.1", "2001:db8::1", "2001:db8::1"}},
		},
		"URIs": {
			spec: certmanagerv1.CertificateSpec{URIs: []string{"spiffe://a/b", "spiffe://a/b", "spiffe://a/B"}},
			want: certmanagerv1.CertificateSpec{URIs: []string{"spiffe://a/b", "spiffe://a/B"}},
			got:  certmanagerv1.CertificateSpec{URIs: []string{"spiffe://a/B", "spiffe://a/b", "spiffe://a/b"}},
		},
		"e-mail addresses": {
			spec: certmanagerv1.CertificateSpec{EmailAddresses: []string{"joe@example.test", "joe@Example.test", "Joe@example.test"}},
			want: certmanagerv1.CertificateSpec{EmailAddresses: []string{"joe@example.test", "Joe@example.test"}},
			got:  certmanagerv1.CertificateSpec{EmailAddresses: []string{"joe@EXAMPLE.test", "Joe@example.test"}},
		},
		"other names": {
			spec: certmanagerv1.CertificateSpec{DNSNames: []string{"a"}, OtherNames: []certmanagerv1.OtherName{other, other}},
			want: certmanagerv1.CertificateSpec{DNSNames: []string{"a"}, OtherNames: []certmanagerv1.OtherName{other}},
			got:  certmanagerv1.CertificateSpec{DNSNames: []string{"a"}, OtherNames: []certmanagerv1.OtherName{other}},
		},
		"a common name": {
			spec: certmanagerv1.CertificateSpec{CommonName: "A.example.test", DNSNames: []string{"a.example.test"}},
			want: certmanagerv1.CertificateSpec{CommonName: "A.example.test", DNSNames: []string{"a.example.test"}},
			got:  certmanagerv1.CertificateSpec{CommonName: "A.example.test", DNSNames: []string{"a.example.test", "A.example.test"}},
		},
	} {
		w := newWorld(t)
		w.crt.Spec.CommonName, w.crt.Spec.DNSNames, w.crt.Spec.IPAddresses = c.spec.CommonName, c.spec.DNSNames, c.spec.IPAddresses
		w.crt.Spec.URIs, w.crt.Spec.EmailAddresses, w.crt.Spec.OtherNames = c.spec.URIs, c.spec.EmailAddresses, c.spec.OtherNames
		key := newKey(t, facts.KeySpecOf(&w.crt.Spec))
		r, err := NewRequest(w.crt, Action{Name: "web-1", Revision: 1, Key: "k"}, key, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		made, err := pki.InspectPEM(r.Spec.Request)
		if want := CSRTemplateOf(&c.want).AltNames; err != nil || fmt.Sprint(made.AltNames) != fmt.Sprint(want) {
			t.Errorf("%s: the request has %v, want %v; %v", name, made.AltNames, want, err)
		}
		old := facts.OfRequest(r)
		old.Names = CSRTemplateOf(&c.got).AltNames
		leaf := &facts.Leaf{CommonName: c.got.CommonName, Names: old.Names}
		wrong, err := facts.RequestViolations(&w.crt.Spec, old)
		if wrong = append(wrong, facts.Violations(&w.crt.Spec, leaf)...); err != nil || len(wrong) > 0 {
			t.Errorf("%s: what has %v violates %q; %v", name, old.Names, wrong, err)
		}
	}
}

func TestSecretOwner(t *testing.T) {
	claim := func(name string, age int) *certmanagerv1.Certificate {
		return &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(start().Add(-time.Duration(age) * time.Hour))}}
	}
	annotated := func(name string) *facts.Secret {
		return &facts.Secret{CertificateName: name, Named: true}
	}
	all := []*certmanagerv1.Certificate{claim("c", 1), claim("b", 2), claim("a", 2)}
	for _, c := range []struct {
		claims []*certmanagerv1.Certificate
		secret *facts.Secret
		want   string
	}{
		{all, nil, "a"}, {all, annotated("c"), "c"}, {all, annotated("gone"), "a"}, {all, &facts.Secret{}, "a"}, {all[:1], nil, "c"}, {nil, annotated("c"), ""},
	} {
		if got := SecretOwner(c.claims, c.secret); got != c.want {
			t.Errorf("%d claims: %q, want %q", len(c.claims), got, c.want)
		}
	}
}
