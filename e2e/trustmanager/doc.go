// Package trustmanager tests that trust-manager, unmodified, distributes the CA certificates that Chancery issues.
package trustmanager
