package cli

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"chancery.dev/internal/app"
	"chancery.dev/internal/pki"
)

// The maturity of a feature gate of cert-manager.
const (
	alpha = iota + 1 // off by default
	beta             // on by default
	ga               // on for good
)

// The gates that stand for all gates of a maturity, and the gate of CertificateSigningRequests.
const (
	allAlpha = "AllAlpha"
	allBeta  = "AllBeta"
	csrGate  = "ExperimentalCertificateSigningRequestControllers"
)

// gate is a feature gate of cert-manager.
type gate struct {
	name  string
	stage int
	// set carries a value out; nil if one value holds by nature.
	set func(c *app.Config, on bool)
	// here is the value that holds by nature, why is why the other one cannot be had.
	here bool
	why  string
}

func (g gate) switchName() string { return g.name }

// switchesOff is a gate.set: the gate switches controllers off, and needs not switch them on.
func switchesOff(controllers ...string) func(*app.Config, bool) {
	return func(c *app.Config, on bool) {
		if !on {
			c.SwitchOff(controllers...)
		}
	}
}

// gates are cert-manager's (spec §9.5).
func gates() []gate {
	const always = "it cannot be switched off"
	return []gate{
		{name: "ACMEHTTP01IngressPathTypeExact", stage: beta, set: func(c *app.Config, on bool) { c.ACME.LoosePaths = !on }},
		{name: "ACMEUseARI", stage: alpha, set: func(c *app.Config, on bool) { c.ACME.NoARI = !on }},
		{name: "AdditionalCertificateOutputFormats", stage: ga, here: true, why: always},
		{name: "DefaultPrivateKeyRotationPolicyAlways", stage: ga, here: true, why: always},
		{name: "DisallowInsecureCSRUsageDefinition", stage: ga, here: true, why: always},
		{name: csrGate, stage: alpha, set: switchesOff(app.SigningRequestControllerNames()...)},
		{name: "ExperimentalGatewayAPISupport", stage: beta, set: switchesOff(app.ControllerGatewayShim, app.ControllerListenerSet)},
		{name: "ListenerSets", stage: alpha, set: switchesOff(app.ControllerListenerSet)},
		{name: "LiteralCertificateSubject", stage: beta, here: true, why: "the API has the field literalSubject"},
		{name: "NameConstraints", stage: beta, here: true, why: "the API has the field nameConstraints"},
		{name: "OtherNames", stage: beta, here: true, why: "the API has the field otherNames"},
		{name: "SecretsFilteredCaching", stage: beta, here: true, why: "Secrets of others are never kept in memory"},
		{name: "ServerSideApply", stage: alpha, why: "statuses are written by patches"},
		{name: "StableCertificateRequestName", stage: beta, here: true, why: "the name says the revision"},
		{name: "UseCertificateRequestBasicConstraints", stage: alpha, why: "isCA of the CertificateRequest says it, its encoded request does not"},
		{name: "UseDomainQualifiedFinalizer", stage: ga, here: true, why: always},
		{name: "ValidateCAA", stage: alpha, set: func(*app.Config, bool) {}}, // without effect there too
	}
}

// component is a program of cert-manager: the type of its configuration file, its feature gates and its flags.
type component struct {
	version, kind string
	gates         []gate
	flags         []known
}

func controllerComponent() component {
	return component{configVersion, configKind, gates(), knownFlags()}
}

