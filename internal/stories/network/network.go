// Package network tests the whole application in a network namespace of its own: without IPv4, with both families, and
// behind a proxy. The package has no code of its own.
package network
