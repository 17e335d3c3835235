// Package findings gathers what is wrong with what a user has set by flags, so that he reads all of it at once.
package findings

import (
	"context"
	"fmt"
	"net"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Findings are what is wrong, by flag.
type Findings []error

// Add adds what is wrong with a flag. The format is that of fmt.Errorf, with %w.
func (f *Findings) Add(flag, format string, args ...any) {
	*f = append(*f, fmt.Errorf("--%s: %w", flag, fmt.Errorf(format, args...)))
}

// Address checks an address to listen on, or to ask.
// Add adds what is wrong with a flag. The format is that of fmt.Errorf, with %w.
func (f *Findings) Address(flag, address string) {
	if !IsAddress(address) {
		f.Add(flag, "must be host:port, not %q", address)
	}
}

// AddressOrNone checks an address to listen on; "0" and the empty one stand for none.
// Add adds what is wrong with a flag. The format is that of fmt.Errorf, with %w.
func (f *Findings) AddressOrNone(flag, address string) {
	if address != "" && address != "0" && !IsAddress(address) {
		f.Add(flag, "must be host:port, or 0 for none, not %q", address)
	}
}

// IsAddress reports whether a text is host:port. It looks up no host.
func IsAddress(address string) bool {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.DefaultResolver.LookupPort(context.Background(), "tcp", port) // looks up no host
	}
	return err == nil
}

// Port checks a port; 0 stands for none.
func (f *Findings) Port(flag string, port int) {
	if port < 0 || port > 65535 {
		f.Add(flag, "must be a port, 1 to 65535, or 0, not %d", port)
	}
}

// NotNegative checks a number that must not be below 0.
func (f *Findings) NotNegative(flag string, n int) {
	if n < 0 {
		f.Add(flag, "must not be negative, but is %d", n)
	}
}

// Namespace checks the name of a namespace.
func (f *Findings) Namespace(flag, name string) {
	if len(validation.IsDNS1123Label(name)) > 0 {
		f.Add(flag, "must be the name of a namespace, not %q", name)
	}
}
