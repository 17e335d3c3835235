package podrequest

import (
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/machine/request"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig/bounds"
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

func with(key, value string) func(*State) {
	return func(s *State) {
		s.Annotations = maps.Clone(s.Annotations)
		s.Annotations[key] = value
	}
}

// older is a request of a kubelet that sends no PKCS#10 request, and that key, once it was read.
func older(key []byte, read bool) func(*State) {
	return func(s *State) { s.Spec.StubPKCS10Request, s.PublicKey, s.KeyRead = nil, key, read }
}

func keyOf(t *testing.T) []byte {
	t.Helper()
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// exchangeKey is a key for X25519.
func exchangeKey(t *testing.T) []byte {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.PublicKey())
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// asks is a request for the names of Services, some of which select the Pod.
func asks(services string) func(*State) {
	return func(s *State) {
		s.Spec.UnverifiedUserAnnotations = map[string]string{certmanagerv1.PodServicesAnnotation: services}
		s.Pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", Labels: map[string]string{"app": "web", "tier": "front"}}, Spec: corev1.PodSpec{Hostname: "web-0", Subdomain: "peers"}}
		service := func(ip string, selector map[string]string) *corev1.Service {
			return &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: ip, Selector: selector}}
		}
		app := map[string]string{"app": "web"}
		defer func() { s.Services["elsewhere"].Spec.Type = corev1.ServiceTypeExternalName }()
		s.Services = map[string]*corev1.Service{
			"web": service("192.0.2.1", app), "peers": service(corev1.ClusterIPNone, app), "api": service("192.0.2.2", map[string]string{"app": "web", "tier": "back"}), "outside": service("192.0.2.3", nil),
			"1web": service("192.0.2.4", app), "elsewhere": service("", app),
		}
	}
}

// long is a request for 30 days, of a Pod whose volume asks for so many seconds; nil for a Pod that was not read.
func long(seconds *int32) func(*State) {
	return func(s *State) {
		with(certmanagerv1.PodCertificatesDurationAnnotation, "2184h")(s)
		s.Spec.MaxExpirationSeconds, s.CAEnds = new(int32(720*3600)), now.Add(10_000*time.Hour)
		if seconds == nil {
			return
		}
		s.Pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "tmp"}, {
			Name: "identity", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{PodCertificate: &corev1.PodCertificateProjection{SignerName: s.Spec.SignerName, MaxExpirationSeconds: seconds}},
			}}},
		}}}}
	}
}

// decided decides about a request that is signed, after a change, and returns the decision in few words.
func decided(t *testing.T, name string, change func(*State)) string {
	t.Helper()
	s := State{
		Spec: &certificatesv1.PodCertificateRequestSpec{
			SignerName: "cert-manager.io/pods", PodName: "web-0", PodUID: "u", ServiceAccountName: "web", MaxExpirationSeconds: new(int32(86400)), StubPKCS10Request: stubOf(t, x509.CertificateRequest{}),
		},
		Namespace: "shop", Signer: request.SignerName{Form: request.FormCSR, Name: "pods"}, IssuerName: "ClusterIssuer pods",
		Issuer: request.IssuerReady, IssuerType: "ca", Annotations: map[string]string{certmanagerv1.PodCertificatesAnnotation: "prod.example.com"},
		MayRequest: new(true), CAEnds: now.Add(1000 * time.Hour),
	}
	change(&s)
	a := Decide(s, now)
	if (a.Step == StepWait || a.Step == StepDeny) == (a.Message == "") {
		t.Errorf("%s: the message %q", name, a.Message)
	}
	if a.Step == StepDeny && !slices.Contains(Denials(), a.Reason) || a.Step == StepWait && a.Reason != "" && !slices.Contains(Waits(), a.Reason) {
		t.Errorf("%s: the list of reasons does not have %s", name, a.Reason)
	}
	with := map[bool]string{true: "with the key "}[a.Key != nil]
	return [...]string{StepIgnore: "ignore", StepWait: "wait " + a.Reason, StepDeny: "deny " + a.Reason, StepAuthorize: "authorize", StepRead: fmt.Sprint("read ", a.Services), StepReadKey: "read the key",
		StepSign: fmt.Sprint("sign ", with, a.Duration, " ", strings.Join(slices.Concat(a.Names.URIs, a.Names.DNSNames), " "))}[a.Step]
}

