// Package trustmanager shows that trust-manager, unmodified, spreads the CA certificates that these controllers issue.
package trustmanager
