package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	runtimecontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"chancery.dev/api"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/findings"
	"chancery.dev/internal/kube/requesterwebhook"
	"chancery.dev/internal/kube/servingcert"
	"chancery.dev/internal/limits"
)

// reviewWrite is how long the API server may take to read an answer of the webhook.
const reviewWrite = 10 * time.Second

// WebhookConfig is what a user can set of the webhook.
type WebhookConfig struct {
	// SecurePort is where the API server calls, HealthPort where readiness and liveness are told.
	SecurePort, HealthPort int
	// Serving is its certificate.
	Serving DynamicServing
	// Configuration names the MutatingWebhookConfiguration that gets the CA of the certificate.
	Configuration string
}

// DefaultWebhookConfig returns the defaults of spec §9.3, for a webhook that DefaultInstallation has installed.
func DefaultWebhookConfig() WebhookConfig {
	return WebhookConfig{SecurePort: 6443, HealthPort: 6080, Configuration: requesterwebhook.Name, Serving: DynamicServing{
		SecretNamespace: "cert-manager", SecretName: requesterwebhook.Name + "-ca", Life: servingcert.DefaultLife,
		DNSNames: []string{requesterwebhook.Name, requesterwebhook.Name + ".cert-manager", requesterwebhook.Name + ".cert-manager.svc"},
	}}
}

// Validate returns an error that says what is wrong with the values.
func (c *WebhookConfig) Validate() error {
	f := &findings.Findings{}
	f.Port("secure-port", c.SecurePort)
	f.Port("healthz-port", c.HealthPort)
	if c.Serving.SecretName == "" {
		f.Add("dynamic-serving-ca-secret-name", "has to name a Secret")
	}
	c.Serving.validate(f, "dynamic-serving-")
	return errors.Join(*f...)
}

// NewWebhook wires the webhook that fills in who makes a CertificateRequest, with the rights of rc. It reads the fields
// of cfg for the process. Every replica works, not only the leader. Run the App in the same way as that of New.
func NewWebhook(ctx context.Context, cfg Config, own WebhookConfig, rc *rest.Config, log logr.Logger) (*App, error) {
	if err := errors.Join(cfg.Validate(), own.Validate()); err != nil {
		return nil, err
	}
	cfg.setClock()
	warnOfUnmet(cfg, log)
	scheme, err := api.Scheme()
	if err != nil {
		return nil, err
	}
	rc, watches := connection(rc, "chancery-webhook"), newWatches(log)
	options := commonOptions(ctx, scheme, watches)
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	options.Cache.ByObject = map[client.Object]cache.ByObject{
		configuration: {Field: fields.OneTermEqualSelector(metav1.ObjectNameField, own.Configuration)},
	}
	cfg.HealthAddress = fmt.Sprintf(":%d", own.HealthPort)
	a, err := newApp(ctx, rc, options, watches)
	if err != nil {
		return nil, err
	}
	m := a.manager
	clients, err := kubernetes.NewForConfigAndClient(rc, m.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	var trusted atomic.Bool
	trust := func(ctx context.Context, bundle []byte) error {
		err := requesterwebhook.Trust(ctx, m.GetAPIReader(), m.GetClient(), own.Configuration, bundle)
		trusted.Store(err == nil || trusted.Load())
		return err
	}
	certificate, err := servingcert.New(servingcert.Options{
		Client: clients, Secret: types.NamespacedName{Namespace: own.Serving.SecretNamespace, Name: own.Serving.SecretName},
		DNSNames: own.Serving.DNSNames, Life: own.Serving.Life, Trust: trust,
		Now: cfg.Now, AfterFunc: (&controller.Deps{Clock: cfg.Clock}).AfterFunc, Failed: watches.failed, Log: log,
	})
	if err != nil {
		return nil, err
	}
	reviews := http.NewServeMux()
	reviews.Handle("POST /mutate", requesterwebhook.NewHandler())
	serving := server{
		what: "the API server", address: fmt.Sprintf(":%d", own.SecurePort), answers: reviews, write: reviewWrite, connections: limits.WebhookConnections,
		// By HTTP/2, one connection has hundreds of requests at a time.
		tls: &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, GetCertificate: certificate.GetCertificate},
	}
	// Somebody may write the configuration anew, without a CA.
	keep := ctrl.NewControllerManagedBy(m).Named("webhook").For(configuration).
		WithOptions(runtimecontroller.Options{SkipNameValidation: new(true)}).
		Complete(reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
			if bundle := certificate.CA(); bundle != nil {
				return reconcile.Result{}, trust(ctx, bundle)
			}
			return reconcile.Result{}, nil
		}))
	open := newPorts(m, watches, func() error { return nil })
	open.readyPath = "/healthz" // spec §8
	open.ready["server"] = func(*http.Request) error {
		_, err := certificate.GetCertificate(nil)
		return err
	}
	open.ready["trust"] = func(*http.Request) error {
		if !trusted.Load() {
			return fmt.Errorf("the MutatingWebhookConfiguration %s does not have the CA of this webhook yet", own.Configuration)
		}
		return nil
	}
	return a, errors.Join(keep, m.Add(certificate), serving.addTo(ctx, m), a.serve(ctx, &cfg, rc, open))
}
