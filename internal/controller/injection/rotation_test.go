package injection_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/fakeclock"
)

const rotations = 10

// webhook is a server whose certificate changes while it serves. Every request makes a handshake.
type webhook struct {
	*httptest.Server

	pair  atomic.Pointer[tls.Certificate]
	paths sync.Map // that were asked for
}

func newWebhook(t *testing.T) *webhook {
	t.Helper()
	h := &webhook{}
	h.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.paths.Store(r.URL.Path, true)
		review := &admissionv1.AdmissionReview{}
		if err := json.NewDecoder(r.Body).Decode(review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		_ = json.NewEncoder(w).Encode(review)
	}))
	h.Config.SetKeepAlivesEnabled(false)
	h.Config.ErrorLog = log.New(io.Discard, "", 0)
	h.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return h.pair.Load(), nil }}
	h.StartTLS()
	t.Cleanup(h.Close)
	return h
}

func (h *webhook) address(path string) string {
	return strings.Replace(h.URL, "127.0.0.1", "localhost", 1) + path
}

// hook is a ValidatingWebhookConfiguration without which nothing in the world's namespace is written that is labelled
// as name says.
func (h *webhook) hook(w *rig.World, name, path string) *admissionregistrationv1.ValidatingWebhookConfiguration {
	address := h.address(path)
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: w.ClusterName(name)},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: name + ".example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionregistrationv1.SideEffectClassNone),
			FailurePolicy: new(admissionregistrationv1.Fail), ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &address},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.Namespace}},
			ObjectSelector:    &metav1.LabelSelector{MatchLabels: map[string]string{"asks": name}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
		}},
	}
}

// rotation is a webhook whose certificate is rotated.
type rotation struct {
	*rig.World

	serving *webhook
	hook    *admissionregistrationv1.ValidatingWebhookConfiguration
	canary  *admissionregistrationv1.ValidatingWebhookConfiguration
	// clock counts the waits of the controllers.
	clock *fakeclock.Clock

	// writes counts what was admitted. Once it is due, the server loads next, as a kubelet makes it do.
	writes, due atomic.Int64
	next        atomic.Pointer[tls.Certificate]
}

// secret waits until the Secret has another certificate than before, and returns both parts of interest.
func (r *rotation) secret(t *testing.T, before []byte) (ca []byte, pair *tls.Certificate) {
	t.Helper()
	rig.Eventually(t, "a new certificate is issued", func(ctx context.Context) string {
		s := &corev1.Secret{}
		if err := r.Get(ctx, "serving", s); err != nil {
			return err.Error()
		}
		parsed, err := tls.X509KeyPair(s.Data["tls.crt"], s.Data["tls.key"])
		if err != nil || len(s.Data["ca.crt"]) == 0 || bytes.Equal(s.Data["ca.crt"], before) {
			return fmt.Sprint("the Secret has no new certificate yet: ", err)
		}
		ca, pair = s.Data["ca.crt"], &parsed
		return ""
	})
	return ca, pair
}

// injected waits until the bundle has a CA, and the API server goes by that bundle: it does if it goes by the canary,
// which is written later and is read by the same watch.
func (r *rotation) injected(t *testing.T, ca []byte, began int) (waits int) {
	t.Helper()
	rig.Eventually(t, "the bundle has the CA", func(ctx context.Context) string {
		if err := r.Client.Get(ctx, client.ObjectKeyFromObject(r.hook), r.hook); err != nil {
			return err.Error()
		}
		if !bytes.Contains(r.hook.Webhooks[0].ClientConfig.CABundle, ca) {
			return "it has not"
		}
		return ""
	})
	waits = r.clock.Ended() - began
	path := fmt.Sprintf("/canary/%d", time.Now().UnixNano())
	patch := fmt.Appendf(nil, `[{"op":"replace","path":"/webhooks/0/clientConfig/url","value":%q}]`, r.serving.address(path))
	if err := r.Client.Patch(t.Context(), r.canary, client.RawPatch(types.JSONPatchType, patch)); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the API server goes by the canary", func(ctx context.Context) string {
		probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, GenerateName: "canary-", Labels: map[string]string{"asks": "canary"}}}
		if err := r.Client.Create(ctx, probe, client.DryRunAll); err != nil {
			return err.Error()
		}
		if _, asked := r.serving.paths.Load(path); !asked {
			return "it goes by the one before"
		}
		return ""
	})
	return waits
}

