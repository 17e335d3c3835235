package webhook

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/egress"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/kube/credential"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/solver/dns01"
	"chancery.dev/internal/solver/dns01/provider/limit"
)

// directTimeout bounds a request to a server that is asked directly.
const directTimeout = 20 * time.Second

// Direct asks webhooks that are HTTPS servers, without an aggregated API.
type Direct struct {
	// Secrets reads CA bundles and client certificates.
	Secrets credential.Reader
	// Limits bound how often each is asked; nil does not limit it.
	Limits *limit.Limits
	// UserAgent is what the servers are told.
	UserAgent string
	// Now is the clock for the validity of certificates; nil means time.Now.
	Now func() time.Time
	// Egress says which addresses the servers may have; nil means all.
	Egress *egress.Policy
}

// Provider makes a Provider of the API's configuration, which has a URL.
func (d Direct) Provider(ctx context.Context, config *acmev1.WebhookProvider, caller dns01.Use) (*Provider, error) {
	address, err := url.Parse(config.URL)
	if err != nil || address.Scheme != "https" || address.Host == "" || address.User != nil {
		return nil, fault.Terminal(dns01.ReasonInvalidConfig, "webhook: url is not an https address without a user: write https://host/path")
	}
	tlsConfig := &tls.Config{MinVersion: tls.VersionTLS12, Time: d.Now}
	secrets := [][]byte{}
	if bundle, err := d.bundle(ctx, config, caller.Namespace); err != nil {
		return nil, err
	} else if bundle != nil {
		if len(bundle) > limits.BundlePEM {
			return nil, fault.After(dns01.MendPeriod, dns01.ReasonSecret, "webhook %s: the CA bundle has more than %d bytes: leave the CA of this server in it only",
				address.Redacted(), limits.BundlePEM)
		}
		if tlsConfig.RootCAs = pki.TrustPool(bundle); tlsConfig.RootCAs == nil {
			return nil, fault.ClassConfiguration.After(dns01.MendPeriod, dns01.ReasonSecret, "webhook %s: the CA bundle holds no certificate in PEM form: correct caBundle, or the Secret of caBundleSecretRef",
				address.Redacted())
		}
		secrets = append(secrets, bundle)
	}
	if ref := config.ClientCertificateSecretRef; ref != nil {
		pair, err := d.certificate(ctx, caller.Namespace, ref.Name)
		if err != nil {
			return nil, err
		}
		tlsConfig.Certificates = []tls.Certificate{*pair}
		secrets = append(secrets, pair.Certificate...)
	}
	key, err := limit.KeyOf("webhook", config, caller.Namespace, secrets)
	if err != nil {
		return nil, err
	}
	return &Provider{
		http: &http.Client{
			Timeout: directTimeout,
			// One connection for each call: a changed Secret takes effect with the next call.
			Transport: d.Egress.Transport(&http.Transport{
				Proxy: http.ProxyFromEnvironment, TLSClientConfig: tlsConfig, DisableKeepAlives: true, ForceAttemptHTTP2: true,
			}, net.Dialer{}, maxBody),
			// Only this address was configured.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		address: address.String(), name: "webhook " + address.Redacted(), whom: "the server", direct: true, userAgent: d.UserAgent,
		config: config, caller: caller, limits: d.Limits, key: key, explain: unreachable,
	}, nil
}

// bundle returns the certificates to verify the server's with, or nil for those of the machine.
func (d Direct) bundle(ctx context.Context, config *acmev1.WebhookProvider, namespace string) ([]byte, error) {
	ref := config.CABundleSecretRef
	if ref == nil {
		return config.CABundle, nil
	}
	text, err := credential.Text(ctx, d.Secrets, namespace, ref.Name, ref.KeyOr(cmmeta.TLSCAKey), limits.BundlePEM)
	if err != nil {
		return nil, fault.ClassConfiguration.After(dns01.MendPeriod, dns01.ReasonSecret, "webhook: caBundleSecretRef: %w", err)
	}
	return []byte(text), nil
}

// certificate reads what is shown to the server.
func (d Direct) certificate(ctx context.Context, namespace, name string) (*tls.Certificate, error) {
	var entries [2]string
	for i, key := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
		var err error
		if entries[i], err = credential.Value(ctx, d.Secrets, namespace, name, key); err != nil {
			return nil, fault.ClassConfiguration.After(dns01.MendPeriod, dns01.ReasonSecret, "webhook: clientCertificateSecretRef: %w", err)
		}
	}
	pair, err := tls.X509KeyPair([]byte(entries[0]), []byte(entries[1]))
	if err != nil {
		return nil, fault.ClassConfiguration.After(dns01.MendPeriod, dns01.ReasonSecret, "webhook: clientCertificateSecretRef: the certificate and key of Secret %s/%s: %w", namespace, name, err)
	}
	return &pair, nil
}

// unreachable returns an error for a status that the webhook itself has not sent, else nil.
func unreachable(p *Provider, code int) error {
	switch {
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return fault.ClassCredential.After(dns01.MendPeriod, ReasonForbidden, "%s: it does not let this controller in (status %d): "+
			"does it take the client certificate of clientCertificateSecretRef?", p.name, code)
	case code == http.StatusNotFound, code == http.StatusMethodNotAllowed:
		return fault.ClassUnavailable.After(dns01.MendPeriod, ReasonUnavailable, "%s: it does not serve POST there (status %d): is url right, with its path?", p.name, code)
	case code/100 == 3:
		return fault.ClassUnavailable.After(dns01.MendPeriod, ReasonUnavailable, "%s: it redirects (status %d), which is not followed: set url to where it leads", p.name, code)
	case code == http.StatusServiceUnavailable, code == http.StatusBadGateway, code == http.StatusGatewayTimeout:
		return fault.ClassUnavailable.After(dns01.MendPeriod, ReasonUnavailable, "%s: it is out of order (status %d): look at its log", p.name, code)
	}
	return nil
}
