package stories_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/machine/revocation"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/pebble"
	"chancery.dev/internal/rig/slow"
)

// newRevokeWorld has a CA that asks for each name's proof once, and calls watch at each revocation.
func newRevokeWorld(t *testing.T, watch func(http.ResponseWriter) (answered bool)) *acmeWorld {
	t.Helper()
	return newACMEWorld(t, func(o *pebble.Options) {
		o.AuthzReusePercent, o.NonceRejectPercent = 100, 0
		o.Wrap = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if watch == nil || !strings.HasPrefix(r.URL.Path, "/revoke-cert") || !watch(rw) {
					next.ServeHTTP(rw, r)
				}
			})
		}
	})
}

// leafOf is the certificate that a Secret of the world holds; nil if it holds none.
func leafOf(ctx context.Context, w *rig.World, name string) *x509.Certificate {
	secret := &corev1.Secret{}
	if err := w.Get(ctx, name, secret); err != nil {
		return nil
	}
	leaf, err := pki.DecodeCertificate(secret.Data["tls.crt"])
	if err != nil {
		return nil
	}
	return leaf
}

// annotate does what kubectl annotate does.
func annotate(t *testing.T, w *rig.World, name string, annotations string) {
	t.Helper()
	crt := &certmanagerv1.Certificate{}
	crt.Name, crt.Namespace = name, w.Namespace
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{`+annotations+`}}}`))
	if err := w.Client.Patch(t.Context(), crt, patch); err != nil {
		t.Fatal(err)
	}
}

func revokeFor(reason revocation.Reason) string {
	return fmt.Sprintf("%q:%q", revocation.Annotation, reason)
}

// undone says what a revocation still lacks; empty if it has come to its end.
func undone(ctx context.Context, w *rig.World, name string) string {
	crt := &certmanagerv1.Certificate{}
	if err := w.Get(ctx, name, crt); err != nil {
		return err.Error()
	}
	c := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionRevoking)
	_, asked := crt.Annotations[revocation.Annotation]
	err := w.Get(ctx, revocation.SecretName(crt.Name, crt.UID), &corev1.Secret{})
	if c == nil || c.Status != cmmeta.ConditionFalse || asked || !apierrors.IsNotFound(err) {
		return fmt.Sprintf("annotated %v, %v, %+v", asked, err, c)
	}
	return ""
}

func awaitRevoked(t *testing.T, w *rig.World, name string) *certmanagerv1.Certificate {
	t.Helper()
	rig.Eventually(t, "the revocation comes to its end", func(ctx context.Context) string { return undone(ctx, w, name) })
	return awaitReady(t, w, name)
}

// thrifty is a Certificate that keeps its key.
func thrifty(w *rig.World, name string) *certmanagerv1.Certificate {
	crt := certificate(w, name, "acme", name+".example.com")
	crt.Spec.PrivateKey.RotationPolicy = certmanagerv1.RotationPolicyNever
	return crt
}

// TestRevokeCompromisedKey: one annotation, and the certificate is replaced, with another key although the Certificate
// keeps its own, and only then revoked. The replacement is never touched.
func TestRevokeCompromisedKey(t *testing.T) {
	t.Parallel()
	var w *acmeWorld
	var early atomic.Bool
	var first *x509.Certificate
	w = newRevokeWorld(t, func(http.ResponseWriter) bool {
		if now := leafOf(t.Context(), w.World, "web"); now == nil || now.Equal(first) {
			early.Store(true)
		}
		return false
	})
	w.Run(t, w.Config())
	w.Create(t, w.issuer(), thrifty(w.World, "web"))
	awaitReady(t, w.World, "web")
	first = leafOf(t.Context(), w.World, "web")
	annotate(t, w.World, "web", revokeFor(revocation.KeyCompromise))
	crt := awaitRevoked(t, w.World, "web")
	second := leafOf(t.Context(), w.World, "web")
	if reason, revoked := w.ca.RevokedFor(first.SerialNumber); !revoked || reason != 1 {
		t.Errorf("revoked %v for %d", revoked, reason)
	}
	if _, revoked := w.ca.RevokedFor(second.SerialNumber); revoked {
		t.Error("the replacement is revoked")
	}
	if early.Load() {
		t.Error("it was revoked before it was replaced")
	}
	if pki.PublicKeysEqual(first.PublicKey, second.PublicKey) {
		t.Error("the compromised key is used on")
	}
	record, ok := revocation.ParseRecord(crt.Annotations[revocation.RecordAnnotation])
	if want := fmt.Sprintf("%x", first.SerialNumber.Bytes()); !ok || record.Serial != want || record.Outcome != revocation.Revoked {
		t.Errorf("record %+v, want serial %s", record, want)
	}
	c := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionRevoking)
	if c.Reason != "Revoked" || !strings.Contains(c.Message, record.Serial) {
		t.Errorf("condition %+v", c)
	}
	// The same again, as a tool does that applies a manifest with the annotation in it: it is held.
	annotate(t, w.World, "web", revokeFor(revocation.KeyCompromise))
	rig.Eventually(t, "the Certificate says that this was done", func(ctx context.Context) string {
		c := condition(w.World, "web", certmanagerv1.CertificateConditionRevoking)(ctx)
		if c == nil || c.Reason != revocation.ReasonRepeated {
			return fmt.Sprintf("%+v", c)
		}
		return ""
	})
	// For another reason it is done; its key stays now.
	annotate(t, w.World, "web", revokeFor(revocation.Superseded))
	awaitRevoked(t, w.World, "web")
	third := leafOf(t.Context(), w.World, "web")
	if reason, revoked := w.ca.RevokedFor(second.SerialNumber); !revoked || reason != 4 {
		t.Errorf("revoked %v for %d", revoked, reason)
	}
	if !pki.PublicKeysEqual(second.PublicKey, third.PublicKey) {
		t.Error("rotationPolicy Never was not kept without need")
	}
}

// TestRevokeWrongReason: what is no reason is named, and nothing happens; removing it is enough.
func TestRevokeWrongReason(t *testing.T) {
	t.Parallel()
	w := newRevokeWorld(t, nil)
	w.Run(t, w.Config())
	w.Create(t, w.issuer(), certificate(w.World, "web", "acme", "web.example.com"))
	awaitReady(t, w.World, "web")
	first := leafOf(t.Context(), w.World, "web")
	annotate(t, w.World, "web", `"chancery.dev/revoke":"KeyCompromise"`)
	rig.Eventually(t, "the Certificate says what is wrong", func(ctx context.Context) string {
		c := condition(w.World, "web", certmanagerv1.CertificateConditionRevoking)(ctx)
		if c == nil || c.Status != cmmeta.ConditionFalse || c.Reason != revocation.ReasonInvalid || !strings.Contains(c.Message, `"KeyCompromise"`) ||
			!strings.Contains(c.Message, "keyCompromise affiliationChanged") {
			return fmt.Sprintf("%+v", c)
		}
		return ""
	})
	annotate(t, w.World, "web", `"chancery.dev/revoke":null`)
	rig.Eventually(t, "the condition goes", func(ctx context.Context) string {
		if c := condition(w.World, "web", certmanagerv1.CertificateConditionRevoking)(ctx); c != nil {
			return fmt.Sprintf("%+v", c)
		}
		return ""
	})
	if crt := awaitReady(t, w.World, "web"); *crt.Status.Revision != 1 || !leafOf(t.Context(), w.World, "web").Equal(first) {
		t.Errorf("revision %d", *crt.Status.Revision)
	}
	if _, revoked := w.ca.RevokedFor(first.SerialNumber); revoked {
		t.Error("it is revoked")
	}
}

// TestRevokeIsTriedAgain: a CA that wants to be left alone is, and says why on the Certificate; after that the
// certificate is revoked, and a CA that did it and lost its answer has done it.
func TestRevokeIsTriedAgain(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	w := newRevokeWorld(t, func(rw http.ResponseWriter) bool {
		if asked.Add(1) > 1 {
			return false
		}
		rw.Header().Set("Content-Type", "application/problem+json")
		rw.Header().Set("Retry-After", "600")
		rw.WriteHeader(http.StatusTooManyRequests)
		_, _ = rw.Write([]byte(`{"type":"urn:ietf:params:acme:error:rateLimited","detail":"one at a time"}`))
		return true
	})
	stop := w.Run(t, w.Config())
	w.Create(t, w.issuer(), certificate(w.World, "web", "acme", "web.example.com"))
	awaitReady(t, w.World, "web")
	first := leafOf(t.Context(), w.World, "web")
	annotate(t, w.World, "web", revokeFor(revocation.Unspecified))
	rig.Eventually(t, "the Certificate says what the CA said", func(ctx context.Context) string {
		c := condition(w.World, "web", certmanagerv1.CertificateConditionRevoking)(ctx)
		if c == nil || c.Status != cmmeta.ConditionTrue || c.Reason != revocation.ReasonRetrying || !strings.Contains(c.Message, "one at a time") {
			return fmt.Sprintf("%+v", c)
		}
		return ""
	})
	if n := asked.Load(); n != 1 {
		t.Errorf("the CA was asked %d times", n)
	}
	stop() // what is known of the failure is lost: the next process asks at once
	w.Run(t, w.Config())
	awaitRevoked(t, w.World, "web")
	if _, revoked := w.ca.RevokedFor(first.SerialNumber); !revoked {
		t.Error("it is not revoked")
	}
}

// TestRevokeIsRefused: what the CA has against a revocation stands on the Certificate, and the CA is not asked again
// and again. Removing the annotation leaves the certificate as it is.
func TestRevokeIsRefused(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	w := newRevokeWorld(t, func(rw http.ResponseWriter) bool {
		asked.Add(1)
		rw.Header().Set("Content-Type", "application/problem+json")
		rw.WriteHeader(http.StatusForbidden)
		_, _ = rw.Write([]byte(`{"type":"urn:ietf:params:acme:error:unauthorized","detail":"not yours"}`))
		return true
	})
	w.Run(t, w.Config())
	w.Create(t, w.issuer(), thrifty(w.World, "web"))
	awaitReady(t, w.World, "web")
	first := leafOf(t.Context(), w.World, "web")
	annotate(t, w.World, "web", revokeFor(revocation.Superseded))
	rig.Eventually(t, "the Certificate says what the CA said", func(ctx context.Context) string {
		c := condition(w.World, "web", certmanagerv1.CertificateConditionRevoking)(ctx)
		if c == nil || c.Status != cmmeta.ConditionTrue || c.Reason != revocation.ReasonRefused || !strings.Contains(c.Message, "not yours") {
			return fmt.Sprintf("%+v", c)
		}
		return ""
	})
	w.Create(t, certificate(w.World, "another", "acme", "another.example.com"))
	awaitReady(t, w.World, "another") // meanwhile: whoever asks again would have
	if n := asked.Load(); n != 1 {
		t.Errorf("the CA was asked %d times", n)
	}
	annotate(t, w.World, "web", fmt.Sprintf("%q:null", revocation.Annotation))
	rig.Eventually(t, "the condition goes, and what was kept", func(ctx context.Context) string {
		crt := awaitReady(t, w.World, "web")
		kept := w.Get(ctx, revocation.SecretName(crt.Name, crt.UID), &corev1.Secret{})
		if c := condition(w.World, "web", certmanagerv1.CertificateConditionRevoking)(ctx); c != nil || !apierrors.IsNotFound(kept) {
			return fmt.Sprintf("%+v, %v", c, kept)
		}
		return ""
	})
	if _, revoked := w.ca.RevokedFor(first.SerialNumber); revoked {
		t.Error("it is revoked")
	}
}

// TestRevokeOnceTheAccountIsMended: a CA that has refused is asked again at once when a Secret of the issuer changes,
// and when the issuer has another account. Otherwise it would be asked in an hour.
func TestRevokeOnceTheAccountIsMended(t *testing.T) {
	t.Parallel()
	for name, mend := range map[string]func(context.Context, *acmeWorld) error{
		"a Secret of the issuer changes": func(ctx context.Context, w *acmeWorld) error {
			secret := &corev1.Secret{}
			if err := w.Get(ctx, w.issuer().Spec.ACME.PrivateKey.Name, secret); err != nil {
				return err
			}
			return w.Client.Patch(ctx, secret, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"mended":"true"}}}`)))
		},
		"the account has another key": func(ctx context.Context, w *acmeWorld) error {
			return w.Client.Patch(ctx, w.issuer(), client.RawPatch("application/merge-patch+json", fmt.Appendf(nil,
				`{"metadata":{"annotations":{%q:"now"}}}`, acmev1.RotateAccountKeyAnnotation)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mended atomic.Bool
			var refused atomic.Int32
			w := newRevokeWorld(t, func(rw http.ResponseWriter) bool {
				if mended.Load() {
					return false
				}
				rw.Header().Set("Content-Type", "application/problem+json")
				rw.WriteHeader(http.StatusForbidden)
				_, _ = rw.Write([]byte(`{"type":"urn:ietf:params:acme:error:unauthorized","detail":"not yours"}`))
				refused.Add(1)
				return true
			})
			stop := w.Run(t, w.Config())
			w.Create(t, w.issuer(), certificate(w.World, "web", "acme", "web.example.com"))
			awaitReady(t, w.World, "web")
			first := leafOf(t.Context(), w.World, "web")
			annotate(t, w.World, "web", revokeFor(revocation.Superseded))
			rig.Eventually(t, "the CA has refused", func(ctx context.Context) string {
				c := condition(w.World, "web", certmanagerv1.CertificateConditionRevoking)(ctx)
				if c == nil || c.Reason != revocation.ReasonRefused {
					return fmt.Sprintf("%+v", c)
				}
				return ""
			})
			stop() // another process has no other reason to look at the Certificate within the hour
			before := refused.Load()
			w.Run(t, w.Config())
			rig.Eventually(t, "the CA has refused again", func(context.Context) string {
				if refused.Load() == before {
					return "the CA was not asked"
				}
				return ""
			})
			mended.Store(true)
			if err := mend(t.Context(), w); err != nil {
				t.Fatal(err)
			}
			awaitRevoked(t, w.World, "web")
			if _, revoked := w.ca.RevokedFor(first.SerialNumber); !revoked {
				t.Error("it is not revoked")
			}
		})
	}
}

