// Package stories holds tests of the whole application: what a user does, what somebody else breaks meanwhile, and what
// has to be true in the end. Each story runs all controllers on a real API server, many of them with a real ACME server
// and a real DNS server. The package has no code of its own.
package stories
