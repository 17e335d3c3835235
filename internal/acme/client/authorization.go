package client

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
)

// maxChallenges bounds how many ways to prove control a server may offer: there are five types.
const maxChallenges = 20

// GetAuthorization reads an authorization (RFC 8555 §7.5).
func (c *Client) GetAuthorization(ctx context.Context, url string) (*acme.Authorization, error) {
	return c.postAuthorization(ctx, ActionGetAuthorization, url, nil)
}

// DeactivateAuthorization gives an authorization up (RFC 8555 §7.5.2): one left pending counts against the CA's limits.
func (c *Client) DeactivateAuthorization(ctx context.Context, url string) (*acme.Authorization, error) {
	return c.postAuthorization(ctx, ActionDeactivateAuthorization, url, struct {
		Status acme.Status `json:"status"`
	}{acme.StatusDeactivated})
}

// AcceptChallenge tells the server that the proof is in place (RFC 8555 §7.5.1: POST {}). It is
// idempotent while the challenge is pending or processing.
func (c *Client) AcceptChallenge(ctx context.Context, url string) error {
	_, err := c.postKID(ctx, call{action: ActionAcceptChallenge, url: url}, struct{}{})
	return err
}

func (c *Client) postAuthorization(ctx context.Context, action Action, url string, payload any) (*acme.Authorization, error) {
	r, err := c.postKID(ctx, call{action: action, url: url}, payload)
	if err != nil {
		return nil, err
	}
	a := new(acme.Authorization)
	lists := struct { // takes the place of the authorization's field of the same name
		*acme.Authorization
		Challenges json.RawMessage `json:"challenges"`
	}{Authorization: a}
	if err := r.decode(&lists); err != nil {
		return nil, err
	}
	if a.Challenges, err = readList[acme.Challenge](r, lists.Challenges, "challenges", maxChallenges); err != nil {
		return nil, err
	}
	a.Meta, a.URL = r.meta, url
	if bare, wildcard := strings.CutPrefix(a.Identifier.Value, "*."); wildcard { // not as RFC 8555 §7.1.4 has it, and clear
		a.Identifier.Value, a.Wildcard = bare, true
	}
	for i := range a.Challenges {
		ch := &a.Challenges[i]
		ch.URL = r.absolute(ch.URL)
		if (ch.Type == acme.ChallengeHTTP01 || ch.Type == acme.ChallengeDNS01 || ch.Type == acme.ChallengeDNSAccount01) && !isBase64URL(ch.Token) {
			// It would become a path, a file or a record.
			return nil, r.broken(fmt.Errorf("the token %q is not base64url (§8.3, §8.4)", fault.Quote(ch.Token)))
		}
	}
	return a, nil
}
