// Package acme holds the plain types of the ACME protocol: RFC 8555 with external account binding, renewal information
// (RFC 9773) and profiles (draft-ietf-acme-profiles).
//
// One file holds one object of the RFC. The package sends nothing and decides nothing: internal/acme/client sends the
// requests, and internal/machine/order and internal/machine/challenge decide what follows from an answer.
package acme
