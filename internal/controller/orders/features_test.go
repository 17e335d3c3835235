package orders_test

import (
	"testing"
	"time"

	"github.com/letsencrypt/pebble/v2/ca"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig/faulty"
	"chancery.dev/internal/rig/pebble"
)

// eabKey is a MAC key in unpadded base64url.
const eabKey = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W"

// TestIssuesWithWhatCAsAsk issues with what CAs ask of accounts and orders, and with how
// they answer.
func TestIssuesWithWhatCAsAsk(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pebble func(*pebble.Options)
		issuer func(*swift, *acmev1.ACMEIssuer)
		size   int
	}{
		"external account binding": {
			pebble: func(o *pebble.Options) { o.RequireEAB, o.EABKeys = true, map[string]string{"kid": eabKey} },
			issuer: func(_ *swift, spec *acmev1.ACMEIssuer) {
				spec.ExternalAccountBinding = &acmev1.ACMEExternalAccountBinding{KeyID: "kid", KeySecretRef: cmmeta.SecretKeySelector{Name: "eab", Key: "key"}}
			},
		},
		"a profile": {
			pebble: func(o *pebble.Options) {
				o.Profiles = map[string]ca.Profile{"short": {Description: "a day", ValidityPeriod: 86400}, "long": {Description: "90 days"}}
			},
			issuer: func(_ *swift, spec *acmev1.ACMEIssuer) {
				spec.Profile = "short"
				withoutARI(spec) // or the clock leaps on to the renewal
			},
		},
		"an alternate chain": {
			pebble: func(o *pebble.Options) { o.AlternateRoots, o.ChainLength = 2, 2 },
			issuer: func(w *swift, spec *acmev1.ACMEIssuer) { spec.PreferredChain = w.ca.Roots()[2].Subject.CommonName },
		},
		"most nonces rejected": {pebble: func(o *pebble.Options) { o.NonceRejectPercent = 50 }, size: 5},
		"short Retry-After":    {pebble: func(o *pebble.Options) { o.RetryAfterAuthz, o.RetryAfterOrder = time.Second, time.Second }, size: 3},
		"long Retry-After": {pebble: func(o *pebble.Options) {
			o.RetryAfterAuthz, o.RetryAfterOrder, o.MaxSleep = time.Hour, time.Hour, time.Second
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newSwift(t, c.pebble)
			w.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "eab"}, StringData: map[string]string{"key": eabKey}})
			w.RunAs(t, w.cfg, w.connection())
			i := &issuance{name: "web", size: c.size}
			if c.issuer != nil {
				i.change = func(spec *acmev1.ACMEIssuer) { c.issuer(w, spec) }
			}
			w.start(t, i).settle(t)
			if n := i.proxy.Created(); n != 1 {
				t.Errorf("%d orders", n)
			}
			secret := &corev1.Secret{}
			if err := w.Get(t.Context(), "web", secret); err != nil {
				t.Fatal(err)
			}
			chain, err := pki.DecodeChain(secret.Data["tls.crt"])
			if err != nil {
				t.Fatal(err)
			}
			if lasts := chain[0].NotAfter.Sub(chain[0].NotBefore); (name == "a profile") != (lasts < 25*time.Hour) {
				t.Errorf("it lasts %s", lasts)
			}
			root := w.ca.Roots()[0]
			if name == "an alternate chain" {
				root = w.ca.Roots()[2]
			}
			if err := chain[len(chain)-1].CheckSignatureFrom(root); err != nil {
				t.Errorf("the chain ends elsewhere: %v", err)
			}
		})
	}
}

// TestReusedAuthorizationNeedsNoChallenge: where the CA remembers, a second certificate of
// the same name is issued without a Challenge.
func TestReusedAuthorizationNeedsNoChallenge(t *testing.T) {
	t.Parallel()
	w := newSwift(t, func(o *pebble.Options) { o.AuthzReusePercent = 100 })
	w.RunAs(t, w.cfg, w.connection())
	first := w.start(t, &issuance{name: "first"})
	first.settle(t)
	second := *first
	second.name = "second"
	crt := first.certificate("second", first.names...)
	crt.Spec.IssuerRef.Name = "first"
	w.Create(t, crt)
	second.settle(t)
	accepted := 0
	for _, r := range first.proxy.Seen() {
		if r.Step == faulty.Challenge {
			accepted++
		}
	}
	if accepted != 1 {
		t.Errorf("%d challenges were accepted for two certificates of one name", accepted)
	}
}
