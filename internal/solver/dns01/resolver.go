package dns01

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"
	lru "k8s.io/apimachinery/pkg/util/cache"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/egress"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/limits"
)

// Options configure a Resolver.
type Options struct {
	// Nameservers are the recursive servers, host:port or https:// (DNS over HTTPS, RFC 8484); at least one. They are
	// asked in order, each as soon as those before it fail or are silent for a moment.
	Nameservers []string
	// RecursiveOnly looks for records at Nameservers only, for networks that let no query out to authoritative servers.
	RecursiveOnly bool
	// Quorum is how many of the servers have to answer a record, if there are more of them; 0 means all.
	Quorum int
	// AuthoritativePort is where authoritative servers listen; 0 means 53.
	AuthoritativePort int
	// Timeout bounds one question to one server, over UDP and TCP; 0 means 10 s.
	Timeout time.Duration
	// Now is the clock of the caches; nil means time.Now.
	Now func() time.Time
	// Dial opens connections to DNS servers; nil means a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// HTTPClient asks DNS over HTTPS servers; nil means one of its own.
	HTTPClient *http.Client
	// UserAgent is what those servers are told; may be empty.
	UserAgent string
	// Egress says which addresses are permitted for all servers but Nameservers: for those of zones, and for those that
	// issuers name. nil means all.
	Egress *egress.Policy
}

// Resolver finds zones, their servers and their records. It is safe for concurrent use.
type Resolver struct {
	// zones and hosts are what was found out: the zone of a name, and the servers of a zone.
	zones, hosts *lru.LRUExpireCache

	o Options
	// trusted are servers that Egress does not judge.
	trusted []string
	// dial and http reach the others.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	http *http.Client
}

// clock is that of the caches.
type clock func() time.Time

// Now implements lru.Clock.
func (c clock) Now() time.Time { return c() }

// NewResolver makes a Resolver.
func NewResolver(o Options) (*Resolver, error) {
	if err := validateNameservers(o.Nameservers); err != nil {
		return nil, err
	}
	o.AuthoritativePort, o.Timeout = cmp.Or(o.AuthoritativePort, 53), cmp.Or(o.Timeout, 10*time.Second)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	if o.HTTPClient == nil {
		o.HTTPClient = (*egress.Policy)(nil).Client(o.Timeout, limits.DNSMessage)
	}
	// A tenant may name any server: its redirects are not followed.
	direct := *o.HTTPClient
	direct.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	o.HTTPClient = &direct
	r := &Resolver{
		o: o, trusted: o.Nameservers, dial: o.Dial, http: o.HTTPClient,
		zones: lru.NewLRUExpireCacheWithClock(limits.Zones, clock(o.Now)), hosts: lru.NewLRUExpireCacheWithClock(limits.ZoneServers, clock(o.Now)),
	}
	if o.Egress != nil {
		r.dial, r.http = o.Egress.Dialer(net.Dialer{}).DialContext, o.Egress.Client(o.Timeout, limits.DNSMessage)
	}
	return r, nil
}

// forChallenge returns the Resolver for a Challenge whose solver names servers. Egress does not judge the servers that
// the operator names, in a ClusterIssuer.
func (r *Resolver) forChallenge(c *acmev1.Challenge, servers []string) *Resolver {
	if c.Spec.IssuerRef.Kind != cmmeta.ClusterIssuerKind {
		return r
	}
	t := *r
	t.trusted = slices.Concat(r.o.Nameservers, servers)
	return &t
}

func validateNameservers(servers []string) error {
	if len(servers) == 0 {
		return errors.New("no recursive DNS server is configured")
	}
	for _, s := range servers {
		if strings.HasPrefix(s, "https://") {
			continue
		}
		host, port, err := net.SplitHostPort(s)
		if err != nil || host == "" {
			return fmt.Errorf("DNS server %q is neither host:port nor an https:// address", s)
		}
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return fmt.Errorf("DNS server %q: %q is not a port", s, port)
		}
	}
	return nil
}

// SystemNameservers returns the servers of a resolv.conf file, or well-known
// public ones if it names none or cannot be read (spec §5.9).
func SystemNameservers(path string) []string {
	c, err := dns.ClientConfigFromFile(path)
	if err != nil || len(c.Servers) == 0 {
		return []string{"8.8.8.8:53", "8.8.4.4:53"}
	}
	out := make([]string, 0, len(c.Servers))
	for _, s := range c.Servers {
		out = append(out, net.JoinHostPort(s, c.Port))
	}
	return out
}

// recursive asks the given servers in order until one answers that there is a record, or that there is none. If a
// server is silent for a moment, recursive asks the next one, too: a search for a zone asks much in little time.
func (r *Resolver) recursive(ctx context.Context, servers []string, name string, qtype uint16) (*dns.Msg, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		from int
		m    *dns.Msg
		err  error
	}
	results, failures := make(chan answer, len(servers)), make([]string, len(servers))
	asked, open, failed := 0, 0, true
	askNext := func() {
		if asked == len(servers) {
			return
		}
		from := asked
		asked, open = asked+1, open+1
		go func() {
			m, err := r.askUsable(ctx, servers[from], name, qtype)
			results <- answer{from, m, err}
		}()
	}
	moment := time.NewTicker(r.o.Timeout / 10)
	defer moment.Stop()
	for askNext(); open > 0; {
		select {
		case <-moment.C:
			askNext()
		case a := <-results:
			if a.err == nil {
				return a.m, nil
			}
			failed = failed && errors.Is(a.err, errServerFailure)
			failures[a.from] = fmt.Sprintf("%s: %s", servers[a.from], egress.Cause(a.err))
			open--
			askNext()
		}
	}
	return nil, &noAnswer{failed, fmt.Sprintf("asked for %s %s: %s", dns.TypeToString[qtype], name, strings.Join(failures, ", "))}
}

