package http01

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"chancery.dev/internal/egress"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/solver"
)

// maxRedirects is how many redirects are followed, as many as CAs do.
const maxRedirects = 10

// The reasons of this package's faults.
const (
	// ReasonNotReachable: no server answers the controller.
	ReasonNotReachable = "NotReachable"
	// ReasonWrongAnswer: a server other than the responder answers.
	ReasonWrongAnswer = "WrongAnswer"
)

// CheckOptions configure the self check.
type CheckOptions struct {
	// Port that the CA will connect to; 0 means 80.
	Port int
	// UserAgent of the requests.
	UserAgent string
	// Timeout bounds one check, redirects included; 0 means 10 s.
	Timeout time.Duration
	// Nameservers resolve names, in turn, host:port each; none means the system's.
	Nameservers []string
	// Egress judges each address, after DNS: any tenant decides where a name or a redirect leads.
	Egress *egress.Policy
	// Proxy returns the proxy for a request, for example http.ProxyFromEnvironment;
	// nil means none. Egress judges the addresses of the host that the proxy is asked for.
	Proxy func(*http.Request) (*url.URL, error)
	// Dial connects to an address (ip:port); nil means a net.Dialer.
	Dial DialFunc
	// Passes is how many times in a row all addresses have to give the right answer; 0 means 1. A load balancer may
	// lead only some connections to the responder.
	Passes int
	// Pause is the time between two passes; 0 means 2 s.
	Pause time.Duration
}

// client makes the client of one request, whose connections dial makes.
func (s *Solver) client(dial DialFunc) *http.Client {
	transport := func(proxy func(*http.Request) (*url.URL, error), dial DialFunc) *http.Transport {
		return &http.Transport{
			Proxy:             proxy,
			DialContext:       dial,
			DisableKeepAlives: true,
			// CAs do not verify it either: it may be the certificate that is to be replaced.
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // RFC 8555 §8.3, see above
		}
	}
	return &http.Client{
		Transport: egress.NewTransport(transport(nil, dial), transport(s.o.Proxy, nil), func(ctx context.Context, host string) error {
			return s.o.Egress.Target(ctx, host, s.dialer.addresses)
		}, limits.SelfCheckBody),
		CheckRedirect: func(_ *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return fmt.Errorf("more than %d redirects", maxRedirects)
			}
			return nil
		},
	}
}

// target returns the URL at which a CA looks for the answer.
func (s *Solver) target(dnsName, token string) string {
	host := dnsName
	if s.o.Port != 80 {
		host = net.JoinHostPort(dnsName, strconv.Itoa(s.o.Port))
	} else if ip, err := netip.ParseAddr(dnsName); err == nil && ip.Is6() {
		host = "[" + dnsName + "]"
	}
	return "http://" + host + wellKnown + token
}

// check returns nil if the answer is right, as often in a row as the options say, or a fault.After that says what the
// answer was.
func (s *Solver) check(ctx context.Context, dnsName, token, want string) error {
	for pass := 1; ; pass++ {
		err := s.once(ctx, dnsName, token, want)
		if err != nil || pass == s.o.Passes {
			return err
		}
		select {
		case <-time.After(s.o.Pause):
		case <-ctx.Done():
			return notReachable("GET %s: %d of %d answers in a row were right before the time was up", s.target(dnsName, token), pass, s.o.Passes)
		}
	}
}

// once asks at each address of the name. A proxy chooses the address itself: it is asked once.
func (s *Solver) once(ctx context.Context, dnsName, token, want string) error {
	target := s.target(dnsName, token)
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody)
	if err != nil {
		return fault.Terminal(solver.ReasonNotConfigured, "no HTTP-01 challenge is possible for %q: %w", dnsName, err)
	}
	req.Header.Set("User-Agent", s.o.UserAgent)
	if s.o.Proxy != nil {
		if proxy, err := s.o.Proxy(req); err != nil || proxy != nil {
			return s.ask(req, s.dialer.DialContext, "", want)
		}
	}
	return s.dialer.Each(ctx, dnsName, func(ctx context.Context, dial DialFunc, where string) error {
		return s.ask(req.Clone(ctx), dial, where, want)
	})
}

// ask makes one request. The body of the answer is not quoted: whoever may create a Challenge could read servers that
// only the controller can reach.
func (s *Solver) ask(req *http.Request, dial DialFunc, where, want string) error {
	target := req.URL.String()
	where = target + where
	resp, err := s.client(dial).Do(req)
	if err != nil {
		return notReachable("GET %s: %s", where, causeOf(err))
	}
	defer func() { _ = resp.Body.Close() }() // read as far as needed
	if final := resp.Request.URL; final.String() != target {
		// Without path and query, which are the server's own words.
		where += ", redirected to " + final.Scheme + "://" + final.Host
	}
	if resp.StatusCode != http.StatusOK {
		return wrongAnswer("GET %s: wrong status code '%d', expected '200'", where, resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(len(want))+1))
	if err != nil {
		return notReachable("GET %s: reading the answer: %s", where, causeOf(err))
	}
	if string(body) != want {
		return wrongAnswer("GET %s: the answer is not the expected one, '%s': something else answers for this host or path", where, want)
	}
	return nil
}

func notReachable(format string, args ...any) error {
	return fault.After(solver.CheckPeriod, ReasonNotReachable, format, args...)
}

func wrongAnswer(format string, args ...any) error {
	return fault.After(solver.CheckPeriod, ReasonWrongAnswer, format, args...)
}

// causeOf describes an error without the URL that http.Client adds.
func causeOf(err error) string {
	var urlErr *url.Error
	if errors.As(err, &urlErr) && !urlErr.Timeout() {
		err = urlErr.Err
	}
	return egress.Cause(err)
}
