// Package acme speaks the ACME protocol: RFC 8555 with external account binding,
// renewal information (RFC 9773) and profiles (draft-ietf-acme-profiles).
//
// It is the wire and nothing else. Each method is one logical request: sign, send,
// read a bounded answer, return it with its Location and Retry-After. It never waits,
// never polls and never decides; whoever calls it knows when to come back. The one
// thing it retries is a refused nonce (RFC 8555 §6.5), at once, because that is
// part of sending a request and not of judging its outcome.
//
// One file holds one object of the RFC. What went wrong is one of four errors, all found
// with errors.As: *Problem (the CA said why), *HTTPError (something answered, but not
// ACME), *TransportError (no complete answer; the CA may have acted all the same) and
// *ProtocolError (an answer that breaks the RFC).
package acme
