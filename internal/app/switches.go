package app

import (
	"slices"
	"strings"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/controller/requests"
	"chancery.dev/internal/controller/shims"
	"chancery.dev/internal/signer"
)

// Names of cert-manager's controllers (spec §9.3), for Config.SwitchOff. ControllerListenerSet has no name there.
const (
	ControllerIssuers        = "issuers"
	ControllerClusterIssuers = "clusterissuers"
	ControllerMetrics        = "certificates-metrics"
	ControllerIngressShim    = "ingress-shim"
	ControllerGatewayShim    = "gateway-shim"
	ControllerListenerSet    = "listenerset"
	ControllerOrders         = "orders"
	ControllerChallenges     = "challenges"
	ControllerApprover       = "certificaterequests-approver"
)

// The name of a signer of requests is one of these prefixes, followed by the type of the issuers in lower case.
const (
	CertificateRequestControllers = "certificaterequests-issuer-"
	SigningRequestControllers     = "certificatesigningrequests-issuer-"
)

// CertificateControllers are the controllers of cert-manager whose work one controller of ours does.
func CertificateControllers() []string {
	return []string{
		"certificates-trigger", "certificates-issuing", "certificates-key-manager", "certificates-request-manager",
		"certificates-readiness", "certificates-revision-manager",
	}
}

// SigningRequestControllerNames are the signers of CertificateSigningRequests.
func SigningRequestControllerNames() []string { return signersOf(SigningRequestControllers) }

// requestControllers are those of CertificateRequests.
func requestControllers() []string {
	return append(signersOf(CertificateRequestControllers), ControllerApprover)
}

func signersOf(prefix string) (names []string) {
	for _, t := range signer.Types() {
		names = append(names, prefix+strings.ToLower(string(t)))
	}
	return names
}

// ControllerNames are all that a user may name.
func ControllerNames() []string {
	return slices.Concat([]string{ControllerIssuers, ControllerClusterIssuers}, CertificateControllers(),
		[]string{ControllerMetrics, ControllerApprover}, signersOf(CertificateRequestControllers), SigningRequestControllerNames(),
		[]string{ControllerOrders, ControllerChallenges, ControllerIngressShim, ControllerGatewayShim})
}

// SwitchOff switches controllers off, by cert-manager's names.
func (c *Config) SwitchOff(names ...string) { c.off = append(c.off, names...) }

// Off are the controllers that are switched off.
func (c *Config) Off() []string { return c.off }

// runs reports whether one of the controllers is not switched off.
func (c *Config) runs(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(c.off, name) })
}

// usesIssuers reports whether a controller runs that looks issuers up by their Secrets.
func (c *Config) usesIssuers() bool {
	return c.PodCertificates || c.TrustBundles.Any() || c.runs(slices.Concat(CertificateControllers(), requestControllers(), SigningRequestControllerNames(), []string{ControllerIssuers, ControllerClusterIssuers})...)
}

// shimOptions are those of the shims that run.
func (c *Config) shimOptions() shims.Options {
	o := c.Shims
	o.Ingresses = o.Ingresses && c.runs(ControllerIngressShim)
	o.Gateways = o.Gateways && c.runs(ControllerGatewayShim)
	o.ListenerSets = o.ListenerSets && c.runs(ControllerListenerSet)
	return o
}

// unsigned are the types of issuers, by kind of request, whose requests are left to others.
func (c *Config) unsigned() map[string][]signer.Type {
	out := map[string][]signer.Type{}
	for kind, prefix := range map[string]string{
		certmanagerv1.CertificateRequestKind: CertificateRequestControllers, requests.SigningRequestKind: SigningRequestControllers,
	} {
		for _, t := range signer.Types() {
			if !c.runs(prefix + strings.ToLower(string(t))) {
				out[kind] = append(out[kind], t)
			}
		}
	}
	return out
}
