//go:build !linux

package cli

// BundleTimers has the kernel wake this process late rather than often, on Linux.
func BundleTimers() {}
