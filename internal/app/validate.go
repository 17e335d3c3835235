package app

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"chancery.dev/internal/findings"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/request"
	"chancery.dev/internal/machine/service"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/solver/dns01/provider/exec"
)

// Validate returns everything that is wrong with the configuration, by flag.
func (c *Config) Validate() error {
	var f findings.Findings
	if c.ClusterResourceNamespace == "" {
		f.Add("cluster-resource-namespace", "must not be empty: ClusterIssuers keep their Secrets there")
	} else {
		f.Namespace("cluster-resource-namespace", c.ClusterResourceNamespace)
	}
	for _, name := range c.Namespaces {
		f.Namespace("namespace", name)
	}
	f.Namespace("admission-namespace", c.AdmissionNamespace)
	f.AddressOrNone("metrics-listen-address", c.MetricsAddress)
	c.MetricsTLS.validate(&f)
	f.AddressOrNone("internal-healthz-listen-address", c.HealthAddress)
	if c.ProfilerAddress != "" {
		f.Address("profiler-address", c.ProfilerAddress)
	}
	if _, _, err := waitsListener(c.WaitsAddress); c.WaitsAddress != "" && err != nil {
		f.Add("waits-address", "%w", err)
	}
	if c.Workers < 1 {
		f.Add("concurrent-workers", "must be at least 1, not %d", c.Workers)
	}
	c.validateElection(&f)
	if c.Backoff.Min < 0 {
		f.Add("certificate-request-minimum-backoff-duration", "must not be negative, but is %s", c.Backoff.Min)
	}
	if c.Backoff.Min > c.Backoff.Max {
		f.Add("certificate-request-minimum-backoff-duration", "%s must not exceed --certificate-request-maximum-backoff-duration %s", c.Backoff.Min, c.Backoff.Max)
	}
	if wrong, is := c.ApproveSigners.Malformed(); is {
		f.Add("approve-signer-names", "must be *, <plural>.<group>/* or <plural>.<group>/<name>, but one is %q", wrong)
	}
	for _, group := range c.CSRMachineGroups {
		if !request.IsMachineGroup(group) {
			f.Add("csr-approval-machine-groups", "must be %[1]s, %[2]s or %[2]s:…, but one is %[3]q: the requests of other groups do not wait for consent",
				request.GroupNodes, request.GroupBootstrappers, group)
		}
	}
	if len(c.Namespaces) > 0 && (c.PodCertificates || c.TrustBundles.Any()) {
		f.Add("namespace", "goes with neither --pod-certificates nor --trust-bundles: these are for the whole cluster")
	}
	c.ACME.validate(&f)
	return errors.Join(f...)
}

func (c *Config) validateElection(f *findings.Findings) {
	if !c.LeaderElect {
		return
	}
	if lasts := c.LeaseDuration.Truncate(time.Second); c.RenewDeadline >= lasts { // as the others read it in the Lease
		f.Add("leader-election-renew-deadline", "%s must be less than --leader-election-lease-duration %s, in whole seconds", c.RenewDeadline, lasts)
	}
	if c.RetryPeriod >= c.RenewDeadline {
		f.Add("leader-election-retry-period", "%s must be less than --leader-election-renew-deadline %s", c.RetryPeriod, c.RenewDeadline)
	}
	if c.RetryPeriod <= 0 {
		f.Add("leader-election-retry-period", "must be longer than 0, not %s", c.RetryPeriod)
	}
}

// The bounds of rates of requests.
const (
	minProviderQPS  = 0.001
	maxProviderRate = 100_000
)

// maxHTTP01Passes is how many passes fit into a self check, which may take 30 s.
const maxHTTP01Passes = 10

