// Package layout_test holds the repository to its own rules: who may import whom, the
// bar in numbers, citations and links that lead somewhere, and what continuous
// integration runs. It reads every module of the repository, and tests nothing that the
// compiler or a linter can tell.
package layout_test

// room is a package of the root module and its place among the layers.
type room struct {
	// layer: a package imports strictly lower layers.
	layer int
	// path below the module, without it.
	path string
	// why the package exists, in a few words.
	why string
	// rig marks packages made for tests: the tests of every layer may import them,
	// other code may not.
	rig bool
}

// rooms is the plan. A new package gets a row here, in the lowest layer that its imports allow, and in the table of
// CONTRIBUTING.md: go test ./internal/layout -update writes that table.
var rooms = []room{
	{layer: 0, path: "api/meta/v1", why: "shared reference types"},
	{layer: 1, path: "internal/kube/requesterwebhook", why: "the webhook that fills in who makes a CertificateRequest"},
	{layer: 0, path: "internal/limits", why: "pure: the bounds of everything whose size somebody else chooses"},
	{layer: 0, path: "internal/fault", why: "what to do about an error"},
	{layer: 0, path: "internal/findings", why: "what is wrong with what a user has set by flags"},
	{layer: 0, path: "internal/when", why: "pure: compares times of which zero means never"},
	{layer: 0, path: "internal/kube/leader/term", why: "the time for which this process may act: a leader's"},
	{layer: 0, path: "internal/fairshare", why: "how namespaces share places for calls and processes that may hang"},
	{layer: 0, path: "internal/cli/terminal", why: "text of strangers, without what a terminal obeys"},
	{layer: 1, path: "internal/egress", why: "the addresses that may be connected to on behalf of tenants"},
	{layer: 1, path: "internal/kube/credential", why: "reads Secrets with credentials"},
	{layer: 0, path: "internal/acme/caa", why: "pure: the grammar of CAA records"},
	{layer: 1, path: "internal/acme", why: "pure: the objects of the ACME protocol"},
	{layer: 0, path: "internal/machine/listeners", why: "pure: the listeners that an HTTPRoute attaches to"},
	{layer: 0, path: "internal/tracing", why: "spans for a collector of OpenTelemetry"},
	{layer: 1, path: "internal/fault/retryafter", why: "how long an answer by HTTP asks to wait"},
	{layer: 2, path: "internal/acme/dnspersist", why: "pure: the record of DNS-PERSIST-01"},
	{layer: 0, path: "internal/machine/propagation", why: "a memory of how long others take to see what the self check sees"},
	{layer: 0, path: "internal/solver/dns01/wire", why: "the DNS provider protocol's messages"},
	{layer: 0, path: "examples", why: "manifests for people, and for the demo"},

	{layer: 1, path: "api/acme/v1", why: "Order, Challenge, solver configuration"},
	{layer: 1, path: "internal/pki", why: "keys, CSRs, chains, keystores"},
	{layer: 2, path: "internal/acme/client", why: "ACME protocol client, wire only"},
	{layer: 1, path: "internal/solver/dns01/provider/limit", why: "how often a DNS provider may be asked with a credential"},

	{layer: 0, path: "internal/kube/ownwrites", why: "read-your-writes client"},
	{layer: 0, path: "internal/kube/podapi", why: "the versions of the kinds that are for Pods, all of which are read as v1"},
	{layer: 3, path: "internal/kube/stub", why: "pure: next to nothing of objects that are too large for the cache"},
	{layer: 4, path: "internal/engine", why: "observe, decide, act, one status; who waits, for what"},

	{layer: 2, path: "api/certmanager/v1", why: "Certificate, CertificateRequest, Issuer, ClusterIssuer"},

	{layer: 3, path: "api", why: "scheme, embedded CRDs and policies"},
	{layer: 3, path: "internal/cause", why: "pure: what can be in the way of a certificate, in words, and what helps"},
	{layer: 4, path: "internal/machine/issuer", why: "pure: what an issuer's status says"},
	{layer: 3, path: "internal/machine/injection", why: "pure: which CA bundles webhooks, APIServices and definitions are to have"},
	{layer: 2, path: "internal/machine/service", why: "pure: what becomes of the Service of the HTTP-01 responder"},
	{layer: 3, path: "internal/machine/selection", why: "pure: which solver proves a name"},
	{layer: 3, path: "internal/machine/renewal", why: "pure: when a certificate is to be renewed"},
	{layer: 3, path: "internal/machine/revocation", why: "pure: how a certificate comes to be revoked"},
	{layer: 3, path: "internal/kube/servingcert", why: "certificates that a process makes for its own servers"},
	{layer: 3, path: "internal/rig/tppserver", why: "a stand-in for Certificate Manager, Self-Hosted", rig: true},

	{layer: 4, path: "internal/machine/acmeflow", why: "pure: what decides about Orders and Challenges alike"},
	{layer: 5, path: "internal/machine/order", why: "pure: what an Order needs now"},
	{layer: 5, path: "internal/machine/challenge", why: "pure: what a Challenge needs now"},
	{layer: 4, path: "internal/machine/schedule", why: "pure: the challenge scheduler over a snapshot"},
	{layer: 3, path: "internal/machine/facts", why: "pure: what is known of a Certificate's Secret, key and requests, and what its Secret is made of"},
	{layer: 4, path: "internal/machine/certificate", why: "pure: what a Certificate needs now"},
	{layer: 3, path: "internal/machine/account", why: "pure: what holds for an ACME account"},
	{layer: 4, path: "internal/machine/shim", why: "pure: which Certificates Ingresses, Gateways and ListenerSets ask for"},
	{layer: 5, path: "internal/machine/podrequest", why: "pure: what becomes of the requests of Pods"},
	{layer: 5, path: "internal/machine/trustbundle", why: "pure: what is in the ClusterTrustBundles of CA issuers"},
	{layer: 4, path: "internal/machine/request", why: "pure: DecideRequest over CertificateRequests and CSRs"},

	{layer: 3, path: "internal/kube/informers", why: "how informers list, and what they keep of an object"},
	{layer: 5, path: "internal/kube/leader", why: "the lease by which one process leads"},
	{layer: 5, path: "internal/kube/secrets", why: "what is kept of Secrets, and who the Secrets belong to"},
	{layer: 5, path: "internal/solver", why: "port: Solver"},
	{layer: 5, path: "internal/signer", why: "port: Signer, neutral Request and Bundle"},
	{layer: 6, path: "internal/acme/accounts", why: "the ACME accounts in use, and their calls"},

	{layer: 0, path: "internal/calendar", why: "pure: what public CAs have announced, with dates"},
	{layer: 4, path: "internal/clientside/preflight", why: "pure: whether an issuance can succeed, judged before it"},
	{layer: 6, path: "internal/clientside/explain", why: "pure: where a certificate stands, the cause and what helps, in words"},

	{layer: 7, path: "internal/metrics", why: "what Prometheus is told, under cert-manager's names"},
	{layer: 7, path: "internal/clientside/inventory", why: "Certificates and what belongs to them, read as a user, once or live"},

	{layer: 6, path: "internal/rig/solver/conformance", why: "what every Solver does", rig: true},
	{layer: 6, path: "internal/solver/http01", why: "routes and responder"},
	{layer: 6, path: "internal/solver/dns01", why: "zone walk, propagation, provider port"},
	{layer: 6, path: "internal/rig/signer/contract", why: "what every Signer does by its port", rig: true},
	{layer: 6, path: "internal/signer/selfsigned", why: "adapter: SelfSigned"},
	{layer: 6, path: "internal/signer/ca", why: "adapter: CA"},
	{layer: 6, path: "internal/signer/vault", why: "adapter: Vault"},
	{layer: 6, path: "internal/signer/venafi", why: "adapter: Venafi"},
	{layer: 7, path: "internal/signer/acmeorder", why: "adapter: ACME"},
	{layer: 6, path: "internal/controller", why: "what all reconcilers share"},

	{layer: 8, path: "internal/dashboard", why: "the read-only page about certificates, for a user's own browser"},
	{layer: 7, path: "internal/solver/tlsalpn01", why: "TLS-ALPN-01: handshakes answered, and a self check"},
	{layer: 7, path: "internal/solver/http01/route", why: "Ingresses, HTTPRoutes and Services that lead to the responder"},
	{layer: 7, path: "internal/controller/certificates", why: "Certificates on the engine"},
	{layer: 8, path: "internal/controller/podrequests", why: "reconciler of the requests of Pods"},
	{layer: 7, path: "internal/controller/trustbundles", why: "reconciler of ClusterTrustBundles"},
	{layer: 7, path: "internal/controller/requests", why: "reconcilers of both kinds of request"},
	{layer: 7, path: "internal/controller/issuers", why: "reconcilers of Issuers and ClusterIssuers"},
	{layer: 7, path: "internal/controller/injection", why: "the CA injector on the engine"},
	{layer: 7, path: "internal/controller/externalissuers", why: "the table of the kinds of external issuers"},
	{layer: 7, path: "internal/controller/responderservices", why: "reconciler of the Services of the HTTP-01 responder"},
	{layer: 7, path: "internal/controller/shims", why: "reconcilers of Ingresses, Gateways and ListenerSets"},
	{layer: 7, path: "internal/controller/orders", why: "reconcilers of Orders and Challenges, the scheduler"},

	{layer: 7, path: "internal/solver/dns01/provider/rfc2136", why: "dynamic updates"},
	{layer: 7, path: "internal/solver/dns01/provider/acmedns", why: "an acme-dns server"},
	{layer: 7, path: "internal/solver/dns01/provider/webhook", why: "the webhook API"},
	{layer: 7, path: "internal/solver/dns01/provider/exec", why: "a process or socket, JSON lines"},

	{layer: 8, path: "internal/solver/dns01/provider", why: "chooses the provider that a configuration names"},

	{layer: 8, path: "internal/install", why: "what is installed, and how"},
	{layer: 9, path: "internal/app", why: "configuration and the one wiring list"},

	{layer: 10, path: "internal/cli", why: "the user's commands"},
	{layer: 1, path: "internal/cli/logging", why: "the flags about the log"},
	{layer: 0, path: "internal/cli/manual", why: "manual pages of a binary"},
	{layer: 0, path: "internal/cli/version", why: "what a binary says of its version"},
	{layer: 1, path: "internal/rig/browser", why: "Chromium without a window, driven over a pipe", rig: true},
	{layer: 0, path: "internal/rig/tool", why: "programs outside the project that tests look for", rig: true},
	{layer: 1, path: "internal/rig/mutation", why: "wrong changes of the code that tests have to find", rig: true},
	{layer: 2, path: "internal/rig/mutation/mutate", why: "tries each of them", rig: true},
	{layer: 1, path: "internal/rig/outcome", why: "what gotestsum leaves out: skipped and flaky tests, times, failures that a later run would hide", rig: true},
	{layer: 0, path: "internal/rig/slow", why: "the parts of make test-slow", rig: true},
	{layer: 0, path: "internal/rig/parts", why: "which tests belong to a part: make test-slow, make quick", rig: true},
	{layer: 0, path: "internal/rig/fuzz", why: "runs all fuzz targets: make fuzz", rig: true},
	{layer: 0, path: "internal/rig/spent", why: "what tests spend time on beside their own work", rig: true},
	{layer: 1, path: "internal/rig/netns", why: "tests in a network namespace of their own", rig: true},
	{layer: 1, path: "internal/rig/bounds", why: "whether a test holds the numbers of the limits", rig: true},
	{layer: 0, path: "internal/rig/growth", why: "whether what a function costs grows with the size of its input", rig: true},
	{layer: 1, path: "internal/rig/golden", why: "tables of decisions in files", rig: true},
	{layer: 6, path: "internal/rig/flows", why: "Orders and Challenges in all situations, and what must be true of each decision", rig: true},
	{layer: 0, path: "internal/rig/reference", why: "the pages of docs/reference, from the code", rig: true},
	{layer: 0, path: "internal/rig/port", why: "ports for what listens later", rig: true},
	{layer: 10, path: "internal/rig/pebble", why: "an ACME server in process", rig: true},
	{layer: 10, path: "internal/rig/dnsserver", why: "an authoritative DNS server in process", rig: true},
	{layer: 10, path: "internal/rig/faulty", why: "a proxy between an ACME client and its CA that breaks what it is told to", rig: true},
	{layer: 10, path: "internal/rig/fakeclock", why: "a clock that leaps over waits", rig: true},

	{layer: 11, path: "internal/rig", why: "one control plane for all tests of a run", rig: true},
	{layer: 11, path: "internal/stories", why: "tests of the whole application"},
	{layer: 11, path: "internal/stories/network", why: "tests of the whole application with IPv6 and with a proxy"},
	{layer: 11, path: "internal/layout", why: "what the repository is held to"},
	{layer: 12, path: "internal/rig/signer/conformance", why: "what every issuer type does", rig: true},
	{layer: 11, path: "cmd/chancery", why: "main"},
}

// outside lists what must not come into the root module, even by way of another
// package: the control plane belongs to standalone, the clouds' SDKs to dnsproviders.
var outside = []string{
	"k8s.io/kubernetes", "k8s.io/apiserver", "go.etcd.io/etcd",
	"github.com/aws", "github.com/Azure", "github.com/AzureAD", "cloud.google.com", "google.golang.org/api", "golang.org/x/oauth2/google",
	"github.com/akamai", "github.com/cloudflare", "github.com/digitalocean", "github.com/go-acme/lego",
}

// The bar in numbers.
const (
	maxFileLines       = 600
	maxPackageLines    = 3500
	maxFunctionLines   = 80
	p95FunctionLines   = 45
	maxReconcileLines  = 60
	maxTestLines       = 150
	maxInterfaceMethod = 4
	maxConstructorArgs = 5
	maxDirectRequires  = 25
)

// vagueNames say nothing about what a package is for.
var vagueNames = []string{
	"util", "utils", "common", "helper", "helpers", "types", "manager", "managers", "misc", "shared", "base",
}
