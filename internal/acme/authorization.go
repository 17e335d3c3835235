package acme

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Authorization says whether the account may have certificates for an identifier (RFC 8555 §7.1.4).
type Authorization struct {
	Meta
	// URL names the authorization.
	URL string `json:"-"`
	// Identifier is what it is about, for a wildcard without "*.".
	Identifier Identifier `json:"identifier"`
	// Status is pending, valid, invalid, deactivated, expired or revoked (§7.1.6).
	Status Status `json:"status"`
	// Expires is when it ends; zero if not said.
	Expires time.Time `json:"expires,omitzero"`
	// Wildcard says that the order asked for "*." and the identifier.
	Wildcard bool `json:"wildcard,omitempty"`
	// Challenges are the ways to prove control; once decided, those that were tried.
	Challenges []Challenge `json:"challenges"`
}

// maxChallenges bounds how many ways to prove control a server may offer: there are five types.
const maxChallenges = 20

// GetAuthorization reads an authorization (RFC 8555 §7.5).
func (c *Client) GetAuthorization(ctx context.Context, url string) (*Authorization, error) {
	return c.postAuthorization(ctx, ActionGetAuthorization, url, nil)
}

// DeactivateAuthorization gives an authorization up (RFC 8555 §7.5.2): one left pending counts
// against the CA's limits.
func (c *Client) DeactivateAuthorization(ctx context.Context, url string) (*Authorization, error) {
	return c.postAuthorization(ctx, ActionDeactivateAuthorization, url, statusUpdate{StatusDeactivated})
}

func (c *Client) postAuthorization(ctx context.Context, action Action, url string, payload any) (*Authorization, error) {
	r, err := c.postKID(ctx, action, url, payload)
	if err != nil {
		return nil, err
	}
	a := new(Authorization)
	lists := struct { // takes the place of the authorization's field of the same name
		*Authorization
		Challenges json.RawMessage `json:"challenges"`
	}{Authorization: a}
	if err := r.decode(&lists); err != nil {
		return nil, err
	}
	if a.Challenges, err = readList[Challenge](r, lists.Challenges, "challenges", maxChallenges); err != nil {
		return nil, err
	}
	a.Meta, a.URL = r.meta, url
	for i := range a.Challenges {
		ch := &a.Challenges[i]
		ch.URL = r.absolute(ch.URL)
		if (ch.Type == ChallengeHTTP01 || ch.Type == ChallengeDNS01 || ch.Type == ChallengeDNSAccount01) && !isBase64URL(ch.Token) {
			// It would become a path, a file or a record.
			return nil, r.broken(fmt.Errorf("the token %q is not base64url (§8.3, §8.4)", sanitise(ch.Token, maxExcerpt)))
		}
	}
	return a, nil
}
