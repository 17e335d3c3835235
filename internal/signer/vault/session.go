package vault

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/hashicorp/vault/api"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/fault/retryafter"
)

// session is an issuer's connection to Vault, and its token.
type session struct {
	server string
	client *api.Client
	// http is what client sends requests by. made is how many bytes the session takes besides those that each takes,
	// without its token, and granted how many bytes that has.
	http    *http.Client
	made    int
	granted atomic.Int64
	// login gets a token; by is the name of its method. A fixed token comes from a Secret: Vault gives no other one.
	login method
	by    string
	fixed bool
	now   func() time.Time
	// leftOut is that of signer.Facts.
	leftOut string

	// turn is held while token and until are used.
	turn  chan struct{}
	token string
	until time.Time // zero: no end
}

// size is how many bytes the session takes besides those that each takes. It does not wait for a login.
func (s *session) size() int { return s.made + int(s.granted.Load()) }

// lease is a token, and how long it is good for; zero means without end.
type lease struct {
	token string
	ttl   time.Duration
}

// method logs in.
type method func(ctx context.Context, s *session) (lease, error)

// send posts a body to Vault once. Other functions of the library would retry.
func (s *session) send(ctx context.Context, path, token string, body map[string]any, into any) error {
	r := s.client.NewRequest(http.MethodPost, "/v1/"+path)
	r.ClientToken = token
	if err := r.SetJSONBody(body); err != nil {
		return err
	}
	// Logical().Write would send PUT.
	resp, err := s.client.RawRequestWithContext(ctx, r) //nolint:staticcheck // as the line above says
	if err != nil {
		return s.asking(resp, err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("%w: %w", errGarbled, err)
	}
	return nil
}

// asking is the error of an answer that asks for a wait.
type asking struct {
	error

	wait time.Duration
}

func (a *asking) Unwrap() error { return a.error }

// asking adds to the error of a call how long its answer asks to wait, if there is an answer, and it asks.
func (s *session) asking(answer *api.Response, err error) error {
	if answer == nil {
		return err
	}
	if wait := retryafter.Read(answer.Header, s.now()); wait > 0 {
		return &asking{err, wait}
	}
	return err
}

// errGarbled is the error of an answer that is not Vault's.
var errGarbled = errors.New("the answer makes no sense")

// write posts data to a path with a token, and returns the data of the answer. A token from an earlier login that Vault
// refuses is replaced once: it may have been revoked, or its uses may be spent.
func (s *session) write(ctx context.Context, path string, data map[string]any) (json.RawMessage, error) {
	refused := ""
	for {
		token, fresh, err := s.obtain(ctx, refused)
		if err != nil {
			return nil, err
		}
		var answer struct {
			Data json.RawMessage `json:"data"`
		}
		if err = s.send(ctx, path, token, data, &answer); err == nil {
			return answer.Data, nil
		}
		var reply *api.ResponseError
		if refused != "" || fresh || s.fixed || !errors.As(err, &reply) || reply.StatusCode != http.StatusForbidden {
			return nil, s.explain(err, stageSign, path)
		}
		refused = token
	}
}

// obtain returns a token other than the refused one, and whether this call has logged in for it. Calls that come during
// a login share its token.
func (s *session) obtain(ctx context.Context, refused string) (token string, fresh bool, err error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return "", false, s.explain(ctx.Err(), stageLogin, "")
	}
	began := s.now()
	if s.token != "" && s.token != refused && (s.until.IsZero() || began.Before(s.until)) {
		return s.token, false, nil
	}
	l, err := s.login(ctx, s)
	if err != nil {
		return "", false, s.explain(err, stageLogin, "")
	}
	s.token, s.until = l.token, time.Time{}
	s.granted.Store(int64(len(l.token)))
	if l.ttl > 0 {
		s.until = began.Add(l.ttl - min(l.ttl/10, maxMargin))
	}
	return s.token, true, nil
}

// maxMargin bounds how long before its end a lease is given up.
const maxMargin = 30 * time.Second

// authenticate posts credentials to a login path.
func (s *session) authenticate(ctx context.Context, path string, body map[string]any) (lease, error) {
	var reply struct {
		Auth struct {
			ClientToken   string `json:"client_token"`
			LeaseDuration int64  `json:"lease_duration"`
		} `json:"auth"`
	}
	if err := s.send(ctx, path, "", body, &reply); err != nil {
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
	var answer *api.Response
	client := s.client.WithNamespace("").WithResponseCallbacks(func(r *api.Response) { answer = r })
	health, err := client.Sys().HealthWithContext(ctx)
	if answer != nil && answer.StatusCode == http.StatusTooManyRequests { // which the library takes for a standby's answer
		err = &api.ResponseError{StatusCode: answer.StatusCode}
	}
	if err != nil {
		return s.explain(s.asking(answer, err), stageLogin, "")
	}
	switch {
	case !health.Initialized:
		return stageLogin.away("Vault %s is not initialised: run vault operator init; it is tried again", s.server)
	case health.Sealed:
		return stageLogin.away("Vault %s is sealed: unseal it; it is tried again", s.server)
	}
	_, _, err = s.obtain(ctx, "")
	return err
}

// session returns the session of an issuer. An error that is no fault is the API server's.
func (s *Signer) session(ctx context.Context, issuer certmanagerv1.GenericIssuer) (*session, error) {
	plan, err := s.plan(ctx, issuer)
	if err != nil {
		return nil, err
	}
	return s.sessions.For(issuer, plan.inputs(), s.Now(), plan.open)
}
