// Package rfc2136 writes challenge records by DNS UPDATE (RFC 2136), signed with TSIG (RFC 8945) where a key is
// configured.
//
// It adds and removes exactly the given records, and leaves others of the same name alone. While a message for a zone
// is under way, further changes of the zone wait. The package then sends them in one message. internal/solver/dns01
// finds the zone.
package rfc2136

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/egress"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/kube/credential"
	"chancery.dev/internal/solver/dns01"
	"chancery.dev/internal/solver/dns01/provider/limit"
)

// tsigFudge is how far the clocks may be apart, in seconds (spec §5.9).
const tsigFudge = 300

// Options are what the operator, not the issuer, decides.
type Options struct {
	// Timeout bounds one attempt; an update over UDP takes up to two. 0 means 5 s.
	Timeout time.Duration
	// Now is the clock that signs; nil means time.Now.
	Now func() time.Time
	// Dial opens the connection; nil means to any address, within the term.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Queues are shared by all Providers whose changes may share a message; nil means by none.
	Queues *Queues
	// Limits bound the messages to a server by a key; nil does not limit them.
	Limits *limit.Limits
	// Namespace is the namespace that updates without a key are for; FromConfig sets it.
	Namespace string
}

// Config is one server and how to talk to it.
type Config struct {
	// Nameserver is an IP address or host, with or without a port (default 53); IPv6 with a port in brackets.
	Nameserver string
	// Key signs the updates; nil sends them unsigned.
	Key *Key
	// TCP sends updates over TCP.
	TCP bool
	// KeySource says where the key comes from, for messages: "Secret ns/name".
	KeySource string
}

// Provider implements dns01.Provider.
type Provider struct {
	server, network string
	key             *Key
	keySource       string
	o               Options
}

var _ dns01.Provider = (*Provider)(nil)

// New makes a Provider.
func New(c Config, o Options) (*Provider, error) {
	server, err := address(c.Nameserver)
	if err != nil {
		return nil, err
	}
	p := &Provider{server: server, network: "udp", key: c.Key, keySource: c.KeySource, o: o}
	if p.o.Timeout = cmp.Or(o.Timeout, 5*time.Second); c.TCP {
		p.network = "tcp"
	}
	if p.o.Now == nil {
		p.o.Now = time.Now
	}
	if p.o.Dial == nil {
		p.o.Dial = (*egress.Policy)(nil).Dialer(net.Dialer{}).DialContext
	}
	if p.o.Queues == nil {
		p.o.Queues = NewQueues()
	}
	return p, nil
}

// FromConfig makes a Provider of the API's configuration. namespace is where the Secret is.
func FromConfig(ctx context.Context, c *acmev1.RFC2136Provider, namespace string, secrets credential.Reader, o Options) (*Provider, error) {
	config := Config{Nameserver: c.Nameserver, TCP: strings.EqualFold(string(c.Protocol), string(acmev1.RFC2136TCP))}
	o.Namespace = namespace
	ref := c.TSIGSecretSecretRef
	switch {
	case (c.TSIGKeyName == "") != (ref.Name == ""):
		return nil, fault.Terminal(dns01.ReasonInvalidConfig,
			"rfc2136: tsigKeyName and tsigSecretSecretRef go together: set both or none")
	case c.TSIGKeyName != "":
		config.KeySource = fmt.Sprintf("Secret %s/%s, entry %q", namespace, ref.Name, ref.Key)
		secret, err := credential.Value(ctx, secrets, namespace, ref.Name, ref.Key)
		if err != nil {
			return nil, fault.ClassConfiguration.After(dns01.MendPeriod, dns01.ReasonSecret, "rfc2136: TSIG key %q: %w", c.TSIGKeyName, err)
		}
		if config.Key, err = NewKey(c.TSIGKeyName, c.TSIGAlgorithm, secret); err != nil {
			return nil, fault.ClassConfiguration.After(dns01.MendPeriod, dns01.ReasonSecret, "rfc2136: TSIG key %q of %s: %w", c.TSIGKeyName, config.KeySource, err)
		}
	}
	p, err := New(config, o)
	if err != nil {
		return nil, fault.Terminal(dns01.ReasonInvalidConfig, "%w", err)
	}
	return p, nil
}

// address completes a name server with the default port.
func address(s string) (string, error) {
	const defaultPort = "53"
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		host, port = strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"), defaultPort
		if strings.Contains(host, ":") && net.ParseIP(host) == nil {
			return "", fmt.Errorf("rfc2136: nameserver %q is no address: write IP, IP:port, or [IPv6]:port", s)
		}
	}
	if port == "" {
		port = defaultPort
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil || host == "" || strings.ContainsAny(host, "[]") {
		return "", fmt.Errorf("rfc2136: nameserver %q is no address: write IP, IP:port, or [IPv6]:port", s)
	}
	return net.JoinHostPort(host, port), nil
}

