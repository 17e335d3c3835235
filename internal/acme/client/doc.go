// Package client speaks the ACME protocol: RFC 8555 with external account binding, renewal information (RFC 9773) and
// profiles (draft-ietf-acme-profiles). Package internal/acme defines the objects that the client reads and sends.
//
// Each method is one logical request: the client signs, sends, reads a bounded answer, and returns the answer with its
// Location and Retry-After. The client never waits, never polls and never decides when to call again. It retries in one
// case only: if the server refuses the nonce (RFC 8555 §6.5), the client sends the request again at once.
//
// A call whose request has failed returns one of four errors. Use errors.As to tell them apart: *acme.Problem (the CA
// answered with the reason), *HTTPError (an answer that is not ACME), *TransportError (no complete answer; the CA may
// still have acted) and *ProtocolError (an answer that breaks the RFC). Other errors, such as ErrNoAccount, say why the
// client has not sent the request.
package client