func (c ACMEConfig) validate(f *findings.Findings) {
	f.NotNegative("max-concurrent-challenges", c.Limits.Cap)
	f.NotNegative("max-concurrent-challenges-per-issuer", c.Limits.IssuerCap)
	f.NotNegative("max-concurrent-challenges-per-ingress-class", c.Limits.ClassCap)
	if !slices.Contains([]string{pki.RSA, pki.ECDSA, pki.Ed25519}, c.AccountKeyAlgorithm) {
		f.Add("acme-account-key-algorithm", "must be RSA, ECDSA or Ed25519, not %q", c.AccountKeyAlgorithm)
	}
	if c.CheckRetryPeriod < time.Second {
		f.Add("dns01-check-retry-period", "must be at least 1s, not %s", c.CheckRetryPeriod)
	}
	f.Port("dns01-authoritative-port", c.AuthoritativePort)
	f.NotNegative("dns01-self-check-quorum", c.DNS01.Quorum)
	if _, err := exec.ParsePrograms(c.DNS01.Programs); err != nil {
		f.Add("dns01-provider-programs", "%w", err)
	}
	if qps := c.DNS01.ProviderQPS; qps != 0 && !(qps >= minProviderQPS && qps <= maxProviderRate) { // nor not a number
		f.Add("dns01-provider-qps", "must be 0, or %v to %v, not %v", minProviderQPS, maxProviderRate, qps)
	}
	if burst := c.DNS01.ProviderBurst; burst < 0 || burst > maxProviderRate {
		f.Add("dns01-provider-burst", "must be 0 to %v, not %d", maxProviderRate, burst)
	}
	f.Port("http01-self-check-port", c.HTTP01Port)
	if c.HTTP01Passes < 1 || c.HTTP01Passes > maxHTTP01Passes {
		f.Add("http01-self-check-passes", "must be 1 to %d, not %d", maxHTTP01Passes, c.HTTP01Passes)
	}
	if c.HTTP01Address != "" {
		f.Address("http01-listen-address", c.HTTP01Address)
	}
	c.validatePods(f)
	f.Port("tlsalpn01-self-check-port", c.TLSALPN01Port)
	if c.TLSALPN01Address != "" {
		f.Address("tlsalpn01-listen-address", c.TLSALPN01Address)
	}
	if _, err := c.responderService(); err != nil {
		*f = append(*f, err)
	}
	checkHosts(f, "http01-hosts", c.HTTP01Hosts)
	checkHosts(f, "tlsalpn01-hosts", c.TLSALPN01Hosts)
	for _, server := range c.HTTP01Nameservers {
		f.Address("acme-http01-solver-nameservers", server)
	}
	for name, value := range c.HTTP01ExtraLabels {
		if len(validation.IsQualifiedName(name)) > 0 || len(validation.IsValidLabelValue(value)) > 0 {
			f.Add("acme-http01-solver-extra-labels", "must be labels such as team=web or example.com/team=web, not %q", name+"="+value)
		}
	}
}

func (c ACMEConfig) validatePods(f *findings.Findings) {
	pods := c.HTTP01Pods
	if !slices.Contains([]service.Mode{service.ModeAuto, service.ModeResponder, service.ModePod}, pods.Mode) {
		f.Add("acme-http01-mode", "must be auto, responder or pod, not %q", pods.Mode)
	}
	if pods.Image == "" {
		f.Add("acme-http01-solver-image", "must not be empty")
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		request, limit := pods.Requests[name], pods.Limits[name]
		if _, limited := pods.Limits[name]; limited && request.Cmp(limit) > 0 {
			f.Add("acme-http01-solver-resource-request-"+string(name), "%s must not exceed --acme-http01-solver-resource-limits-%s %s",
				request.String(), name, limit.String())
		}
	}
}

// responderService is HTTP01Responder in its two parts; they are empty if there are no routes.
func (c ACMEConfig) responderService() (types.NamespacedName, error) {
	if c.HTTP01Responder == "" || c.HTTP01Responder == ResponderNone {
		return types.NamespacedName{}, nil
	}
	namespace, name, ok := strings.Cut(c.HTTP01Responder, "/")
	if !ok || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1035Label(name)) > 0 {
		return types.NamespacedName{}, fmt.Errorf("--acme-http01-responder: must be a Service as namespace/name, or %s, not %q", ResponderNone, c.HTTP01Responder)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}

func (c *ResponderConfig) validate() error {
	var f findings.Findings
	f.Address("listen-address", c.Address)
	if c.TLSALPN01Address != "" {
		f.Address("tlsalpn01-listen-address", c.TLSALPN01Address)
	}
	f.AddressOrNone("metrics-listen-address", c.MetricsAddress)
	f.AddressOrNone("internal-healthz-listen-address", c.HealthAddress)
	for _, name := range c.Namespaces {
		f.Namespace("namespace", name)
	}
	return errors.Join(f...)
}

func checkHosts(f *findings.Findings, flag string, texts []string) {
	for _, text := range texts {
		if _, err := acmeflow.ParseHostRule(text); err != nil {
			f.Add(flag, "%w", err)
		}
	}
}