// Present adds the record (RFC 2136 §2.5.1). The server ignores a record that exists.
func (p *Provider) Present(ctx context.Context, r dns01.Record) error {
	return p.change(ctx, r, false)
}

// CleanUp removes the record (RFC 2136 §2.5.4). The server ignores a record that does not exist.
func (p *Provider) CleanUp(ctx context.Context, r dns01.Record) error {
	return p.change(ctx, r, true)
}

func record(r dns01.Record) dns.RR {
	return &dns.TXT{
		Hdr: dns.RR_Header{Name: r.FQDN, Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: uint32(r.TTL)}, //nolint:gosec // a TTL
		Txt: []string{r.Value},
	}
}

// send sends an update. Over UDP it is repeated once, which is harmless: updates
// of this package are idempotent. Without a reply there is an error; see exchange.
func (p *Provider) send(ctx context.Context, m *dns.Msg) (*dns.Msg, error) {
	attempts := 1
	if p.network == "udp" {
		attempts = 2
	}
	var lastErr error
	for range attempts {
		reply, err := p.exchange(ctx, m.Copy())
		if reply != nil {
			return reply, err
		}
		lastErr = err
		if ctx.Err() != nil {
			break
		}
	}
	return nil, lastErr
}

// exchange sends one message. A reply may come with an error: its signature is wrong, or it is broken, or it answers
// another message.
func (p *Provider) exchange(ctx context.Context, m *dns.Msg) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	conn, err := p.o.Dial(ctx, p.network, p.server)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // nothing is lost with an update that is over
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	client := dns.Client{Net: p.network, Timeout: p.o.Timeout}
	if p.key != nil {
		client.TsigProvider = p.key
		m.SetTsig(p.key.Name, p.key.Algorithm, tsigFudge, p.o.Now().Unix())
	}
	reply, _, err := client.ExchangeWithConnContext(ctx, m, &dns.Conn{Conn: conn, TsigProvider: client.TsigProvider})
	if reply == nil && err == nil {
		err = errors.New("no reply")
	}
	return reply, err
}

// judge returns the error that a reply means.
func (p *Provider) judge(reply *dns.Msg, err error, r dns01.Record) error {
	var class fault.Class // none, where another name or zone may fare better
	refused := func(format string, args ...any) error {
		return class.After(dns01.MendPeriod, dns01.ReasonRefused, "rfc2136: %s refuses the update of %s: %w", p.server, r.FQDN, fmt.Errorf(format, args...))
	}
	t := reply.IsTsig()
	switch {
	case p.key != nil && t != nil && t.Error != dns.RcodeSuccess:
		class = fault.ClassCredential
		return refused("%s", p.tsigProblem(int(t.Error)))
	case reply.Rcode == dns.RcodeNotAuth && p.key == nil:
		return refused("NOTAUTH: it is not the primary of zone %s, or it wants a TSIG key: "+
			"check nameserver, or set tsigKeyName and tsigSecretSecretRef", r.Zone)
	case reply.Rcode == dns.RcodeNotAuth:
		return refused("NOTAUTH: it is not the primary of zone %s, or does not take TSIG key %q of %s: check both",
			r.Zone, p.key.Name, p.keySource)
	case reply.Rcode == dns.RcodeRefused && p.key == nil:
		return refused("REFUSED: it does not allow unsigned updates: set tsigKeyName and tsigSecretSecretRef")
	case reply.Rcode == dns.RcodeRefused:
		return refused("REFUSED: its policy does not allow TSIG key %q to change TXT records in zone %s", p.key.Name, r.Zone)
	case reply.Rcode != dns.RcodeSuccess:
		if reply.Rcode == dns.RcodeServerFailure {
			class = fault.ClassUnavailable
		}
		return refused("%s", dns.RcodeToString[reply.Rcode])
	case err != nil && p.key == nil:
		return refused("its answer is none to this update: %w", err)
	case err != nil:
		return refused("its answer is not signed as it should be by TSIG key %q: %w", p.key.Name, err)
	case p.key != nil && t == nil:
		return refused("its answer is not signed, although the update was, by TSIG key %q", p.key.Name)
	}
	return nil
}

// tsigProblem explains a TSIG error code (RFC 8945 §5.2).
func (p *Provider) tsigProblem(code int) string {
	switch code {
	case dns.RcodeBadKey:
		return fmt.Sprintf("BADKEY: it does not know TSIG key %q with %s: "+
			"check tsigKeyName and tsigAlgorithm against the server's", p.key.Name, p.key.Algorithm)
	case dns.RcodeBadSig:
		return fmt.Sprintf("BADSIG: the secret of TSIG key %q (%s) is not the server's, or the algorithm is not: correct it there",
			p.key.Name, p.keySource)
	case dns.RcodeBadTime:
		return fmt.Sprintf("BADTIME: its clock is more than %d s away from ours: set the clocks", tsigFudge)
	}
	return fmt.Sprintf("TSIG error %d with key %q of %s", code, p.key.Name, p.keySource)
}
