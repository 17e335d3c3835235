package client

import (
	"context"
	"errors"
	"net/http"
)

// maxNonces bounds the pool: more are never in use at once by one server's requests.
const maxNonces = 64

// maxNonceLength bounds, in bytes, what is taken for a nonce; those of real CAs have less than 100.
const maxNonceLength = 1024

// noncePool keeps the anti-replay nonces that came with responses (RFC 8555 §6.5). The youngest
// is used first: old ones expire at the bottom without being asked for.
type noncePool struct{ free []string }

func (p *noncePool) put(nonce string) {
	if len(p.free) == maxNonces {
		p.free = append(p.free[:0], p.free[1:]...)
	}
	p.free = append(p.free, nonce)
}

func (p *noncePool) take() string {
	if len(p.free) == 0 {
		return ""
	}
	last := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	return last
}

// nonceOf is the response's nonce; "" if there is none or it is not base64url, which RFC 8555 §6.5.1 says to ignore.
func nonceOf(h http.Header) string {
	n := h.Get("Replay-Nonce")
	if len(n) > maxNonceLength || !isBase64URL(n) {
		return ""
	}
	return n
}

// keep puts a nonce that came with an answer into the pool.
func (s *server) keep(nonce string) {
	if nonce == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nonces.put(nonce)
}

// forgetNonces drops all nonces that are kept.
func (s *server) forgetNonces() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nonces.free = nil
}

// nonce takes one from the pool, or asks the server for one (RFC 8555 §7.2).
func (s *server) nonce(ctx context.Context, action Action) (string, error) {
	s.mu.Lock()
	n := s.nonces.take()
	s.mu.Unlock()
	if n != "" {
		return n, nil
	}
	dir, err := s.fetchDirectory(ctx)
	if err != nil {
		return "", err
	}
	resp, err := s.do(ctx, call{action: action, method: http.MethodHead, url: dir.NewNonce, limit: maxBody})
	if err != nil {
		return "", err
	}
	if resp.nonce == "" {
		return "", resp.broken(errors.New("newNonce came without a valid Replay-Nonce (§7.2)"))
	}
	return resp.nonce, nil
}

// isBase64URL reports whether s holds only characters of the base64url alphabet.
func isBase64URL(s string) bool {
	for i := range len(s) {
		c := s[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && c != '-' && c != '_' {
			return false
		}
	}
	return true
}
