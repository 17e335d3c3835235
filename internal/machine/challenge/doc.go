// Package challenge decides the next step of a Challenge.
//
// The package is pure: Decide is a total function from the observed state and the time to exactly one step. It follows
// RFC 8555, spec §5.6 and §5.7. internal/machine/acmeflow has the executor's contract, and what Orders and Challenges
// share. internal/machine/schedule decides when a Challenge starts, and internal/solver solves it.
package challenge
