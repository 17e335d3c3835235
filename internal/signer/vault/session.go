package vault

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/hashicorp/vault/api"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
)

// session is how an issuer reaches Vault: a connection, and what logs in on it.
type session struct {
	server string
	client *api.Client
	// login gets a token; by names the method, for people. A token that the issuer
	// brings is not asked for anew when Vault refuses it.
	login method
	by    string
	fixed bool
	now   func() time.Time

	// turn is held by whoever uses token and until.
	turn  chan struct{}
	token string
	until time.Time // zero: no end
}

// lease is a token, and how long it is good for; zero means without end.
type lease struct {
	token string
	ttl   time.Duration
}

// method logs in.
type method func(ctx context.Context, s *session) (lease, error)

// message is one request to Vault.
type message struct {
	method, path, token string
	body                map[string]any
}

// send speaks to Vault once. Its library would retry and would take settings from the
// environment: neither is wanted here.
func (s *session) send(ctx context.Context, m message, into any) error {
	r := s.client.NewRequest(m.method, "/v1/"+m.path)
	r.ClientToken = m.token
	if err := r.SetJSONBody(m.body); err != nil {
		return err
	}
	// Logical().Write would send PUT.
	resp, err := s.client.RawRequestWithContext(ctx, r) //nolint:staticcheck // as the line above says
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("%w: %w", errGarbled, err)
	}
	return nil
}

// errGarbled is what does not look like Vault.
var errGarbled = errors.New("the answer makes no sense")

// call does something with a token. A token from an earlier login that Vault refuses
// is replaced once: it may have been revoked, or its uses may be spent.
func (s *session) call(ctx context.Context, at stage, do func(token string) (json.RawMessage, error)) (json.RawMessage, error) {
	token, fresh, err := s.obtain(ctx, "")
	if err != nil {
		return nil, err
	}
	out, err := do(token)
	if err == nil {
		return out, nil
	}
	var reply *api.ResponseError
	if fresh || s.fixed || !errors.As(err, &reply) || reply.StatusCode != http.StatusForbidden {
		return nil, &staged{at, err}
	}
	if token, _, err = s.obtain(ctx, token); err != nil {
		return nil, err
	}
	if out, err = do(token); err != nil {
		return nil, &staged{at, err}
	}
	return out, nil
}

// obtain returns a token other than the refused one, and whether it is of a login just
// now. Calls that come while one logs in share its token.
func (s *session) obtain(ctx context.Context, refused string) (token string, fresh bool, err error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return "", false, &staged{stageLogin, ctx.Err()}
	}
	began := s.now()
	if s.token != "" && s.token != refused && (s.until.IsZero() || began.Before(s.until)) {
		return s.token, false, nil
	}
	l, err := s.login(ctx, s)
	if err != nil {
		return "", false, &staged{stageLogin, err}
	}
	s.token, s.until = l.token, time.Time{}
	if l.ttl > 0 {
		s.until = began.Add(l.ttl - min(l.ttl/10, maxMargin))
	}
	return s.token, true, nil
}

// maxMargin is how long before its end a lease is given up at most.
const maxMargin = 30 * time.Second

// authenticate posts credentials to a login path.
func (s *session) authenticate(ctx context.Context, path string, body map[string]any) (lease, error) {
	var reply struct {
		Auth struct {
			ClientToken   string `json:"client_token"`
			LeaseDuration int64  `json:"lease_duration"`
		} `json:"auth"`
	}
	if err := s.send(ctx, message{method: http.MethodPost, path: path, body: body}, &reply); err != nil {
		return lease{}, err
	}
	if reply.Auth.ClientToken == "" {
		return lease{}, fmt.Errorf("%w: the login at %s gave no token", errGarbled, path)
	}
	return lease{reply.Auth.ClientToken, time.Duration(reply.Auth.LeaseDuration) * time.Second}, nil
}

// verify checks that Vault is in order and that the login works.
func (s *session) verify(ctx context.Context) error {
	// Health is the server's, not that of a namespace (spec appendix D).
	health, err := s.client.WithNamespace("").Sys().HealthWithContext(ctx)
	if err != nil {
		return s.explain(&staged{stageLogin, err}, "")
	}
	switch {
	case !health.Initialized:
		return stageLogin.away("Vault %s is not initialised: run vault operator init; it is tried again", s.server)
	case health.Sealed:
		return stageLogin.away("Vault %s is sealed: unseal it; it is tried again", s.server)
	}
	if _, _, err := s.obtain(ctx, ""); err != nil {
		return s.explain(err, "")
	}
	return nil
}

// session returns how an issuer reaches Vault now. Its errors are troubles, but for an
// API server that is away.
func (s *Signer) session(ctx context.Context, issuer certmanagerv1.GenericIssuer) (*session, error) {
	plan, err := s.plan(ctx, issuer)
	if err != nil {
		return nil, err
	}
	return s.sessions.For(issuer.GetUID(), plan.inputs(), s.Now(), plan.open)
}
