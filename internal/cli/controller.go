package cli

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/rest"

	"chancery.dev/internal/app"
	"chancery.dev/internal/cli/version"
	"chancery.dev/internal/controller/shims"
	"chancery.dev/internal/controller/trustbundles"
	"chancery.dev/internal/machine/certificate"
	"chancery.dev/internal/machine/request"
	"chancery.dev/internal/machine/service"
)

func newControllerCommand() *cobra.Command {
	cmd, _ := newControllerProcess()
	return cmd
}

// newControllerProcess returns the command, and what its flags are read into.
func newControllerProcess() (*cobra.Command, *process) {
	p := newProcess(controllerComponent())
	p.cfg.UserAgent += "/" + version.Number()
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Run the controller",
		Long: `Controller issues and renews certificates until it is stopped. Run "chancery install" once before.
Flags have the names and defaults of cert-manager's controller where they mean the same.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p.cfg.Tracing = p.cfg.Tracing.Environment(os.Getenv)
			return p.run(cmd, func(rc *rest.Config, log logr.Logger) error {
				a, err := app.New(cmd.Context(), p.cfg, rc, log)
				if err != nil {
					return unreachable(rc, err)
				}
				go fitHeap(cmd.Context(), a)
				go func() {
					if a.Synced(cmd.Context()) {
						log.Info("watching")
					}
				}()
				return a.Run(cmd.Context())
			})
		},
	}
	p.addFlags(cmd)
	AddConfigFlags(cmd, &p.cfg)
	p.switches = addSwitches(cmd, &p.cfg, p.of)
	return cmd, p
}

// AddConfigFlags adds the flags of spec §9.3 that this build knows, with cfg's values as their defaults.
func AddConfigFlags(cmd *cobra.Command, cfg *app.Config) {
	addServingFlags(cmd, cfg)
	addIssuanceFlags(cmd, cfg)
	addShimFlags(cmd, &cfg.Shims)
	addACMEFlags(cmd, &cfg.ACME)
}

// addFlag adds a flag whose values are read by set; value is what the help shows as its default.
func addFlag(cmd *cobra.Command, name, usage, value string, set func(string) error) {
	cmd.Flags().Var(&textValue{set: set, text: value}, name, usage)
}

// addListFlag is addFlag for a list, whose flag may be given more than once.
func addListFlag(cmd *cobra.Command, name, usage, value string, set func(string) error) {
	cmd.Flags().Var(&textValue{set: set, text: value, list: true}, name, usage)
}

// addServingFlags adds what concerns the process.
func addServingFlags(cmd *cobra.Command, cfg *app.Config) {
	f := cmd.Flags()
	f.StringVar(&cfg.ClusterResourceNamespace, "cluster-resource-namespace", cfg.ClusterResourceNamespace, "namespace of the Secrets that ClusterIssuers name")
	f.BoolVar(&cfg.Injection.Enabled, "enable-cainjector", false,
		"run the CA injector in this process; its role has to be bound to the same service account, by chancery install --cainjector=controller")
	f.StringVar(&cfg.Tracing.Endpoint, "tracing-endpoint", cfg.Tracing.Endpoint,
		"URL of an OpenTelemetry collector (OTLP over HTTP) that is sent a trace of each issuance, such as http://collector.monitoring:4318; "+
			"OTEL_EXPORTER_OTLP_HEADERS has the headers")
	f.BoolVar(&cfg.AcceptForeignCRDs, "accept-foreign-crds", false,
		"work also where custom resource definitions of somebody else are installed: what their rules do not forbid is not refused")
	f.StringSliceVar(&cfg.Namespaces, "namespace", nil, "only namespaces to work in; nothing that is cluster-scoped is then looked after")
	f.StringVar(&cfg.WaitsAddress, "waits-address", cfg.WaitsAddress,
		"loopback host:port, or unix:PATH, to serve on what every object waits for, to kubectl chancery waits; empty for nowhere")
	f.StringVar(&cfg.AdmissionNamespace, "admission-namespace", cfg.AdmissionNamespace, "namespace of the ConfigMaps that the admission policies read")
	addProcessFlags(cmd, cfg)
}

// addProcessFlags adds what concerns a process that leads, or waits until it does.
func addProcessFlags(cmd *cobra.Command, cfg *app.Config) {
	f := cmd.Flags()
	f.BoolVar(&cfg.LeaderElect, "leader-elect", cfg.LeaderElect, "let one of several replicas work at a time; all sign for Pods by CA issuers, and answer HTTP-01 challenges")
	f.StringVar(&cfg.LeaderElectionNamespace, "leader-election-namespace", cfg.LeaderElectionNamespace, "namespace of the lease")
	addElectionFlags(cmd, &cfg.Election)
	addMetricsFlags(cmd, cfg)
	f.StringVar(&cfg.HealthAddress, "internal-healthz-listen-address", cfg.HealthAddress, "host:port to serve /livez and /readyz on; 0 for none")
}

// addElectionFlags adds the times of the lease.
func addElectionFlags(cmd *cobra.Command, e *app.Election) {
	original := app.OriginalElection()
	unset := map[*time.Duration]time.Duration{
		&e.LeaseDuration: original.LeaseDuration, &e.RenewDeadline: original.RenewDeadline, &e.RetryPeriod: original.RetryPeriod,
	}
	add := func(name string, field *time.Duration, usage string) {
		usage += "; " + unset[field].String() + " where only another one of these times is set"
		cmd.Flags().Var(electionTime{field, unset}, "leader-election-"+name, usage)
	}
	add("lease-duration", &e.LeaseDuration, "how long the others wait for a leader that is silent")
	add("renew-deadline", &e.RenewDeadline, "how long the leader acts without having renewed the lease")
	add("retry-period", &e.RetryPeriod, "how often the leader renews the lease")
}

// electionTime is the value of a flag for one of the times of the lease. Whoever sets one of them means it beside
// cert-manager's defaults of the others, so these count then: unset holds those that nobody has set.
type electionTime struct {
	*time.Duration

	unset map[*time.Duration]time.Duration
}

// Type implements pflag.Value.
func (electionTime) Type() string { return "duration" }

// Set implements pflag.Value.
func (t electionTime) Set(text string) error {
	value, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	delete(t.unset, t.Duration)
	for other, original := range t.unset {
		*other = original
	}
	*t.Duration = value
	return nil
}

// addMetricsFlags adds what concerns /metrics.
func addMetricsFlags(cmd *cobra.Command, cfg *app.Config) {
	f := cmd.Flags()
	f.StringVar(&cfg.MetricsAddress, "metrics-listen-address", cfg.MetricsAddress, "host:port to serve /metrics on; 0 for none")
	f.StringVar(&cfg.MetricsTLS.CertFile, "metrics-tls-cert-file", "", "file with the certificate to serve /metrics with, over TLS; a changed file is read again")
	f.StringVar(&cfg.MetricsTLS.KeyFile, "metrics-tls-private-key-file", "", "file with its key")
	f.StringSliceVar(&cfg.MetricsTLS.CipherSuites, "metrics-tls-cipher-suites", nil, "cipher suites of TLS before 1.3 for /metrics, by the names of Go; Go's own choice by default")
	f.StringVar(&cfg.MetricsTLS.MinVersion, "metrics-tls-min-version", "", "oldest version of TLS for /metrics: VersionTLS10 to VersionTLS13; VersionTLS12 by default")
	addDynamicServingFlags(cmd, &cfg.MetricsTLS.Dynamic, "metrics-dynamic-serving-", "/metrics")
}

// addDynamicServingFlags adds the flags of a certificate that the process makes to serve something with.
func addDynamicServingFlags(cmd *cobra.Command, d *app.DynamicServing, prefix, what string) {
	f := cmd.Flags()
	f.StringVar(&d.SecretName, prefix+"ca-secret-name", d.SecretName, "Secret of a CA that the process makes, to serve "+what+" over TLS with a certificate of its own; the process makes the Secret too")
	f.StringVar(&d.SecretNamespace, prefix+"ca-secret-namespace", d.SecretNamespace, "namespace of the Secret")
	f.StringSliceVar(&d.DNSNames, prefix+"dns-names", d.DNSNames, "DNS names by which clients know the server")
	f.DurationVar(&d.Life, prefix+"leaf-duration", d.Life, "how long the certificate of the server is valid; it is replaced after two thirds of that")
}

// addIssuanceFlags adds what concerns Certificates and requests.
func addIssuanceFlags(cmd *cobra.Command, cfg *app.Config) {
	f := cmd.Flags()
	f.IntVar(&cfg.Workers, "concurrent-workers", cfg.Workers, "how many objects of each kind are worked on at once")
	addBackoffFlag(cmd, &cfg.Backoff, &cfg.Backoff.Min, "certificate-request-minimum-backoff-duration",
		"wait after a first failed issuance; 0 for none. Where neither bound is set, failures whose cause is known are waited out as suits the cause")
	addBackoffFlag(cmd, &cfg.Backoff, &cfg.Backoff.Max, "certificate-request-maximum-backoff-duration", "longest wait after failed issuances")
	f.StringSliceVar(&cfg.CopiedAnnotationPrefixes, "copied-annotation-prefixes", cfg.CopiedAnnotationPrefixes,
		"which annotations CertificateRequests inherit from Certificates, by prefix; -prefix excludes, * includes all")
	f.BoolVar(&cfg.EnableCertificateOwnerRef, "enable-certificate-owner-ref", false, "delete the Secret of a Certificate together with it")
	f.BoolVar(&cfg.StepEvents, "step-events", false, "emit an event for each step of an issuance, as cert-manager does; without it, for results and trouble only")
	f.BoolVar(&cfg.Ambient.ClusterIssuers, "cluster-issuer-ambient-credentials", cfg.Ambient.ClusterIssuers, "let ClusterIssuers use the credentials that a cloud gives this process")
	f.BoolVar(&cfg.Ambient.Issuers, "issuer-ambient-credentials", cfg.Ambient.Issuers, "let Issuers, and so whoever may create one, use them too")
	addRangesFlag(cmd, &cfg.IssuerEgress.Allow, "issuer-egress-allow",
		"the only address ranges to connect to where an Issuer names the server, and in self checks; none means all but loopback, link-local addresses and clouds' metadata, which have to be named to be allowed")
	addRangesFlag(cmd, &cfg.IssuerEgress.Deny, "issuer-egress-deny", "address ranges not to connect to there, such as 10.0.0.0/8; they win")
	f.BoolVar(&cfg.AutoApprove, "auto-approve", cfg.AutoApprove,
		"approve every CertificateRequest, and CertificateSigningRequests as --csr-approval says; false leaves to others whatever no --csr-approval flag is set for")
	f.StringSliceVar((*[]string)(&cfg.ApproveSigners), "approve-signer-names", cfg.ApproveSigners,
		"signers whose CertificateRequests are approved: <plural>.<group>/*, <plural>.<group>/[<namespace>.]<name>, or * for all; the service account needs the verb approve on them")
	f.BoolVar(&cfg.PodCertificates, "pod-certificates", false,
		"sign PodCertificateRequests, which kubelets make for Pods, by CA and Vault issuers with the annotation chancery.dev/pod-certificates; it needs Kubernetes 1.37, or the beta of 1.35 and 1.36, "+
			"and the rights of chancery install --pod-certificates")
	addFlag(cmd, "trust-bundles", "CA issuers whose roots are written into ClusterTrustBundles if they have the annotation chancery.dev/trust-bundle: none, cluster-issuers or all; "+
		"it needs Kubernetes 1.37, or the beta of 1.33 to 1.36, and the rights of chancery install --trust-bundles", string(trustbundles.None), func(text string) error {
		cfg.TrustBundles = trustbundles.Issuers(text)
		return cfg.TrustBundles.Validate()
	})
	approvers := cfg.CSRApprovers
	addApproverFlag(cmd, approvers, request.FormCSR, "csr-approval", "cert-manager.io/<ClusterIssuer>")
	addApproverFlag(cmd, approvers, request.FormCSRIssuer, "csr-approval-issuer", "issuers.cert-manager.io/<namespace>.<name>")
	addApproverFlag(cmd, approvers, request.FormCSRClusterIssuer, "csr-approval-clusterissuer", "clusterissuers.cert-manager.io/<name>")
	f.StringSliceVar(&cfg.CSRMachineGroups, "csr-approval-machine-groups", cfg.CSRMachineGroups,
		"groups of nodes and bootstrap tokens (system:nodes, system:bootstrappers) whose CertificateSigningRequests are approved as others' are; those of the others wait for consent")
}

// addShimFlags adds what concerns Certificates that Ingresses, Gateways and ListenerSets ask for.
func addShimFlags(cmd *cobra.Command, o *shims.Options) {
	f, s := cmd.Flags(), &o.Settings
	f.StringVar(&s.DefaultIssuer.Name, "default-issuer-name", "", "issuer for Ingresses that ask for a certificate without naming one")
	f.StringVar(&s.DefaultIssuer.Kind, "default-issuer-kind", s.DefaultIssuer.Kind, "its kind: Issuer, ClusterIssuer, or that of an external issuer")
	f.StringVar(&s.DefaultIssuer.Group, "default-issuer-group", s.DefaultIssuer.Group, "its group, and that of every issuer that annotations name without one")
	f.StringSliceVar(&s.AutoAnnotations, "auto-certificate-annotations", s.AutoAnnotations, "annotations by which an Ingress asks, when they are true, for a certificate by the default issuer")
	f.StringSliceVar(&s.ExtraAnnotations, "extra-certificate-annotations", nil, "annotations of Ingresses, Gateways and ListenerSets that their Certificates get too")
	f.BoolVar(&o.Gateways, "enable-gateway-api", false, "make Certificates for annotated Gateways")
	f.BoolVar(&o.ListenerSets, "enable-gateway-api-listenerset", false, "make Certificates for annotated ListenerSets too; needs --enable-gateway-api")
	f.StringSliceVar(&s.ExtraProtocols, "gateway-api-extra-protocols", nil, "protocols of listeners with TLS, beside HTTPS and TLS")
}

// addACMEFlags adds what concerns Orders and Challenges.
func addACMEFlags(cmd *cobra.Command, acme *app.ACMEConfig) {
	f := cmd.Flags()
	f.IntVar(&acme.Limits.Cap, "max-concurrent-challenges", acme.Limits.Cap, "how many ACME challenges are in flight at once; 0 starts none")
	f.IntVar(&acme.Limits.IssuerCap, "max-concurrent-challenges-per-issuer", acme.Limits.IssuerCap, "how many of them may be of one issuer; 0 for no limit")
	f.IntVar(&acme.Limits.ClassCap, "max-concurrent-challenges-per-ingress-class", acme.Limits.ClassCap,
		"how many of them may have routes of one ingress class, or of one Gateway; 0 for no limit")
	f.StringVar(&acme.AccountKeyAlgorithm, "acme-account-key-algorithm", acme.AccountKeyAlgorithm,
		"kind of key to make for new ACME accounts: RSA, which cert-manager reads too, or ECDSA or Ed25519, which take a fraction of the CPU")
	f.DurationVar(&acme.CheckRetryPeriod, "dns01-check-retry-period", acme.CheckRetryPeriod, "how often a self check that keeps failing is tried again")
	f.StringSliceVar(&acme.RecursiveNameservers, "dns01-recursive-nameservers", acme.RecursiveNameservers, "name servers to ask for DNS zones, host:port or https://…; those of the machine by default")
	f.BoolVar(&acme.RecursiveNameserversOnly, "dns01-recursive-nameservers-only", false, "ask only them about propagation, not the zones' own servers")
	f.IntVar(&acme.DNS01.Quorum, "dns01-self-check-quorum", 0, "how many of a zone's name servers have to answer a record before it is validated; 0 for all")
	f.StringSliceVar(&acme.DNS01.Programs, "dns01-provider-programs", nil,
		"programs that write DNS records, NAME=PATH or NAME=unix:SOCKET; * is for every provider without one of its own, as in *=/usr/local/bin/chancery-dns")
	f.BoolVar(&acme.DNS01.ExecInIssuers, "dns01-exec-in-issuers", false, "let Issuers, and so whoever may create one, use any DNS provider by the field exec")
	f.BoolVar(&acme.DNS01.WebhookURLsInIssuers, "dns01-webhook-urls-in-issuers", false, "let Issuers, and so whoever may create one, have the controller call webhooks at any https address")
	f.Float64Var(&acme.DNS01.ProviderQPS, "dns01-provider-qps", acme.DNS01.ProviderQPS, "how often a second a DNS provider may be asked with one credential; 0 for any")
	f.IntVar(&acme.DNS01.ProviderBurst, "dns01-provider-burst", acme.DNS01.ProviderBurst, "how often it may be asked at once before that holds")
	f.StringSliceVar(&acme.HTTP01Nameservers, "acme-http01-solver-nameservers", nil, "name servers to resolve names with for the self checks of HTTP-01 and TLS-ALPN-01, host:port")
	f.StringVar(&acme.HTTP01Address, "http01-listen-address", acme.HTTP01Address, "host:port on which the controller itself answers HTTP-01 challenges; empty for none")
	addFlag(cmd, "acme-http01-responder",
		"Service, as namespace/name, of \"chancery responder\" or of the controller, which HTTP-01 requests are routed to; none for no routes. "+
			"By default none with --http01-listen-address, and else the Service chancery-responder in the controller's namespace", acme.HTTP01Responder,
		func(text string) error {
			acme.HTTP01Responder = cmp.Or(text, app.ResponderNone)
			return nil
		})
	addPodFlags(cmd, &acme.HTTP01Pods)
	f.BoolVar(&acme.HTTP01CatchAll, "http01-catch-all", false, "say that requests for any host may reach the responder, beside the routes to it: --http01-hosts holds then")
	f.StringSliceVar(&acme.HTTP01Hosts, "http01-hosts", acme.HTTP01Hosts,
		"hosts that HTTP-01 challenges of Issuers may be for, where CAs reach the responder without routes: NAMESPACE=PATTERN, as in shop=*.shop.example.com or *=*")
	f.StringSliceVar(&acme.TLSALPN01Hosts, "tlsalpn01-hosts", acme.TLSALPN01Hosts, "hosts that TLS-ALPN-01 challenges of Issuers may be for: NAMESPACE=PATTERN")
	f.StringToStringVar(&acme.HTTP01ExtraLabels, "acme-http01-solver-extra-labels", nil, "labels to put on the routes and Services of HTTP-01")
	f.IntVar(&acme.HTTP01Port, "http01-self-check-port", 0, "port that the self check of HTTP-01 asks, where 80 is redirected; 0 means 80")
	f.IntVar(&acme.HTTP01Passes, "http01-self-check-passes", acme.HTTP01Passes,
		"how many right answers in a row the self check of HTTP-01 needs, 2 s apart, where a load balancer leads only some connections to the responder")
	f.StringVar(&acme.TLSALPN01Address, "tlsalpn01-listen-address", acme.TLSALPN01Address, "host:port on which the controller itself answers TLS-ALPN-01 challenges; empty for none")
	f.IntVar(&acme.TLSALPN01Port, "tlsalpn01-self-check-port", 0, "port that the self check of TLS-ALPN-01 asks, where 443 is redirected; 0 means 443")
	f.IntVar(&acme.AuthoritativePort, "dns01-authoritative-port", 0, "port that zones' own name servers are asked on; 0 means 53")
}

// addPodFlags adds what concerns the pods that answer an HTTP-01 challenge each.
func addPodFlags(cmd *cobra.Command, pods *service.Pods) {
	f := cmd.Flags()
	f.StringVar((*string)(&pods.Mode), "acme-http01-mode", string(pods.Mode),
		"who answers HTTP-01 challenges: responder, a pod for each challenge (pod), or a pod where the solver has a podTemplate (auto)")
	f.StringVar(&pods.Image, "acme-http01-solver-image", pods.Image, "image of these pods: its entry point is chancery, or cert-manager's acmesolver")
	f.BoolVar(&pods.RunAsNonRoot, "acme-http01-solver-run-as-non-root", pods.RunAsNonRoot, "refuse to run these pods as root")
	f.StringVar(&pods.RuntimeClassName, "acme-http01-solver-runtime-class-name", pods.RuntimeClassName, "runtime class of these pods; empty for the default one")
	for _, r := range []struct {
		flag string
		list corev1.ResourceList
		name corev1.ResourceName
	}{
		{"request-cpu", pods.Requests, corev1.ResourceCPU}, {"request-memory", pods.Requests, corev1.ResourceMemory},
		{"limits-cpu", pods.Limits, corev1.ResourceCPU}, {"limits-memory", pods.Limits, corev1.ResourceMemory},
	} {
		value := r.list[r.name]
		addFlag(cmd, "acme-http01-solver-resource-"+r.flag, "of these pods: resource "+strings.ReplaceAll(r.flag, "-", " "), value.String(),
			func(text string) error {
				quantity, err := resource.ParseQuantity(text)
				r.list[r.name] = quantity
				return err
			})
	}
}

// addBackoffFlag adds the flag of a bound of the back-off. If a user sets a bound, the bounds hold for failures of all
// classes.
func addBackoffFlag(cmd *cobra.Command, backoff *certificate.Backoff, bound *time.Duration, name, usage string) {
	addFlag(cmd, name, usage, bound.String(), func(text string) (err error) {
		*bound, err = time.ParseDuration(text)
		backoff.ByClass = false
		return err
	})
}

// addApproverFlag adds the flag of an entry of Config.CSRApprovers; signer is the form of signerName that it is for.
func addApproverFlag(cmd *cobra.Command, approvers map[request.Form]request.Approver, form request.Form, name, signer string) {
	const usage = "who approves CertificateSigningRequests for %s: auto (every one; whoever may create one gets a certificate), " +
		"authorized (where the requester may reference the signer), external (others)"
	names := []string{request.ApproveAuto: "auto", request.ApproveAuthorized: "authorized", request.ApproveExternal: "external"}
	value, set := approvers[form]
	if !set {
		value = app.DefaultApprover(form)
	}
	addFlag(cmd, name, fmt.Sprintf(usage, signer), names[value], func(text string) error {
		i := slices.Index(names, strings.ToLower(text))
		if i < 0 || text == "" {
			return fmt.Errorf("must be auto, authorized or external, not %q", text)
		}
		approvers[form] = request.Approver(i)
		return nil
	})
}

// addRangesFlag adds the flag of a list of address ranges (CIDR), which replaces the default.
func addRangesFlag(cmd *cobra.Command, ranges *[]netip.Prefix, name, usage string) {
	var shown []string
	for _, r := range *ranges {
		shown = append(shown, r.String())
	}
	set := false
	addListFlag(cmd, name, usage, strings.Join(shown, ","), func(list string) error {
		if !set {
			*ranges, set = nil, true
		}
		for text := range strings.SplitSeq(list, ",") {
			r, err := netip.ParsePrefix(strings.TrimSpace(text))
			if err != nil {
				return fmt.Errorf("must be address ranges such as 203.0.113.0/24 or 2001:db8::/32: %w", err)
			}
			*ranges = append(*ranges, r.Masked())
		}
		return nil
	})
}
