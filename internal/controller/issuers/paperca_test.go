package issuers_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// paperCA is an ACME server without a network. It knows keys and their accounts, and checks neither signatures nor
// nonces.
type paperCA struct {
	mu sync.Mutex
	// accounts are the URLs of the accounts, by their keys.
	accounts map[string]string
	made     int
	// asked is what was asked about accounts: the host, the CA bundle of the connection, and the path.
	asked []string
	// silent are hosts, with a path or without, that do not answer.
	silent map[string]bool
	// act, if set, is called in place of each newAccount and keyChange that changes something.
	act func(act func()) error
	// refuse is the Retry-After with which each keyChange is refused; empty for none.
	refuse string
}

// via is a connection to the CA with a CA bundle.
type via struct {
	ca     *paperCA
	bundle string
}

// RoundTrip implements http.RoundTripper.
func (v via) RoundTrip(r *http.Request) (*http.Response, error) {
	status, location, body := v.ca.answer(r, v.bundle)
	if status == 0 {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	answer := &http.Response{StatusCode: status, Request: r, Body: io.NopCloser(strings.NewReader(body)),
		Header: http.Header{"Replay-Nonce": {"bm9uY2U"}, "Content-Type": {"application/json"}}}
	switch status {
	case http.StatusTooManyRequests:
		answer.Header.Set("Retry-After", v.ca.refuse)
		answer.Header.Set("Content-Type", "application/problem+json")
	case http.StatusBadRequest:
		answer.Header.Set("Content-Type", "application/problem+json")
	}
	if location != "" {
		answer.Header.Set("Location", location)
	}
	return answer, nil
}

// answer returns the status of an answer, its Location and its body; status 0 for no answer.
func (ca *paperCA) answer(r *http.Request, bundle string) (status int, location, body string) {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	header, payload := opened(r)
	if path := strings.TrimPrefix(r.URL.Path, "/"); path == "new" || path == "change" || strings.HasPrefix(path, "account/") {
		ca.asked = append(ca.asked, r.URL.Host+" "+bundle+" "+path)
	}
	problem := func(code string) (int, string, string) {
		return http.StatusBadRequest, "", `{"type":"urn:ietf:params:acme:error:` + code + `"}`
	}
	switch known := ca.accounts[string(header.JWK)]; {
	case ca.silent[r.URL.Host], ca.silent[r.URL.Host+r.URL.Path]:
		return 0, "", ""
	case r.URL.Path == "/dir":
		return http.StatusOK, "", `{"newNonce":"/nonce","newAccount":"/new","newOrder":"/order","revokeCert":"/revoke","keyChange":"/change"}`
	case r.URL.Path == "/new" && known == "" && strings.Contains(payload, "onlyReturnExisting"):
		return problem("accountDoesNotExist")
	case r.URL.Path == "/new" && known != "":
		return http.StatusOK, known, `{"status":"valid"}`
	case r.URL.Path == "/new":
		account := fmt.Sprintf("https://%s/account/%d", r.URL.Host, ca.made+1)
		if ca.do(func() { ca.made++; ca.accounts[string(header.JWK)] = account }) != nil {
			return http.StatusBadGateway, "", ""
		}
		return http.StatusCreated, account, `{"status":"valid"}`
	case r.URL.Path == "/change" && ca.refuse != "":
		return http.StatusTooManyRequests, "", `{"type":"urn:ietf:params:acme:error:rateLimited","detail":"not this year"}`
	case r.URL.Path == "/change":
		if ca.do(func() { ca.change(header.KeyID, payload) }) != nil {
			return http.StatusBadGateway, "", ""
		}
		return http.StatusOK, "", "{}"
	case strings.HasPrefix(r.URL.Path, "/order/"):
		return problem("accountDoesNotExist")
	default:
		return http.StatusOK, "", "{}"
	}
}

// change makes an account accept the key in the inner JWS of a keyChange, and no other (RFC 8555 §7.3.5).
func (ca *paperCA) change(account, inner string) {
	for key, known := range ca.accounts {
		if known == account {
			delete(ca.accounts, key)
		}
	}
	header, _ := openedText([]byte(inner))
	ca.accounts[string(header.JWK)] = account
}

func (ca *paperCA) do(act func()) error {
	if ca.act != nil {
		return ca.act(act)
	}
	act()
	return nil
}

// protected is the protected header of a request (RFC 8555 §6.2).
type protected struct {
	JWK   json.RawMessage `json:"jwk"`
	KeyID string          `json:"kid"`
}

func opened(r *http.Request) (header protected, payload string) {
	if r.Body == nil {
		return protected{}, ""
	}
	text, _ := io.ReadAll(r.Body)
	return openedText(text)
}

func openedText(text []byte) (header protected, payload string) {
	var jws struct{ Protected, Payload string }
	_ = json.Unmarshal(text, &jws)
	head, _ := base64.RawURLEncoding.DecodeString(jws.Protected)
	_ = json.Unmarshal(head, &header)
	body, _ := base64.RawURLEncoding.DecodeString(jws.Payload)
	return header, string(body)
}

// questions returns what was asked since the last call.
func (ca *paperCA) questions() string {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	defer func() { ca.asked = nil }()
	return strings.Join(ca.asked, ", ")
}

// set changes how the CA behaves.
func (ca *paperCA) set(change func()) {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	change()
}
