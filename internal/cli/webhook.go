package cli

import (
	"errors"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"chancery.dev/internal/app"
)

// webhookComponent is cert-manager's webhook. Its general flags are those of the controller.
func webhookComponent() component {
	const (
		files    = "the webhook makes its certificate itself"
		versions = "TLS 1.2 and newer, with the cipher suites that Go chooses"
		clients  = "everybody who reaches the webhook may call it: the answer holds nothing that the caller has not sent"
	)
	flags := []known{
		{name: "secure-port", field: "securePort"},
		{name: "healthz-port", field: "healthzPort"},
		{name: "api-server-host", field: "apiServerHost"},
		{name: "dynamic-serving-leaf-duration", field: "tlsConfig.dynamic.leafDuration"},
		{name: "dynamic-serving-ca-secret-namespace", field: "tlsConfig.dynamic.secretNamespace"},
		{name: "dynamic-serving-ca-secret-name", field: "tlsConfig.dynamic.secretName"},
		{name: "dynamic-serving-dns-names", field: "tlsConfig.dynamic.dnsNames"},
		{name: "tls-cert-file", field: "tlsConfig.filesystem.certFile", accepts: "", why: files, lacks: true},
		{name: "tls-private-key-file", field: "tlsConfig.filesystem.keyFile", accepts: "", why: files, lacks: true},
		{name: "tls-cipher-suites", field: "tlsConfig.cipherSuites", accepts: "", why: versions, lacks: true},
		{name: "tls-min-version", field: "tlsConfig.minTLSVersion", accepts: "", why: versions, lacks: true},
		{name: "enable-client-verification", field: "enableClientVerification", accepts: false, why: clients, lacks: true},
		{name: "client-ca-path", field: "clientCAPath", accepts: "", why: clients, lacks: true},
		{name: "client-subject-names", field: "clientSubjectNames", accepts: "", why: clients, lacks: true},
	}
	for _, k := range knownFlags() {
		first, _, _ := strings.Cut(k.field, ".")
		if slices.Contains([]string{"kubeConfig", "featureGates", "enablePprof", "pprofAddress", "logging", "metricsListenAddress", "metricsTLSConfig", "pemSizeLimitsConfig"}, first) {
			flags = append(flags, k)
		}
	}
	of := []string{"AdditionalCertificateOutputFormats", "DisallowInsecureCSRUsageDefinition", "LiteralCertificateSubject", "NameConstraints", "OtherNames"}
	ours := slices.DeleteFunc(gates(), func(g gate) bool { return !slices.Contains(of, g.name) })
	return component{"webhook.config.cert-manager.io/v1alpha1", "WebhookConfiguration", ours, flags}
}

func newWebhookCommand() *cobra.Command {
	p, own := newProcess(webhookComponent()), app.DefaultWebhookConfig()
	cmd := &cobra.Command{
		Use:   "webhook",
		Short: "Fill in who makes a CertificateRequest, for API servers that do not",
		Long: `Webhook fills in who makes a CertificateRequest, until it is stopped. API servers of Kubernetes 1.36 and newer
do so themselves. Run "chancery install --webhook=ignore" or "--webhook=fail", which makes the Deployment. Flags have
the names and defaults of cert-manager's webhook.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.run(cmd, func(rc *rest.Config, log logr.Logger) error {
				a, err := app.NewWebhook(cmd.Context(), p.cfg, own, rc, log)
				if err != nil {
					return unreachable(rc, err)
				}
				return unreachable(rc, a.Run(cmd.Context()))
			})
		},
	}
	p.validate = func() error { return errors.Join(p.cfg.Validate(), own.Validate()) }
	p.addFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&p.master, "api-server-host", "", "as --master")
	addMetricsFlags(cmd, &p.cfg)
	f.IntVar(&own.SecurePort, "secure-port", own.SecurePort, "port for the API server")
	f.IntVar(&own.HealthPort, "healthz-port", own.HealthPort, "port to serve /livez on, and /healthz, which says whether the webhook is ready")
	f.StringVar(&own.Configuration, "mutating-webhook-configuration", own.Configuration, "MutatingWebhookConfiguration that the webhook writes its CA into")
	addDynamicServingFlags(cmd, &own.Serving, "dynamic-serving-", "the API server")
	p.switches = addSwitches(cmd, &p.cfg, p.of)
	return cmd
}
