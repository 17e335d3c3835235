package faulty

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
)

// Step is what a request is for. Reads that a client repeats until something has
// happened have a Step of their own, which says for what it waits.
type Step string

// The steps of RFC 8555 and RFC 9773.
const (
	Directory     Step = "directory"
	NewNonce      Step = "newNonce"
	NewAccount    Step = "newAccount"
	Account       Step = "account"
	NewOrder      Step = "newOrder"
	Authorization Step = "authorization"
	Challenge     Step = "challenge"
	// Validating is an authorization that is read after a challenge was accepted.
	Validating Step = "authorization, validating"
	// Deactivation gives an authorization up.
	Deactivation Step = "deactivation"
	Order        Step = "order"
	Finalize     Step = "finalize"
	// Issuing is an order that is read after it was finalized.
	Issuing     Step = "order, issuing"
	Certificate Step = "certificate"
	Alternate   Step = "alternate certificate"
	RenewalInfo Step = "renewalInfo"
)

// Polls reports whether the step is repeated until something has happened.
func (s Step) Polls() bool { return s == Validating || s == Issuing || s == NewNonce }

// book says what paths are for.
type book map[string]Step

// step finds out what a request is for.
func (b book) step(r *http.Request, body []byte, counts map[Step]int) Step {
	s, known := b[r.URL.Path]
	if !known {
		for path, prefix := range b {
			if prefix == RenewalInfo && strings.HasPrefix(r.URL.Path, path+"/") {
				return RenewalInfo
			}
		}
		return Step("unknown " + r.Method + " " + r.URL.Path)
	}
	switch {
	case s == Authorization && hasPayload(body):
		return Deactivation
	case s == Authorization && counts[Challenge] > 0:
		return Validating
	case s == Order && counts[Finalize] > 0:
		return Issuing
	}
	return s
}

// hasPayload reports whether a request is more than a POST-as-GET (§6.3).
func hasPayload(body []byte) bool {
	var jws struct{ Payload string }
	return json.Unmarshal(body, &jws) == nil && jws.Payload != ""
}

// namesIn are the identifiers in the payload of a new order (RFC 8555 §7.4).
func namesIn(body []byte) string {
	var jws struct{ Payload string }
	var order struct{ Identifiers []struct{ Value string } }
	if json.Unmarshal(body, &jws) != nil {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(jws.Payload)
	if err != nil || json.Unmarshal(payload, &order) != nil {
		return ""
	}
	var names []string
	for _, id := range order.Identifiers {
		names = append(names, id.Value)
	}
	return strings.Join(names, " ")
}

// learn takes the addresses out of an answer. It returns what the path is for.
func (b book) learn(path string, a *Answer) Step {
	s := b[path]
	if a.Status >= http.StatusBadRequest {
		return s
	}
	switch s {
	case Directory:
		var directory struct{ NewNonce, NewAccount, NewOrder, RenewalInfo string }
		if json.Unmarshal(a.Body, &directory) == nil {
			b.add(NewNonce, directory.NewNonce)
			b.add(NewAccount, directory.NewAccount)
			b.add(NewOrder, directory.NewOrder)
			b.add(RenewalInfo, directory.RenewalInfo)
		}
	case NewAccount:
		b.add(Account, a.Header.Get("Location"))
	case NewOrder:
		b.add(Order, a.Header.Get("Location"))
		b.learnOrder(a)
	case Order, Finalize:
		b.learnOrder(a)
	case Authorization:
		var authz struct{ Challenges []struct{ URL string } }
		if json.Unmarshal(a.Body, &authz) == nil {
			for _, c := range authz.Challenges {
				b.add(Challenge, c.URL)
			}
		}
	case Certificate:
		for _, link := range a.Header.Values("Link") {
			if target, rest, ok := strings.Cut(link, ">"); ok && strings.Contains(rest, "alternate") {
				b.add(Alternate, strings.TrimPrefix(target, "<"))
			}
		}
	default:
	}
	return s
}

func (b book) learnOrder(a *Answer) {
	var order struct {
		Authorizations        []string
		Finalize, Certificate string
	}
	if json.Unmarshal(a.Body, &order) == nil {
		b.add(Authorization, order.Authorizations...)
		b.add(Finalize, order.Finalize)
		b.add(Certificate, order.Certificate)
	}
}

func (b book) add(s Step, addresses ...string) {
	for _, address := range addresses {
		if u, err := url.Parse(address); err == nil && u.Path != "" && b[u.Path] == "" {
			b[u.Path] = s
		}
	}
}
