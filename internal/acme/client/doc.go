// Package client speaks the ACME protocol: RFC 8555 with external account binding, renewal information (RFC 9773) and
// profiles (draft-ietf-acme-profiles). The objects that it reads and sends are those of internal/acme.
//
// Each method is one logical request: sign, send, read a bounded answer, return it with its Location and Retry-After.
// The client never waits, never polls and never decides when to call again. The one thing that it retries is a refused
// nonce (RFC 8555 §6.5), at once, because that is part of sending a request and not of judging its outcome.
//
// What went wrong is one of four errors, all found with errors.As: *acme.Problem (the CA said why),
// *HTTPError (something answered, but not ACME), *TransportError (no complete answer; the CA may have acted
// all the same) and *ProtocolError (an answer that breaks the RFC).
package client
