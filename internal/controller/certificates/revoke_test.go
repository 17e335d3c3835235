package certificates_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/machine/revocation"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
)

// asksToRevoke sets the annotation as kubectl does.
func asksToRevoke(t *testing.T, w *rig.World, crt *certmanagerv1.Certificate, reason revocation.Reason) {
	t.Helper()
	amend(t, w, crt, func(c *certmanagerv1.Certificate) {
		if c.Annotations == nil {
			c.Annotations = map[string]string{}
		}
		c.Annotations[revocation.Annotation] = string(reason)
	})
}

func revoking(w *rig.World, crt *certmanagerv1.Certificate, reason, text string) func(context.Context) string {
	return func(ctx context.Context) string {
		if err := w.Get(ctx, crt.Name, crt); err != nil {
			return err.Error()
		}
		c := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionRevoking)
		return wants(c != nil && c.Reason == reason && strings.Contains(c.Message, text), c)
	}
}

// TestIssuerThatCannotRevoke: the certificate is replaced, with another key although the Certificate keeps its own, and
// condition and event say that the old one is trusted on.
func TestIssuerThatCannotRevoke(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	w.Run(t, w.Config())
	withCA(t, w)
	crt := newCertificate(w, "web", "ca")
	crt.Spec.PrivateKey.RotationPolicy = certmanagerv1.RotationPolicyNever
	w.Create(t, crt)
	crt = awaitReady(t, w, "web")
	first := secretOf(t, w, "web")
	asksToRevoke(t, w, crt, revocation.KeyCompromise)
	rig.Eventually(t, "the Certificate says that its issuer cannot", revoking(w, crt, string(revocation.Unsupported), "cannot revoke"))
	crt = awaitReady(t, w, "web")
	last := secretOf(t, w, "web")
	if bytes.Equal(first.Data["tls.key"], last.Data["tls.key"]) || *crt.Status.Revision != 2 {
		t.Errorf("the compromised key is used on, revision %d", *crt.Status.Revision)
	}
	record, ok := revocation.ParseRecord(crt.Annotations[revocation.RecordAnnotation])
	if _, asked := crt.Annotations[revocation.Annotation]; asked || !ok || record.Outcome != revocation.Unsupported {
		t.Errorf("annotations %v", crt.Annotations)
	}
	rig.Eventually(t, "a warning says so", func(ctx context.Context) string {
		events := &corev1.EventList{}
		if err := w.Client.List(ctx, events, client.InNamespace(w.Namespace)); err != nil {
			return err.Error()
		}
		for _, e := range events.Items {
			if e.Reason == string(revocation.Unsupported) && e.Type == corev1.EventTypeWarning && strings.Contains(e.Message, record.Serial) {
				return ""
			}
		}
		return "no event"
	})
	rig.Eventually(t, "nothing is kept", isGone(w, revocation.SecretName(crt.Name, crt.UID), &corev1.Secret{}))
	request := &certmanagerv1.CertificateRequest{}
	if err := w.Get(t.Context(), "web-2", request); err != nil || request.Annotations[revocation.Annotation] != "" {
		t.Errorf("the request inherits what is asked of the Certificate: %v, %v", request.Annotations, err)
	}
}

// refuses answers some requests as an API server does that forbids them.
type refuses struct {
	next http.RoundTripper
	what func(*http.Request) bool
}

func (f refuses) RoundTrip(r *http.Request) (*http.Response, error) {
	if !f.what(r) {
		return f.next.RoundTrip(r)
	}
	body := `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"a policy forbids it","reason":"Forbidden","code":403}`
	return &http.Response{
		StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}}, Request: r, Body: io.NopCloser(strings.NewReader(body)),
	}, nil
}