// injectorComponent is cert-manager's cainjector. Its general flags are those of the controller.
func injectorComponent() component {
	flags := []known{
		{name: "ignore-namespaces", field: "ignoreNamespaces"},
		{name: "enable-certificates-data-source", field: "enableDataSourceConfig.certificates"},
		{name: "enable-validatingwebhookconfigurations-injectable", field: "enableInjectableConfig.validatingWebhookConfigurations"},
		{name: "enable-mutatingwebhookconfigurations-injectable", field: "enableInjectableConfig.mutatingWebhookConfigurations"},
		{name: "enable-customresourcedefinitions-injectable", field: "enableInjectableConfig.customResourceDefinitions"},
		{name: "enable-apiservices-injectable", field: "enableInjectableConfig.apiServices"},
	}
	general := []string{
		"kubeConfig", "namespace", "leaderElectionConfig", "featureGates", "metricsListenAddress", "metricsTLSConfig", "enablePprof", "pprofAddress", "logging",
	}
	for _, k := range knownFlags() {
		if first, _, _ := strings.Cut(k.field, "."); slices.Contains(general, first) {
			flags = append(flags, k)
		}
	}
	return component{injectorConfigVersion, injectorConfigKind, []gate{
		{name: "CAInjectorMerging", stage: ga, here: true, why: "a CA that is valid is never dropped"},
		{name: "ServerSideApply", stage: alpha, set: func(*app.Config, bool) {}}, // without effect there too
	}, flags}
}

// controllerNames are the names that --controllers takes.
func controllerNames() []string { return app.ControllerNames() }

// known is a flag of cert-manager's controller.
type known struct {
	name string
	// field is its place in a ControllerConfiguration.
	field string
	// accepts is the default of a flag that has no effect, because of why. The flag lacks its effect if that shows.
	accepts any
	why     string
	lacks   bool
}

func (k known) switchName() string { return k.name }

