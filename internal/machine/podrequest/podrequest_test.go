package podrequest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/machine/request"
)

var now = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func stubOf(t *testing.T, template x509.CertificateRequest) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &template, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// TestDecide: one change to a request that is signed makes each other action.
func TestDecide(t *testing.T) {
	t.Parallel()
	empty, named := stubOf(t, x509.CertificateRequest{}), stubOf(t, x509.CertificateRequest{DNSNames: []string{"a.example.com"}})
	with := func(key, value string) func(*State) {
		return func(s *State) {
			s.Annotations = maps.Clone(s.Annotations)
			s.Annotations[key] = value
		}
	}
	for name, c := range map[string]struct {
		change func(*State)
		want   string
	}{
		"as it is":            {func(*State) {}, "sign 24h0m0s spiffe://prod.example.com/ns/shop/sa/web"},
		"finished":            {func(s *State) { s.Spec = nil }, "ignore"},
		"no type":             {func(s *State) { s.Issuer = request.IssuerTypeless }, "wait IssuerTypeUnsupported"},
		"an old kubelet":      {func(s *State) { s.Spec.StubPKCS10Request = nil }, "wait KubeletTooOld"},
		"an address":          {with(certmanagerv1.PodCertificatesAnnotation, "192.0.2.1"), "wait IssuerNotForPods"},
		"two dots":            {with(certmanagerv1.PodCertificatesAnnotation, "a..b"), "wait IssuerNotForPods"},
		"a last dot":          {with(certmanagerv1.PodCertificatesAnnotation, "example."), "wait IssuerNotForPods"},
		"of others":           {func(s *State) { s.Issuer = request.IssuerUnmanaged }, "ignore"},
		"out of reach":        {func(s *State) { s.Issuer = request.IssuerOutOfReach }, "ignore"},
		"missing":             {func(s *State) { s.Issuer = request.IssuerMissing }, "wait IssuerMissing"},
		"not ready":           {func(s *State) { s.Issuer, s.IssuerSays = request.IssuerNotReady, "no Secret" }, "wait IssuerNotReady"},
		"not seen yet":        {func(s *State) { s.Issuer = request.IssuerUnknown }, "wait "},
		"not for Pods":        {func(s *State) { s.Annotations = nil }, "wait IssuerNotForPods"},
		"no trust domain":     {with(certmanagerv1.PodCertificatesAnnotation, "spiffe://x"), "wait IssuerNotForPods"},
		"capitals":            {with(certmanagerv1.PodCertificatesAnnotation, "Example"), "wait IssuerNotForPods"},
		"a limit":             {with(certmanagerv1.PodCertificatesDurationAnnotation, "2h30m"), "sign 2h30m0s spiffe://prod.example.com/ns/shop/sa/web"},
		"too long a limit":    {with(certmanagerv1.PodCertificatesDurationAnnotation, "25h"), "wait IssuerNotForPods"},
		"too short a limit":   {with(certmanagerv1.PodCertificatesDurationAnnotation, "59m"), "wait IssuerNotForPods"},
		"no duration":         {with(certmanagerv1.PodCertificatesDurationAnnotation, "a day"), "wait IssuerNotForPods"},
		"asked for less":      {func(s *State) { s.Spec.MaxExpirationSeconds = new(int32(3600)) }, "sign 1h0m0s spiffe://prod.example.com/ns/shop/sa/web"},
		"asked for more":      {func(s *State) { s.Spec.MaxExpirationSeconds = new(int32(7862400)) }, "sign 24h0m0s spiffe://prod.example.com/ns/shop/sa/web"},
		"a CA that ends":      {func(s *State) { s.CAEnds = now.Add(90*time.Minute + time.Second/2) }, "sign 1h30m0s spiffe://prod.example.com/ns/shop/sa/web"},
		"a CA that ends soon": {func(s *State) { s.CAEnds = now.Add(time.Hour - time.Second) }, "wait CAEndsSoon"},
		"another type":        {func(s *State) { s.IssuerType = "acme" }, "wait IssuerTypeUnsupported"},
		"another namespace": {func(s *State) {
			s.Signer = request.SignerName{Form: request.FormCSRIssuer, Namespace: "bank", Name: "pods"}
		}, "deny IssuerOfOtherNamespace"},
		"its own namespace": {func(s *State) {
			s.Signer = request.SignerName{Form: request.FormCSRIssuer, Namespace: "shop", Name: "pods"}
		}, "sign 24h0m0s spiffe://prod.example.com/ns/shop/sa/web"},
		"names in the request": {func(s *State) { s.Spec.StubPKCS10Request = named }, "deny RequestNamesSomething"},
		"no request":           {func(s *State) { s.Spec.StubPKCS10Request = []byte("x") }, "deny UnsupportedKeyType"},
		"an annotation":        {func(s *State) { s.Spec.UnverifiedUserAnnotations = map[string]string{"a/b": ""} }, "deny InvalidUnverifiedUserAnnotations"},
		"not asked yet":        {func(s *State) { s.MayRequest = nil }, "authorize"},
		"forbidden":            {func(s *State) { s.MayRequest = new(false) }, "wait SignerForbidden"},
		"forbidden, but for all": {func(s *State) {
			s.MayRequest = nil
			with(certmanagerv1.PodCertificatesForAnnotation, "all")(s)
		}, "sign 24h0m0s spiffe://prod.example.com/ns/shop/sa/web"},
	} {
		s := State{
			Spec: &certificatesv1.PodCertificateRequestSpec{
				SignerName: "cert-manager.io/pods", PodName: "web-0", PodUID: "u", ServiceAccountName: "web", MaxExpirationSeconds: new(int32(86400)), StubPKCS10Request: empty,
			},
			Namespace: "shop", Signer: request.SignerName{Form: request.FormCSR, Name: "pods"}, IssuerName: "ClusterIssuer pods",
			Issuer: request.IssuerReady, IssuerType: "ca", Annotations: map[string]string{certmanagerv1.PodCertificatesAnnotation: "prod.example.com"},
			MayRequest: new(true), CAEnds: now.Add(1000 * time.Hour),
		}
		c.change(&s)
		a := Decide(s, now)
		got := [...]string{StepIgnore: "ignore", StepWait: "wait " + a.Reason, StepDeny: "deny " + a.Reason, StepAuthorize: "authorize", StepSign: fmt.Sprint("sign ", a.Duration, " ", strings.Join(a.Names.URIs, " "))}[a.Step]
		if got != c.want || (a.Step == StepWait || a.Step == StepDeny) == (a.Message == "") {
			t.Errorf("%s: %s %q, want %s", name, got, a.Message, c.want)
		}
	}
}

// TestRefreshAt: a refresh begins ten minutes inside of both ends at least, and Pods do not refresh in one moment.
func TestRefreshAt(t *testing.T) {
	t.Parallel()
	for _, life := range []time.Duration{Shortest, Shortest + time.Second, 3 * time.Hour, Longest} {
		moments := map[time.Time]int{}
		for i := range 1000 {
			at := RefreshAt(fmt.Sprint("pod-", i), now, now.Add(life))
			if at.Before(now.Add(10*time.Minute)) || at.After(now.Add(life-10*time.Minute)) || at.Before(now.Add(life/2)) {
				t.Fatalf("%s: after %s", life, at.Sub(now))
			}
			moments[at]++
		}
		for at, n := range moments {
			if n > 20 {
				t.Errorf("%s: %d of 1000 refresh at %s", life, n, at)
			}
		}
	}
}