// noAnswer says that no server answers whether there is a record. Failed says that each says SERVFAIL.
type noAnswer struct {
	failed bool
	text   string
}

func (e *noAnswer) Error() string {
	if e.failed {
		return e.text + ": the name servers of the zone are out of order, or its signatures (DNSSEC) are wrong"
	}
	return e.text
}

// errServerFailure is the answer SERVFAIL (RFC 1035 §4.1.1).
var errServerFailure = errors.New(dns.RcodeToString[dns.RcodeServerFailure])

// askUsable is ask without the answers that say nothing about the name.
func (r *Resolver) askUsable(ctx context.Context, server, name string, qtype uint16) (*dns.Msg, error) {
	m, err := r.ask(ctx, server, name, qtype, true)
	switch {
	case err != nil:
	case m.Rcode == dns.RcodeServerFailure:
		err = errServerFailure
	case m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError:
		err = errors.New(dns.RcodeToString[m.Rcode])
	}
	return m, err
}

// ask puts one question to one server. One that does not know EDNS, and refuses the question for it, is asked without
// (RFC 6891 §7).
func (r *Resolver) ask(ctx context.Context, server, name string, qtype uint16, recurse bool) (m *dns.Msg, err error) {
	defer fault.Contain(&err)
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	q := new(dns.Msg).SetQuestion(name, qtype)
	q.RecursionDesired = recurse
	q.SetEdns0(4096, false)
	m, err = r.put(ctx, server, q)
	if err == nil && m.IsEdns0() == nil && (m.Rcode == dns.RcodeFormatError || m.Rcode == dns.RcodeNotImplemented) {
		q.Extra = nil
		return r.put(ctx, server, q)
	}
	return m, err
}

// put is ask of one message. Over UDP the question is repeated once, for a packet that was lost, then put over TCP:
// after truncation (RFC 7766 §5) or silence.
func (r *Resolver) put(ctx context.Context, server string, q *dns.Msg) (*dns.Msg, error) {
	if strings.HasPrefix(server, "https://") {
		return r.overHTTPS(ctx, server, q)
	}
	var lastErr error
	for _, network := range []string{"udp", "udp", "tcp"} {
		if lastErr != nil && ctx.Err() != nil {
			break
		}
		m, err := r.exchange(ctx, network, server, q)
		if err == nil && !m.Truncated {
			return m, nil
		}
		if err == nil && network == "udp" {
			return r.exchange(ctx, "tcp", server, q)
		}
		lastErr = err
		if err == nil {
			lastErr = errors.New("the answer is truncated, over TCP too")
		}
	}
	return nil, lastErr
}

func (r *Resolver) exchange(ctx context.Context, network, server string, q *dns.Msg) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout/3)
	defer cancel()
	dial := r.dial
	if slices.Contains(r.trusted, server) {
		dial = r.o.Dial
	}
	conn, err := dial(ctx, network, server)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // nothing is lost with a query that is over
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	client := dns.Client{Net: network, UDPSize: 4096, Timeout: r.o.Timeout / 3}
	m, _, err := client.ExchangeWithConnContext(ctx, q, &dns.Conn{Conn: conn})
	if err != nil {
		return nil, err
	}
	return m, answers(m, q)
}

// answers returns an error unless m is about the question of q (RFC 5452 §9.1). A server that cannot read the question
// does not repeat it.
func answers(m, q *dns.Msg) error {
	if m.Response && len(m.Question) == 0 && m.Rcode == dns.RcodeFormatError {
		return nil
	}
	if !m.Response || len(m.Question) != 1 || m.Question[0].Qtype != q.Question[0].Qtype || !strings.EqualFold(m.Question[0].Name, q.Question[0].Name) {
		return errors.New("the answer is to another question")
	}
	return nil
}

// overHTTPS asks by RFC 8484 §4.1, POST.
func (r *Resolver) overHTTPS(ctx context.Context, server string, q *dns.Msg) (*dns.Msg, error) {
	const mediaType = "application/dns-message"
	q.Id = 0 // RFC 8484 §4.1: friendlier to caches
	packed, err := q.Pack()
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, server, bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", mediaType)
	req.Header.Set("Accept", mediaType)
	req.Header.Set("User-Agent", r.o.UserAgent)
	client := r.http
	if slices.Contains(r.trusted, server) {
		client = r.o.HTTPClient
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // read as far as needed
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("wrong status code '%d', expected '200'", resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, limits.DNSMessage))
	if err != nil {
		return nil, err
	}
	m := new(dns.Msg)
	if err := m.Unpack(body); err != nil {
		return nil, fmt.Errorf("the answer is no DNS message: %w", err)
	}
	return m, answers(m, q)
}

// canonicalAddress joins an IP address with the port of authoritative servers.
func (r *Resolver) canonicalAddress(ip netip.Addr) string {
	return netip.AddrPortFrom(ip, uint16(r.o.AuthoritativePort)).String() //nolint:gosec // checked by configuration: a port
}