// TestRevokeWithoutReplacement: a compromised key does not wait for its replacement for ever.
func TestRevokeWithoutReplacement(t *testing.T) {
	t.Parallel()
	w := newRevokeWorld(t, nil)
	cfg := w.Config()
	stop := w.Run(t, cfg)
	w.Create(t, w.issuer(), certificate(w.World, "web", "acme", "web.example.com"))
	crt := awaitReady(t, w.World, "web")
	first := leafOf(t.Context(), w.World, "web")
	before := crt.DeepCopy()
	crt.Spec.DNSNames = []string{"web.elsewhere.test"} // no name that the CA could find anything at
	if err := w.Client.Patch(t.Context(), crt, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	annotate(t, w.World, "web", revokeFor(revocation.KeyCompromise))
	saying := func(reason, text string) {
		t.Helper()
		rig.Eventually(t, "the Certificate says "+reason, func(ctx context.Context) string {
			c := condition(w.World, "web", certmanagerv1.CertificateConditionRevoking)(ctx)
			if c == nil || c.Status != cmmeta.ConditionTrue || c.Reason != reason || !strings.Contains(c.Message, text) {
				return fmt.Sprintf("%+v", c)
			}
			return ""
		})
	}
	saying(revocation.ReasonReplacing, "revoked without one at")
	if _, revoked := w.ca.RevokedFor(first.SerialNumber); revoked {
		t.Error("it is revoked at once")
	}
	stop()
	cfg.Now = func() time.Time { return time.Now().Add(61 * time.Minute) }
	w.Run(t, cfg)
	saying(revocation.ReasonRevoked, "although no replacement")
	if _, revoked := w.ca.RevokedFor(first.SerialNumber); !revoked {
		t.Error("it is not revoked")
	}
	if err := w.Get(t.Context(), "web", crt); err != nil {
		t.Fatal(err)
	}
	before = crt.DeepCopy()
	crt.Spec.DNSNames = []string{"web.example.com"}
	if err := w.Client.Patch(t.Context(), crt, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	awaitRevoked(t, w.World, "web")
	if second := leafOf(t.Context(), w.World, "web"); second.Equal(first) {
		t.Error("it was not replaced after all")
	}
}

// TestCrashAtEveryWriteOfARevocation kills the controllers right before and right after each write to a Certificate or
// a Secret: what starts after them finishes it, with one replacement, which is not revoked.
func TestCrashAtEveryWriteOfARevocation(t *testing.T) {
	t.Parallel()
	const most = 10 // what is said of the pinned certificate is said together with Issuing
	for at := int32(1); at <= most; at++ {
		for _, before := range []bool{true, false} {
			if !slow.Runs(slow.Crash) && !selected(at, before) {
				continue
			}
			t.Run(fmt.Sprintf("write %d, before %v", at, before), func(t *testing.T) {
				t.Parallel()
				w := newRevokeWorld(t, nil)
				stop := w.Run(t, w.Config())
				w.Create(t, w.issuer(), thrifty(w.World, "web"))
				awaitReady(t, w.World, "web")
				stop()
				first := leafOf(t.Context(), w.World, "web")
				annotate(t, w.World, "web", revokeFor(revocation.KeyCompromise))
				m := mortal{at: at, before: before, only: func(path string) bool {
					return strings.Contains(path, "/secrets") || strings.Contains(path, "/certificates/")
				}}
				died := runMortal(t, w.World, w.Config(), m, func(ctx context.Context) bool { return undone(ctx, w.World, "web") == "" })
				if !died {
					t.Fatalf("a revocation has fewer writes than %d: the crashes do not hit it", most)
				}
				w.Run(t, w.Config())
				crt := awaitRevoked(t, w.World, "web")
				second := leafOf(t.Context(), w.World, "web")
				if _, revoked := w.ca.RevokedFor(first.SerialNumber); !revoked {
					t.Error("it is not revoked")
				}
				if _, revoked := w.ca.RevokedFor(second.SerialNumber); revoked {
					t.Error("the replacement is revoked")
				}
				if *crt.Status.Revision != 2 || pki.PublicKeysEqual(first.PublicKey, second.PublicKey) {
					t.Errorf("revision %d", *crt.Status.Revision)
				}
			})
		}
	}
}
