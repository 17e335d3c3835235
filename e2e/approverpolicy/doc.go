// Package approverpolicy tests that approver-policy, unmodified, judges the CertificateRequests of Chancery.
package approverpolicy
