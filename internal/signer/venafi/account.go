package venafi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Venafi/vcert/v5/pkg/certificate"
	"github.com/Venafi/vcert/v5/pkg/endpoint"
	"github.com/Venafi/vcert/v5/pkg/venafi/cloud"
	"github.com/Venafi/vcert/v5/pkg/venafi/tpp"

	"chancery.dev/internal/egress"
)

// scope is all that is asked of TPP for a username and password (spec appendix D).
const scope = "certificate:manage"

// earlyBy is how long before its end a token is renewed.
const earlyBy = time.Minute

// connector is what is used of the library's connectors.
type connector interface {
	ReadZoneConfiguration() (*endpoint.ZoneConfiguration, error)
	GenerateRequest(zone *endpoint.ZoneConfiguration, req *certificate.Request) error
	RequestCertificate(req *certificate.Request) (string, error)
	RetrieveCertificate(req *certificate.Request) (*certificate.PEMCollection, error)
}

// session is an access in use, with what it was granted.
type session struct {
	access
	transport *egress.Transport
	now       func() time.Time
	observe   func(call string, status int, took time.Duration)
	userAgent string
	open      func(a *session, x *exchange) (connector, error)

	// turn is held during a login, and while granted is used: other calls wait for the token.
	turn    chan struct{}
	granted grant
	// held is how many bytes granted takes.
	held atomic.Int64
	// comparing is the Signer's.
	comparing *turns
}

// grant is what a login has brought.
type grant struct {
	token, refresh string
	// expires is when token does; zero if the server did not say.
	expires time.Time
	// user is a connector that has proved its API key, by an answer of so many bytes, of which it keeps what it knows.
	user   *cloud.Connector
	answer int
}

// size is how many bytes the grant takes.
func (g *grant) size() int { return len(g.token) + len(g.refresh) + bytesPerAnswer*g.answer }

// do makes a call, which has several steps. If the server refuses the login during the call, do logs in again and
// repeats the call once.
func (a *session) do(ctx context.Context, call func(c connector, x *exchange) error) error {
	x := &exchange{ctx: ctx, transport: a.transport, now: a.now, observe: a.observe, comparing: a.comparing}
	defer func() { x.body = nil }() // what the library keeps of a login leads to the exchange
	for again := false; ; again = true {
		err := guarded(func() error {
			c, err := a.open(a, x)
			if err != nil {
				return err
			}
			return call(c, x)
		})
		if err == nil {
			return nil
		}
		if x.step == stepLogin || x.status != http.StatusUnauthorized || again {
			return a.classify(x, err)
		}
		if err := a.logout(x); err != nil {
			return a.classify(x, err)
		}
	}
}

// hold waits for the turn, until the call ends.
func (a *session) hold(x *exchange) (release func(), err error) {
	select {
	case a.turn <- struct{}{}:
		return func() {
			a.held.Store(int64(a.granted.size()))
			<-a.turn
		}, nil
	case <-x.ctx.Done():
		x.err = x.ctx.Err()
		return nil, x.err
	}
}

// guarded turns a panic into an error: the library panics if an answer is not as it expects, for example if a policy
// has an unknown key algorithm.
func guarded(call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the server's answer is not one that can be handled: %v", p)
		}
	}()
	return call()
}

// connect returns a connection that is logged in. Of the library's connectors, only Cloud's makes a call for that.
func (a *session) connect(x *exchange) (connector, error) {
	x.step = stepLogin
	release, err := a.hold(x)
	if err != nil {
		return nil, err
	}
	defer release()
	switch a.product {
	case productTPP:
		c, err := tpp.NewConnector(a.server, a.zone, false, nil)
		if err != nil {
			return nil, err
		}
		c.SetUserAgent(a.userAgent)
		c.SetHTTPClient(x.client())
		if err := a.loginTPP(c); err != nil {
			return nil, err
		}
		// Without a client of its own, the connector takes the token as it is.
		c.SetHTTPClient(nil)
		if err := c.Authenticate(&endpoint.Authentication{AccessToken: a.granted.token}); err != nil {
			return nil, err
		}
		c.SetHTTPClient(x.client())
		return c, nil
	case productCloud:
		return a.connectCloud(x, func(c *cloud.Connector) error {
			return c.Authenticate(&endpoint.Authentication{APIKey: a.apiKey})
		})
	default:
		if a.granted.token == "" || a.expired() {
			if err := a.loginNGTS(x); err != nil {
				return nil, err
			}
			a.granted.user = nil
		}
		return a.connectCloud(x, func(c *cloud.Connector) error {
			return c.Authenticate(&endpoint.Authentication{AccessToken: a.granted.token})
		})
	}
}

// connectCloud returns a copy of the connector that is logged in, with a client for this call.
func (a *session) connectCloud(x *exchange, login func(*cloud.Connector) error) (connector, error) {
	if a.granted.user == nil {
		c, err := cloud.NewConnector(a.server, a.zone, false, nil)
		if err != nil {
			return nil, err
		}
		c.SetUserAgent(a.userAgent)
		c.SetHTTPClient(x.client())
		if err := login(c); err != nil {
			return nil, err
		}
		a.granted.user, a.granted.answer = c, len(x.body)
	}
	c := *a.granted.user
	c.SetHTTPClient(x.client())
	return &c, nil
}

func (a *session) expired() bool {
	return !a.granted.expires.IsZero() && a.now().Add(earlyBy).After(a.granted.expires)
}

// logout forgets what was granted, but not what renews it.
func (a *session) logout(x *exchange) error {
	release, err := a.hold(x)
	if err != nil {
		return err
	}
	defer release()
	a.granted = grant{refresh: a.granted.refresh}
	return nil
}