// load writes without a pause until ctx ends, and returns the first refusal.
func (r *rotation) load(ctx context.Context) error {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: "load", Labels: map[string]string{"asks": "serving"}}}
	if err := r.Client.Create(ctx, object); err != nil {
		return err
	}
	for ctx.Err() == nil {
		object.Data = map[string]string{"n": fmt.Sprint(r.writes.Load())}
		if err := r.Client.Update(ctx, object); err != nil && ctx.Err() == nil {
			return fmt.Errorf("write %d: %w", r.writes.Load(), err)
		}
		if n := r.writes.Add(1); n >= r.due.Load() {
			if next := r.next.Swap(nil); next != nil {
				r.serving.pair.Store(next)
			}
		}
	}
	return nil
}

// TestRotationUnderLoad: a webhook without which nothing can be written gets ten certificates, each by a new CA, and
// its server loads them late: no write is refused. A second of a kubelet's delay is one write here.
func TestRotationUnderLoad(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	user := "both-" + w.Namespace
	for _, role := range []string{"chancery-controller", "chancery-cainjector"} {
		w.Create(t, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role + "-" + w.Namespace}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
		})
	}
	cfg := config(w)
	cfg.Injection.Enabled = true
	clock := fakeclock.Steady()
	cfg.Clock = clock
	w.RunAs(t, cfg, rig.As(w.Admin, user))
	crt := &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: "serving"}, Spec: certmanagerv1.CertificateSpec{
		SecretName: "serving", DNSNames: []string{"localhost"}, IssuerRef: cmmeta.IssuerReference{Name: "self"},
		PrivateKey: &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm, RotationPolicy: certmanagerv1.RotationPolicyAlways},
	}}
	w.Create(t, &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "self"}, Spec: certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}}, crt)

	r := &rotation{World: w, serving: newWebhook(t), clock: clock}
	r.hook, r.canary = r.serving.hook(w, "serving", "/serving"), r.serving.hook(w, "canary", "/canary/0")
	for _, hook := range []*admissionregistrationv1.ValidatingWebhookConfiguration{r.hook, r.canary} {
		hook.Annotations = map[string]string{certmanagerv1.InjectCAFromAnnotation: w.Namespace + "/serving"}
		w.Create(t, hook)
		t.Cleanup(func() { _ = w.Client.Delete(context.Background(), hook) })
	}
	ca, pair := r.secret(t, nil)
	r.serving.pair.Store(pair)
	r.injected(t, ca, 0)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	refused := make(chan error, 1)
	go func() { refused <- r.load(ctx) }()
	chance := rand.New(rand.NewPCG(1, 7)) // the same delays each time
	var waits []int
	cas := [][]byte{ca}
	for n := range rotations {
		began := clock.Ended()
		renew(t, w, crt)
		ca, pair = r.secret(t, ca)
		waits, cas = append(waits, r.injected(t, ca, began)), append(cas, ca)
		r.due.Store(r.writes.Load() + 1 + chance.Int64N(60))
		r.next.Store(pair)
		if n%2 == 0 || n == rotations-1 { // else the next certificate comes before this one is loaded
			rig.Eventually(t, "the server has loaded the pair", func(context.Context) string {
				if r.serving.pair.Load() != pair && len(refused) == 0 {
					return fmt.Sprintf("after %d writes, due after %d", r.writes.Load(), r.due.Load())
				}
				return ""
			})
		}
	}
	end := r.writes.Load() + 20
	rig.Eventually(t, "more is written", func(context.Context) string {
		if n := r.writes.Load(); n < end && len(refused) == 0 {
			return fmt.Sprint(n, " writes")
		}
		return ""
	})
	cancel()
	if err := <-refused; err != nil {
		t.Errorf("refused: %v", err)
	}
	if got, want := r.hook.Webhooks[0].ClientConfig.CABundle, bytes.Join(cas, nil); !bytes.Equal(got, want) {
		t.Errorf("the bundle is not of all CAs in their order:\n%s", got)
	}
	if g := r.hook.Generation; g != rotations+2 {
		t.Errorf("generation %d: the bundle was not written once for each CA", g)
	}
	// A write that another one has forestalled is tried again after a wait, but not each time.
	if slices.Min(waits) > 0 {
		t.Errorf("a new CA is in the bundle after %v waits: nothing has to be waited for", waits)
	}
	t.Logf("%d writes; a new CA was in the bundle after %v waits", r.writes.Load(), waits)
}

// renew reissues a Certificate by a change of its spec: ten tries by cmctl renew would use up the budget.
func renew(t *testing.T, w *rig.World, crt *certmanagerv1.Certificate) {
	t.Helper()
	if err := w.Get(t.Context(), crt.Name, crt); err != nil {
		t.Fatal(err)
	}
	changed := crt.DeepCopy()
	changed.Spec.Subject = &certmanagerv1.X509Subject{SerialNumber: fmt.Sprint(crt.Generation)}
	if err := w.Client.Patch(t.Context(), changed, client.MergeFrom(crt)); err != nil {
		t.Fatal(err)
	}
}