// knownFlags are cert-manager's (spec §9.3). A flag that this build has is here for its field in --config only.
func knownFlags() []known {
	const pemLimit = "the limit is fixed at this size"
	return []known{
		{name: "kubeconfig", field: "kubeConfig"},
		{name: "master", field: "apiServerHost"},
		{name: "kube-api-qps", field: "kubernetesAPIQPS", accepts: 20.0, why: "the API server protects itself, by API Priority and Fairness"},
		{name: "kube-api-burst", field: "kubernetesAPIBurst", accepts: 50, why: "as --kube-api-qps"},
		{name: "cluster-resource-namespace", field: "clusterResourceNamespace"},
		{name: "namespace", field: "namespace"},
		{name: "leader-elect", field: "leaderElectionConfig.enabled"},
		{name: "leader-election-namespace", field: "leaderElectionConfig.namespace"},
		{name: "leader-election-lease-duration", field: "leaderElectionConfig.leaseDuration"},
		{name: "leader-election-renew-deadline", field: "leaderElectionConfig.renewDeadline"},
		{name: "leader-election-retry-period", field: "leaderElectionConfig.retryPeriod"},
		{
			name: "internal-healthz-leader-election-timeout", field: "leaderElectionConfig.healthzTimeout", accepts: 20 * time.Second,
			why: "a leader that cannot renew its lease stops acting, and goes on once it can",
		},
		{name: "controllers", field: "controllers"},
		{name: "acme-http01-solver-image", field: "acmeHTTP01Config.solverImage"},
		{name: "acme-http01-solver-resource-request-cpu", field: "acmeHTTP01Config.solverResourceRequestCPU"},
		{name: "acme-http01-solver-resource-request-memory", field: "acmeHTTP01Config.solverResourceRequestMemory"},
		{name: "acme-http01-solver-resource-limits-cpu", field: "acmeHTTP01Config.solverResourceLimitsCPU"},
		{name: "acme-http01-solver-resource-limits-memory", field: "acmeHTTP01Config.solverResourceLimitsMemory"},
		{name: "acme-http01-solver-run-as-non-root", field: "acmeHTTP01Config.solverRunAsNonRoot"},
		{name: "acme-http01-solver-nameservers", field: "acmeHTTP01Config.solverNameservers"},
		{name: "acme-http01-solver-extra-labels", field: "acmeHTTP01Config.solverExtraLabels"},
		{name: "acme-http01-solver-runtime-class-name", field: "acmeHTTP01Config.solverRuntimeClassName"},
		{name: "cluster-issuer-ambient-credentials", field: "clusterIssuerAmbientCredentials"},
		{name: "issuer-ambient-credentials", field: "issuerAmbientCredentials"},
		{name: "auto-certificate-annotations", field: "ingressShimConfig.defaultAutoCertificateAnnotations"},
		{name: "extra-certificate-annotations", field: "ingressShimConfig.extraCertificateAnnotations"},
		{name: "default-issuer-name", field: "ingressShimConfig.defaultIssuerName"},
		{name: "default-issuer-kind", field: "ingressShimConfig.defaultIssuerKind"},
		{name: "default-issuer-group", field: "ingressShimConfig.defaultIssuerGroup"},
		{name: "dns01-recursive-nameservers", field: "acmeDNS01Config.recursiveNameservers"},
		{name: "dns01-recursive-nameservers-only", field: "acmeDNS01Config.recursiveNameserversOnly"},
		{name: "dns01-check-retry-period", field: "acmeDNS01Config.checkRetryPeriod"},
		{name: "enable-certificate-owner-ref", field: "enableCertificateOwnerRef"},
		{name: "enable-gateway-api", field: "enableGatewayAPI"},
		{name: "enable-gateway-api", field: "gatewayAPI.enabled"}, // since v1.21
		{name: "enable-gateway-api-listenerset", field: "enableGatewayAPIListenerSet"},
		{name: "gateway-api-extra-protocols", field: "gatewayAPI.extraProtocols"},
		{name: "copied-annotation-prefixes", field: "copiedAnnotationPrefixes"},
		{name: "feature-gates", field: "featureGates"},
		{name: "concurrent-workers", field: "numberOfConcurrentWorkers"},
		{name: "max-concurrent-challenges", field: "maxConcurrentChallenges"},
		{name: "metrics-listen-address", field: "metricsListenAddress"},
		{name: "enable-profiling", field: "enablePprof"},
		{name: "profiler-address", field: "pprofAddress"},
		{name: "metrics-tls-cert-file", field: "metricsTLSConfig.filesystem.certFile"},
		{name: "metrics-tls-private-key-file", field: "metricsTLSConfig.filesystem.keyFile"},
		{name: "metrics-dynamic-serving-leaf-duration", field: "metricsTLSConfig.dynamic.leafDuration"},
		{name: "metrics-dynamic-serving-ca-secret-namespace", field: "metricsTLSConfig.dynamic.secretNamespace"},
		{name: "metrics-dynamic-serving-ca-secret-name", field: "metricsTLSConfig.dynamic.secretName"},
		{name: "metrics-dynamic-serving-dns-names", field: "metricsTLSConfig.dynamic.dnsNames"},
		{name: "metrics-tls-cipher-suites", field: "metricsTLSConfig.cipherSuites"},
		{name: "metrics-tls-min-version", field: "metricsTLSConfig.minTLSVersion"},
		{name: "internal-healthz-listen-address", field: "healthzListenAddress"},
		{name: "max-certificate-size", field: "pemSizeLimitsConfig.maxCertificateSize", accepts: pki.MaxCertificatePEM, why: pemLimit, lacks: true},
		{name: "max-private-key-size", field: "pemSizeLimitsConfig.maxPrivateKeySize", accepts: pki.MaxPrivateKeyPEM, why: pemLimit, lacks: true},
		{name: "max-certificate-chain-length", field: "pemSizeLimitsConfig.maxChainLength", accepts: pki.MaxChainPEM, why: pemLimit, lacks: true},
		{name: "max-certificate-bundle-size", field: "pemSizeLimitsConfig.maxBundleSize", accepts: pki.MaxBundlePEM, why: pemLimit, lacks: true},
		{name: "certificate-request-minimum-backoff-duration", field: "certificateRequestMinimumBackoffDuration"},
		{name: "certificate-request-maximum-backoff-duration", field: "certificateRequestMaximumBackoffDuration"},
		{name: "v", field: "logging.verbosity"},
		{name: "vmodule", field: "logging.vmodule", accepts: "", why: "--v is for all of the program", lacks: true},
		{name: "logging-format", field: "logging.format"},
		{name: "log-flush-frequency", field: "logging.flushFrequency", accepts: 5 * time.Second, why: "each line is written at once"},
	}
}

// flagNames are the flags of a command.
func flagNames(cmd *cobra.Command) (out []string) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) { out = append(out, f.Name) })
	return out
}