// loginTPP gets a token. A token from the Secret is verified, which tells when it ends.
func (a *session) loginTPP(c *tpp.Connector) error {
	if a.granted.token != "" && (a.accessToken != "" || !a.expired()) {
		return nil
	}
	if a.accessToken != "" {
		verified, err := c.VerifyAccessToken(&endpoint.Authentication{AccessToken: a.accessToken})
		if err != nil {
			return err
		}
		a.granted = grant{token: a.accessToken}
		if t, err := time.Parse(time.RFC3339, verified.Expires); err == nil {
			a.granted.expires = t
		}
		return nil
	}
	if a.granted.refresh != "" {
		got, err := c.RefreshAccessToken(&endpoint.Authentication{RefreshToken: a.granted.refresh, ClientId: a.clientID})
		if err == nil && got.Access_token != "" {
			a.granted = grant{token: got.Access_token, refresh: got.Refresh_token, expires: at(int64(got.Expires))}
			return nil
		}
		a.granted.refresh = "" // it has ended, too: log in with the password
	}
	got, err := c.GetRefreshToken(&endpoint.Authentication{User: a.username, Password: a.password, ClientId: a.clientID, Scope: scope})
	if err != nil {
		return err
	}
	if got.Access_token == "" {
		return errors.New("the server gave no access token")
	}
	a.granted = grant{token: got.Access_token, refresh: got.Refresh_token, expires: at(int64(got.Expires))}
	return nil
}

// at returns the time of a Unix time stamp, zero of none.
func at(seconds int64) time.Time {
	if seconds <= 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

// loginNGTS has client credentials exchanged for a token (RFC 6749 §4.4). This version
// of the library has no NGTS, whose API is Cloud's but for the token.
func (a *session) loginNGTS(x *exchange) error {
	form := url.Values{"grant_type": {"client_credentials"}, "scope": {a.scope}}
	req, err := http.NewRequestWithContext(x.ctx, http.MethodPost, a.tokenEndpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("User-Agent", a.userAgent)
	req.SetBasicAuth(a.clientID, a.clientSecret) // as they are: the service does not decode them
	resp, err := x.client().Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // it is in memory
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", a.tokenEndpoint, resp.Status)
	}
	granted, err := readGrant(x.body, a.now())
	if err != nil {
		return fmt.Errorf("%s %w", a.tokenEndpoint, err)
	}
	a.granted = granted
	return nil
}

// longestGrant is the longest life of a token that is believed, in seconds: a number that is too large for a time would
// be one in the past.
const longestGrant = 10 * 365 * 24 * 3600

// readGrant reads an answer with a token (RFC 6749 §5.1).
func readGrant(body []byte, now time.Time) (grant, error) {
	var got struct {
		AccessToken string `json:"access_token"`
		TokenType   string `json:"token_type"`
		ExpiresIn   int64  `json:"expires_in"`
	}
	if err := json.Unmarshal(body, &got); err != nil {
		return grant{}, fmt.Errorf("gave a token that does not parse: %w", err)
	}
	if got.AccessToken == "" || !strings.EqualFold(got.TokenType, "Bearer") {
		return grant{}, errors.New("gave no bearer token")
	}
	granted := grant{token: got.AccessToken}
	if got.ExpiresIn > 0 {
		granted.expires = now.Add(time.Duration(min(got.ExpiresIn, longestGrant)) * time.Second)
	}
	return granted, nil
}

// verify logs in and reads the zone. It returns the end of a token that cannot be renewed; zero means that there is
// none.
func (a *session) verify(ctx context.Context) (time.Time, error) {
	var ends time.Time
	err := a.do(ctx, func(c connector, x *exchange) error {
		x.step = stepZone
		if _, err := c.ReadZoneConfiguration(); err != nil || a.accessToken == "" {
			return err
		}
		release, err := a.hold(x)
		if err != nil {
			return err
		}
		defer release()
		ends = a.granted.expires
		return nil
	})
	return ends, err
}

// request hands an order in and returns the pickup id.
func (a *session) request(ctx context.Context, o order) (string, error) {
	var id string
	err := a.do(ctx, func(c connector, x *exchange) error {
		x.step = stepZone
		zone, err := c.ReadZoneConfiguration()
		if err != nil {
			return err
		}
		req, err := o.wire()
		if err != nil {
			return err
		}
		x.step = stepPolicy
		if err := o.allow(x, zone, req, policyTimeout); err != nil {
			return err
		}
		if err := c.GenerateRequest(zone, req); err != nil {
			return err
		}
		x.step = stepRequest
		// An enrollment of the same name that failed before would fail this one too.
		if t, ok := c.(*tpp.Connector); ok {
			if err := t.ResetCertificate(req, false); err != nil && !tpp.IsCertNotFound(err) {
				return err
			}
		}
		id, err = c.RequestCertificate(req)
		if err == nil && id == "" {
			err = errors.New("the server gave no pickup id")
		}
		return err
	})
	return id, err
}

// retrieve asks for the certificate by its pickup id.
func (a *session) retrieve(ctx context.Context, o order, id string) (*certificate.PEMCollection, error) {
	var got *certificate.PEMCollection
	err := a.do(ctx, func(c connector, x *exchange) error {
		x.step = stepRetrieve
		req, err := o.wire()
		if err != nil {
			return err
		}
		req.PickupID = id // and no timeout: the library would sleep
		got, err = c.RetrieveCertificate(req)
		return err
	})
	return got, err
}