// TestDecide: one change to a request that is signed makes each other action.
func TestDecide(t *testing.T) {
	t.Parallel()
	named := stubOf(t, x509.CertificateRequest{DNSNames: []string{"a.example.com"}})
	for name, c := range map[string]struct {
		change func(*State)
		want   string
	}{
		"as it is":                 {func(*State) {}, "sign 24h0m0s spiffe://prod.example.com/ns/shop/sa/web"},
		"finished":                 {func(s *State) { s.Spec = nil }, "ignore"},
		"by Vault":                 {func(s *State) { s.IssuerType, s.CAEnds = "vault", time.Time{} }, "sign 24h0m0s spiffe://prod.example.com/ns/shop/sa/web"},
		"by ACME":                  {func(s *State) { s.IssuerType = "acme" }, "wait IssuerTypeUnsupported"},
		"no type":                  {func(s *State) { s.Issuer = request.IssuerTypeless }, "wait IssuerTypeUnsupported"},
		"an old kubelet":           {older(nil, false), "read the key"},
		"a key":                    {older(keyOf(t), true), "sign with the key 24h0m0s spiffe://prod.example.com/ns/shop/sa/web"},
		"a key, forbidden":         {func(s *State) { older(keyOf(t), true)(s); s.MayRequest = new(false) }, "wait SignerForbidden"},
		"a key and a Service":      {func(s *State) { asks("web")(s); older(keyOf(t), true)(s); s.Pod = nil }, "read [web]"},
		"an old one, forbidden":    {func(s *State) { older(nil, false)(s); s.MayRequest = nil }, "authorize"},
		"no key":                   {older(nil, true), "wait KubeletTooOld"},
		"a key that signs nothing": {older(exchangeKey(t), true), "deny UnsupportedKeyType"},
		"no kind of key":           {older([]byte("x"), true), "deny UnsupportedKeyType"},
		"a key for Vault":          {func(s *State) { older(keyOf(t), true)(s); s.IssuerType = "vault" }, "wait KubeletTooOld"},
		"an address":               {with(certmanagerv1.PodCertificatesAnnotation, "192.0.2.1"), "wait IssuerNotForPods"},
		"two dots":                 {with(certmanagerv1.PodCertificatesAnnotation, "a..b"), "wait IssuerNotForPods"},
		"a last dot":               {with(certmanagerv1.PodCertificatesAnnotation, "example."), "wait IssuerNotForPods"},
		"of others":                {func(s *State) { s.Issuer = request.IssuerUnmanaged }, "ignore"},
		"out of reach":             {func(s *State) { s.Issuer = request.IssuerOutOfReach }, "ignore"},
		"missing":                  {func(s *State) { s.Issuer = request.IssuerMissing }, "wait IssuerMissing"},
		"not ready":                {func(s *State) { s.Issuer, s.IssuerSays = request.IssuerNotReady, "no Secret" }, "wait IssuerNotReady"},
		"not seen yet":             {func(s *State) { s.Issuer = request.IssuerUnknown }, "wait "},
		"not for Pods":             {func(s *State) { s.Annotations = nil }, "wait IssuerNotForPods"},
		"no trust domain":          {with(certmanagerv1.PodCertificatesAnnotation, "spiffe://x"), "wait IssuerNotForPods"},
		"capitals":                 {with(certmanagerv1.PodCertificatesAnnotation, "Example"), "wait IssuerNotForPods"},
		"a limit":                  {with(certmanagerv1.PodCertificatesDurationAnnotation, "2h30m"), "sign 2h30m0s spiffe://prod.example.com/ns/shop/sa/web"},
		"too long a limit":         {with(certmanagerv1.PodCertificatesDurationAnnotation, "2184h1s"), "wait IssuerNotForPods"},
		"too short a limit":        {with(certmanagerv1.PodCertificatesDurationAnnotation, "59m"), "wait IssuerNotForPods"},
		"no duration":              {with(certmanagerv1.PodCertificatesDurationAnnotation, "a day"), "wait IssuerNotForPods"},
		"asked for less":           {func(s *State) { s.Spec.MaxExpirationSeconds = new(int32(3600)) }, "sign 1h0m0s spiffe://prod.example.com/ns/shop/sa/web"},
		"asked for more":           {func(s *State) { s.Spec.MaxExpirationSeconds = new(int32(7862400)) }, "sign 24h0m0s spiffe://prod.example.com/ns/shop/sa/web"},
		"a CA that ends":           {func(s *State) { s.CAEnds = now.Add(90*time.Minute + time.Second/2) }, "sign 1h30m0s spiffe://prod.example.com/ns/shop/sa/web"},
		"a CA that ends soon":      {func(s *State) { s.CAEnds = now.Add(time.Hour - time.Second) }, "wait CAEndsSoon"},
		"another type":             {func(s *State) { s.IssuerType = "acme" }, "wait IssuerTypeUnsupported"},
		"another namespace": {func(s *State) {
			s.Signer = request.SignerName{Form: request.FormCSRIssuer, Namespace: "bank", Name: "pods"}
		}, "deny IssuerOfOtherNamespace"},
		"its own namespace": {func(s *State) {
			s.Signer = request.SignerName{Form: request.FormCSRIssuer, Namespace: "shop", Name: "pods"}
		}, "sign 24h0m0s spiffe://prod.example.com/ns/shop/sa/web"},
		"names in the request": {func(s *State) { s.Spec.StubPKCS10Request = named }, "deny RequestNamesSomething"},
		"no request":           {func(s *State) { s.Spec.StubPKCS10Request = []byte("x") }, "deny UnsupportedKeyType"},
		"an annotation":        {func(s *State) { s.Spec.UnverifiedUserAnnotations = map[string]string{"a/b": ""} }, "deny InvalidUnverifiedUserAnnotations"},
		"no name of a Service": {asks("web,Web"), "deny InvalidUnverifiedUserAnnotations"},
		"no Service at all":    {asks(""), "deny InvalidUnverifiedUserAnnotations"},
		"Services, and more": {func(s *State) {
			asks("web")(s)
			s.Spec.UnverifiedUserAnnotations["a/b"] = ""
		}, "deny InvalidUnverifiedUserAnnotations"},
		"a Service":                 {func(s *State) { asks("web")(s); s.Pod = nil }, "read [web]"},
		"a Service, forbidden":      {func(s *State) { asks("web")(s); s.MayRequest = new(false) }, "wait SignerForbidden"},
		"a Service that was read":   {asks("web"), "sign 24h0m0s spiffe://prod.example.com/ns/shop/sa/web web.shop.svc web.shop.svc.cluster.local"},
		"a name with a digit first": {asks("1web"), "sign 24h0m0s spiffe://prod.example.com/ns/shop/sa/web 1web.shop.svc 1web.shop.svc.cluster.local"},
		"an external Service":       {asks("elsewhere"), "wait ServiceNotForPod"},
		"no domain": {func(s *State) {
			asks("web")(s)
			with(certmanagerv1.PodCertificatesClusterDomainAnnotation, "cluster.local.")(s)
		}, "wait IssuerNotForPods"},
		"too long a domain": {func(s *State) {
			asks("web")(s)
			with(certmanagerv1.PodCertificatesClusterDomainAnnotation, strings.Repeat("a.", 121)+"a")(s)
		}, "wait ServiceNotForPod"},
		"the same twice": {asks(" web,web"), "sign 24h0m0s spiffe://prod.example.com/ns/shop/sa/web web.shop.svc web.shop.svc.cluster.local"},
		"another domain": {func(s *State) {
			asks("web")(s)
			with(certmanagerv1.PodCertificatesClusterDomainAnnotation, "k8s.example.com")(s)
		}, "sign 24h0m0s spiffe://prod.example.com/ns/shop/sa/web web.shop.svc web.shop.svc.k8s.example.com"},
		"a headless Service":         {asks("peers"), "sign 24h0m0s spiffe://prod.example.com/ns/shop/sa/web peers.shop.svc peers.shop.svc.cluster.local web-0.peers.shop.svc web-0.peers.shop.svc.cluster.local"},
		"a Service that is missing":  {asks("web,db"), "wait ServiceNotForPod"},
		"a Service of other Pods":    {asks("api"), "wait ServiceNotForPod"},
		"a Service without selector": {asks("outside"), "wait ServiceNotForPod"},
		"a Pod that is gone":         {func(s *State) { asks("web")(s); s.Pod = &corev1.Pod{} }, "ignore"},
		"another Pod of that name":   {func(s *State) { asks("web")(s); s.Pod.UID = "v" }, "ignore"},
		"not asked yet":              {func(s *State) { s.MayRequest = nil }, "authorize"},
		"forbidden":                  {func(s *State) { s.MayRequest = new(false) }, "wait SignerForbidden"},
		"forbidden, but for all": {func(s *State) {
			s.MayRequest = nil
			with(certmanagerv1.PodCertificatesForAnnotation, "all")(s)
		}, "sign 24h0m0s spiffe://prod.example.com/ns/shop/sa/web"},
	} {
		if got := decided(t, name, c.change); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestLongLifetimes: above a day, a certificate is valid for what the issuer allows and a volume of the Pod asks for.
func TestLongLifetimes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*State)
		want   string
	}{
		"a long lifetime":                            {long(nil), "read []"},
		"a long lifetime that the Pod asks for":      {long(new(int32(720 * 3600))), "sign 720h0m0s spiffe://prod.example.com/ns/shop/sa/web"},
		"a long lifetime that the Pod does not want": {long(new(int32(86400))), "sign 24h0m0s spiffe://prod.example.com/ns/shop/sa/web"},
		"a long lifetime of another signer": {func(s *State) {
			long(new(int32(720 * 3600)))(s)
			s.Pod.Spec.Volumes[1].Projected.Sources[0].PodCertificate.SignerName = "cert-manager.io/others"
		}, "sign 24h0m0s spiffe://prod.example.com/ns/shop/sa/web"},
		"a long lifetime of a Pod that is gone": {func(s *State) { long(nil)(s); s.Pod = &corev1.Pod{} }, "ignore"},
		"a long lifetime that is not allowed": {func(s *State) {
			long(new(int32(720 * 3600)))(s)
			delete(s.Annotations, certmanagerv1.PodCertificatesDurationAnnotation)
		}, "sign 24h0m0s spiffe://prod.example.com/ns/shop/sa/web"},
		"a long lifetime, and a Service": {func(s *State) {
			asks("web")(s)
			labels := s.Pod.Labels
			long(new(int32(720 * 3600)))(s)
			s.Pod.Labels = labels
			s.Pod.Spec.Volumes[1].Projected.Sources[0].PodCertificate.UserAnnotations = maps.Clone(s.Spec.UnverifiedUserAnnotations)
		}, "sign 720h0m0s spiffe://prod.example.com/ns/shop/sa/web web.shop.svc web.shop.svc.cluster.local"},
		"a long lifetime, and a Service of another volume": {func(s *State) {
			asks("web")(s)
			labels := s.Pod.Labels
			long(new(int32(720 * 3600)))(s)
			s.Pod.Labels = labels
		}, "sign 24h0m0s spiffe://prod.example.com/ns/shop/sa/web web.shop.svc web.shop.svc.cluster.local"},
		"a long lifetime, and no Service": {func(s *State) {
			asks("none")(s)
			long(new(int32(720 * 3600)))(s)
		}, "wait ServiceNotForPod"},
		"a long lifetime that nobody asks for": {func(s *State) { long(new(int32(720 * 3600)))(s); s.Spec.MaxExpirationSeconds = nil }, "sign 24h0m0s spiffe://prod.example.com/ns/shop/sa/web"},
		"a long lifetime, and a CA that ends": {func(s *State) {
			long(new(int32(720 * 3600)))(s)
			s.CAEnds = now.Add(480 * time.Hour)
		}, "sign 480h0m0s spiffe://prod.example.com/ns/shop/sa/web"},
	} {
		if got := decided(t, name, c.change); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestRefreshAt: a refresh begins ten minutes inside of both ends at least, and Pods do not refresh in one moment.
func TestRefreshAt(t *testing.T) {
	t.Parallel()
	for _, life := range []time.Duration{Shortest, Shortest + time.Second, 3 * time.Hour, Usual, Longest} {
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

// TestServicesAreFew: a volume that names more Services than the bound is denied.
func TestServicesAreFew(t *testing.T) {
	t.Parallel()
	bounds.Holds(t, "Services of a Pod", func(n int) limits.Outcome {
		var names []string
		for i := range n {
			names = append(names, fmt.Sprint("web-", i))
		}
		got, err := servicesOf(map[string]string{certmanagerv1.PodServicesAnnotation: strings.Join(names, ",")})
		if err == nil && len(got) != n {
			t.Errorf("%d of %d names", len(got), n)
		}
		return bounds.Refusal(t, err, "too many")
	})
}
