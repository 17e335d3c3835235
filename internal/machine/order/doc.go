// Package order decides the next step of an Order.
//
// The package is pure: Decide is a total function from the observed state and the time to exactly one step. It follows
// RFC 8555 and spec §5.3. internal/machine/acmeflow has the executor's contract, and what Orders and Challenges share.
//
// Class returns the class of the failure that ended an Order: internal/machine/certificate decides by this class when
// to order again. Objects that another controller has left have no class: only for these objects, the package finds the
// class in the words of status.reason (left_by_another.go).
package order
