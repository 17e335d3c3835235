// Package stories holds tests of the whole application: what a user does, what somebody else breaks meanwhile, and what
// has to be true in the end. Each story runs all controllers on a real API server. Many stories also use a real ACME
// server and a real DNS server. The package has no code except tests.
package stories