// TestRenewalWhileARevocationCannotBeRecorded: the API server refuses what ends a revocation. That is said once, and
// the Certificate is issued again all the same.
func TestRenewalWhileARevocationCannotBeRecorded(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	rc := rig.As(w.Admin, rig.Controller, "system:serviceaccounts", "system:serviceaccounts:cert-manager")
	var refusals atomic.Int32
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return refuses{next, func(r *http.Request) bool {
			record := r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/"+w.Namespace+"/certificates/web")
			if record {
				refusals.Add(1)
			}
			return record
		}}
	})
	w.RunAs(t, w.Config(), rc)
	withCA(t, w)
	w.Create(t, newCertificate(w, "web", "ca"))
	crt := awaitReady(t, w, "web")
	asksToRevoke(t, w, crt, revocation.Superseded)
	rig.Eventually(t, "a warning says what is refused", func(ctx context.Context) string {
		events := &corev1.EventList{}
		if err := w.Client.List(ctx, events, client.InNamespace(w.Namespace)); err != nil {
			return err.Error()
		}
		for _, e := range events.Items {
			if e.Reason == revocation.ReasonRetrying && strings.Contains(e.Message, "a policy forbids it") {
				return ""
			}
		}
		return "no event"
	})
	crt = awaitReady(t, w, "web")
	amend(t, w, crt, func(c *certmanagerv1.Certificate) { c.Spec.DNSNames = []string{"other.example.com"} })
	eventuallySecret(t, w, "web", "the Certificate is issued again", func(s *corev1.Secret) string {
		leaf, err := pki.DecodeCertificate(s.Data["tls.crt"])
		return wants(err == nil && leaf.DNSNames[0] == "other.example.com", err)
	})
	if n := refusals.Load(); n != 1 {
		t.Errorf("tried %d times", n)
	}
}

// TestRevocationOfAnotherCertificate: certificates are public. Who puts somebody else's where the one to revoke is
// kept, without its key, revokes nothing and is told what is in the way.
func TestRevocationOfAnotherCertificate(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	w.Run(t, w.Config())
	withCA(t, w)
	w.Create(t, newCertificate(w, "web", "ca"), newCertificate(w, "victim", "ca"))
	crt := awaitReady(t, w, "web")
	awaitReady(t, w, "victim")
	forged := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: revocation.SecretName(crt.Name, crt.UID), OwnerReferences: []metav1.OwnerReference{facts.OwnedBy(crt)}},
		Type:       corev1.SecretTypeTLS,
		Data:       map[string][]byte{"tls.crt": secretOf(t, w, "victim").Data["tls.crt"], "tls.key": secretOf(t, w, "web").Data["tls.key"]},
	}
	w.Create(t, forged)
	asksToRevoke(t, w, crt, revocation.KeyCompromise)
	rig.Eventually(t, "a warning says what is in the way", func(ctx context.Context) string {
		events := &corev1.EventList{}
		if err := w.Client.List(ctx, events, client.InNamespace(w.Namespace)); err != nil {
			return err.Error()
		}
		for _, e := range events.Items {
			if e.Reason == revocation.ReasonRetrying && strings.Contains(e.Message, forged.Name) {
				return ""
			}
		}
		return "no event"
	})
}

// TestRevocationCalledOff: without the annotation nothing is revoked, and nothing is left.
func TestRevocationCalledOff(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	stop := w.Run(t, w.Config())
	withCA(t, w)
	w.Create(t, newCertificate(w, "web", "ca"))
	crt := awaitReady(t, w, "web")
	amend(t, w, crt, func(c *certmanagerv1.Certificate) { c.Spec.IssuerRef.Name = "nobody" }) // so that no replacement comes
	asksToRevoke(t, w, crt, revocation.Superseded)
	kept := revocation.SecretName(crt.Name, crt.UID)
	rig.Eventually(t, "the certificate is kept", func(ctx context.Context) string {
		return revoking(w, crt, revocation.ReasonReplacing, "serial number")(ctx)
	})
	secret := secretOf(t, w, kept)
	if !metav1.IsControlledBy(secret, crt) || secret.Immutable == nil || !*secret.Immutable || time.Since(secret.CreationTimestamp.Time) > time.Hour {
		t.Errorf("kept in %+v", secret.ObjectMeta)
	}
	stop()
	w.Run(t, w.Config())
	amend(t, w, crt, func(c *certmanagerv1.Certificate) { delete(c.Annotations, revocation.Annotation) })
	rig.Eventually(t, "nothing is kept", isGone(w, kept, &corev1.Secret{}))
	rig.Eventually(t, "nothing is said", func(ctx context.Context) string {
		if err := w.Get(ctx, "web", crt); err != nil {
			return err.Error()
		}
		c := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionRevoking)
		return wants(c == nil && crt.Annotations[revocation.RecordAnnotation] == "", c)
	})
}
