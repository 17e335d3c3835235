package app_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/app"
	"chancery.dev/internal/install"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/port"
)

// webhookWorld is a world of an API server that asks the webhook.
type webhookWorld struct {
	*rig.World

	ann  client.Client
	stop func()
	// port is where the API server asks.
	port int
}

// clientWith returns a client of another user.
func clientWith(t *testing.T, w *rig.World, rc *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(rc, client.Options{Scheme: w.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// runWebhook installs the webhook, and runs it with the rights that it has on a cluster. The API server reaches it by a
// Service of the type ExternalName.
func runWebhook(t *testing.T, w *rig.World) *webhookWorld {
	t.Helper()
	installWebhook(t, w, install.WebhookFail)
	own := app.DefaultWebhookConfig()
	for _, p := range []*int{&own.SecurePort, &own.HealthPort} {
		address, err := port.Free(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		*p = int(address.Port())
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "cert-manager", Name: "cert-manager-webhook"}}
	if err := w.Client.Delete(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	service.ResourceVersion, service.Spec = "", corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}
	w.Create(t, service)
	patchHook(t, w, fmt.Sprintf(`[{"op":"add","path":"/webhooks/0/clientConfig/service/port","value":%d}]`, own.SecurePort))
	grant(t, w, "ann", rbacv1.PolicyRule{APIGroups: []string{"cert-manager.io"}, Resources: []string{"certificaterequests"}, Verbs: []string{"create"}})
	as := rig.As(w.Admin, "ann", "testers")
	as.Impersonate.UID, as.Impersonate.Extra = "uid-of-ann", map[string][]string{"example.com/scopes": {"one", "two"}}

	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	rc := rig.As(w.Admin, "system:serviceaccount:cert-manager:cert-manager-webhook", "system:serviceaccounts", "system:serviceaccounts:cert-manager")
	a, err := app.NewWebhook(ctx, w.Config(), own, rc, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(cancel)
	rig.Eventually(t, "the webhook is ready", func(ctx context.Context) string {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/healthz", own.HealthPort), http.NoBody)
		if err != nil {
			return err.Error()
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return err.Error()
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return answer.Status
		}
		return ""
	})
	return &webhookWorld{World: w, ann: clientWith(t, w, as), port: own.SecurePort, stop: func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}}
}

func installWebhook(t *testing.T, w *rig.World, policy install.WebhookPolicy) {
	t.Helper()
	i := install.DefaultInstallation()
	i.Webhook = policy
	w.Install(t, i)
}

// patchHook changes the configuration of the webhook.
func patchHook(t *testing.T, w *rig.World, patch string) {
	t.Helper()
	config := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "cert-manager-webhook"}}
	if err := w.Client.Patch(t.Context(), config, client.RawPatch(types.JSONPatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// caBundle is what the API server trusts when it calls the webhook.
func (w *webhookWorld) caBundle(ctx context.Context) string {
	config := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := w.Client.Get(ctx, client.ObjectKey{Name: "cert-manager-webhook"}, config); err != nil {
		return err.Error()
	}
	return string(config.Webhooks[0].ClientConfig.CABundle)
}

// isFilledIn waits until a request of ann's that names somebody else says that ann has made it.
func (w *webhookWorld) isFilledIn(t *testing.T) {
	t.Helper()
	want := certmanagerv1.CertificateRequestSpec{
		Username: "ann", UID: "uid-of-ann", Groups: []string{"testers", "system:authenticated"},
		Extra: map[string][]string{"example.com/scopes": {"one", "two"}},
	}
	rig.Eventually(t, "the request says who has made it", func(ctx context.Context) string {
		cr := requestOf(t, w.World)
		cr.Spec.Username, cr.Spec.UID, cr.Spec.Groups, cr.Spec.Extra = "bob", "1", []string{"system:masters"}, map[string][]string{"x": {"y"}}
		want.IssuerRef, want.Request = cr.Spec.IssuerRef, cr.Spec.Request
		if err := w.ann.Create(ctx, cr); err != nil {
			return err.Error()
		}
		return cmp.Diff(want, cr.Spec)
	})
}

// isFilledInBesideSilence: more connections than there may be, opened after that of the API server, ask nothing. Each
// request is filled in at the first try.
func (w *webhookWorld) isFilledInBesideSilence(t *testing.T) {
	t.Helper()
	address := fmt.Sprintf("127.0.0.1:%d", w.port)
	secure, err := tls.Dial("tcp", address, &tls.Config{NextProtos: []string{"h2", "http/1.1"}, InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := secure.ConnectionState().NegotiatedProtocol; got != "http/1.1" {
		t.Errorf("the webhook speaks %q", got)
	}
	defer func() {
		_ = secure.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := secure.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a connection that asks nothing is open: %v", err)
		}
		_ = secure.Close()
	}()
	for n := range 2 * limits.WebhookConnections {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if n%(limits.WebhookConnections/4) != 0 {
			continue
		}
		cr := requestOf(t, w.World)
		if err := w.ann.Create(t.Context(), cr); err != nil || cr.Spec.Username != "ann" {
			t.Errorf("beside %d silent connections: %q, %v", n+1, cr.Spec.Username, err)
		}
	}
}

// webhookIdentity: the webhook fills in who makes a request, with a CA of its own that the API server trusts whatever
// becomes of the CA and of the configuration. While the webhook is down, the failure policy says what becomes of the
// requests of others; those of the controller are admitted, and a false identity is refused.
func webhookIdentity(t *testing.T, world *rig.World) {
	t.Helper()
	w := runWebhook(t, world)
	w.isFilledIn(t)
	w.isFilledInBesideSilence(t)

	before := w.caBundle(t.Context())
	installWebhook(t, w.World, install.WebhookFail)
	if now := w.caBundle(t.Context()); now != before {
		t.Errorf("the installation has replaced the CA by %q", now)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "cert-manager", Name: "cert-manager-webhook-ca"}}
	if err := w.Client.Patch(t.Context(), secret, client.RawPatch(types.MergePatchType, []byte(`{"data":null}`))); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the API server trusts a new CA, and still the old one", func(ctx context.Context) string {
		if now := w.caBundle(ctx); now == before || !strings.Contains(now, before) {
			return now
		}
		return ""
	})
	w.isFilledIn(t)

	patchHook(t, w.World, `[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]`)
	w.isFilledIn(t)

	w.stop()
	created := func(what string, c client.Client, name, uid string, groups []string, refused string) {
		t.Helper()
		rig.Eventually(t, what, func(ctx context.Context) string {
			cr := requestOf(t, w.World)
			cr.Spec.Username, cr.Spec.UID, cr.Spec.Groups = name, uid, groups
			err := c.Create(ctx, cr)
			if refused == "" && err == nil && cr.Spec.Username == name || refused != "" && err != nil && strings.Contains(err.Error(), refused) {
				return ""
			}
			return fmt.Sprint(err, " ", cr.Spec.Username)
		})
	}
	created("others are refused", w.ann, "", "", nil, "failed calling webhook")
	controller := clientWith(t, w.World, rig.As(w.Admin, rig.Controller, "system:serviceaccounts"))
	created("the controller is not", controller, rig.Controller, "", []string{"system:serviceaccounts", "system:authenticated"}, "")
	installWebhook(t, w.World, install.WebhookIgnore)
	created("others are admitted as they are", w.ann, "", "", nil, "")
	created("a false identity is refused", w.ann, "bob", "", nil, "spec.username: must be your own")
}
