// Package wire defines the provider protocol: the messages between Chancery and a program that writes DNS records. Each
// message is one JSON object on one line, over standard input and output or over a Unix socket. docs/dns-providers.md
// describes the protocol for the authors of such programs. Serve implements the program's side of the protocol in Go.
//
// The package starts no process and knows no provider. It imports no other package of Chancery: a program that imports
// this package does not get the dependencies of Chancery.
package wire

// Version is the version of the protocol. A later one only adds fields.
const Version = 1

// MaxLine bounds a message, in octets.
const MaxLine = 1 << 20

// Op says what a request asks for.
type Op string

// The operations. A connection begins with capabilities and configure, in this
// order; present and cleanup follow, one at a time.
const (
	OpCapabilities Op = "capabilities"
	OpConfigure    Op = "configure"
	OpPresent      Op = "present"
	OpCleanUp      Op = "cleanup"
)

// Environment lists the environment variables that a program may use without Configuration.Ambient: the search path,
// the language, the time zone, and the operator's proxies and CAs. All others may hold credentials.
func Environment() []string {
	return []string{
		"PATH", "LANG", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR",
		"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
	}
}

// Request is one line to the program. Fields that its operation has no use for are left out.
type Request struct {
	// ID comes back with the response.
	ID int64 `json:"id"`
	// Op says what to do.
	Op Op `json:"op"`

	Configuration
	Record
}

// Configuration is what configure carries.
type Configuration struct {
	// Provider is the name of the DNS provider, for programs that have several.
	Provider string `json:"provider,omitempty"`
	// Config are settings that are no secrets, by name.
	Config map[string]string `json:"config,omitempty"`
	// Secrets are credentials, by name. They MUST NOT appear in output of any kind.
	Secrets map[string]string `json:"secrets,omitempty"`
	// Ambient allows credentials that are not in Secrets: those of the machine.
	Ambient bool `json:"ambient,omitempty"`
	// Egress says which addresses the program may connect to. Without it, all are permitted: a ClusterIssuer is used, or
	// the controller is older than this field.
	Egress *Egress `json:"egress,omitempty"`
}

// Egress says which addresses may be connected to on behalf of a tenant, as ranges such as 10.0.0.0/8. A program SHOULD
// judge the address of each connection when it makes it: the tenant may own the names that it connects to.
type Egress struct {
	// Allow are the only addresses, unless it is empty. Those that are off limits by default, such as loopback, stay so
	// unless a range of Allow names them or a part of them.
	Allow []string `json:"allow,omitempty"`
	// Deny are further addresses that are never connected to.
	Deny []string `json:"deny,omitempty"`
}

// Record is what present and cleanup carry.
type Record struct {
	// Domain is the name that the challenge is for, without wildcard label and trailing dot.
	Domain string `json:"domain,omitempty"`
	// Token of the challenge.
	Token string `json:"token,omitempty"`
	// KeyAuthorization is what Value is the digest of (RFC 8555 §8.4).
	KeyAuthorization string `json:"keyAuthorization,omitempty"`
	// FQDN is where the record stands, CNAMEs followed if so configured, with the trailing dot.
	FQDN string `json:"fqdn,omitempty"`
	// Zone is the zone that FQDN is in, with the trailing dot.
	Zone string `json:"zone,omitempty"`
	// Value is the text of the record.
	Value string `json:"value,omitempty"`
	// TTL of the record, in seconds.
	TTL int `json:"ttl,omitempty"`
	// Missed says that the record was written, and self checks have not found it. It is not part of the protocol.
	Missed bool `json:"-"`
}

// Class says what kind of failure an error is.
type Class string

// The classes of failures. Any other, and none, is a failure of this one request.
const (
	// ClassCredential: the provider does not accept the credentials.
	ClassCredential Class = "credential"
	// ClassThrottled: the provider wants fewer requests.
	ClassThrottled Class = "throttled"
	// ClassConfig: the configuration cannot work as it is.
	ClassConfig Class = "config"
)

// Response is one line from the program.
type Response struct {
	// ID is that of the request.
	ID int64 `json:"id"`
	// OK tells whether it was done.
	OK bool `json:"ok"`
	// Error says, for a person, why not.
	Error string `json:"error,omitempty"`
	// Class says what kind of failure it was.
	Class Class `json:"class,omitempty"`
	// RetryAfter is how long to wait before the next request, in seconds; 0 if unknown.
	RetryAfter int `json:"retryAfter,omitempty"`

	Capabilities
}

// Capabilities is what the answer to capabilities carries. All of it is optional.
type Capabilities struct {
	// Protocol is the version that the program speaks.
	Protocol int `json:"protocol,omitempty"`
	// Providers are the names that configure takes; none means that it does not look.
	Providers []string `json:"providers,omitempty"`
	// Stateful, in the answer to configure, asks not to be ended between present and
	// cleanup: the program remembers what it takes to clean up.
	Stateful bool `json:"stateful,omitempty"`
}
