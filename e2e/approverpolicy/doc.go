// Package approverpolicy shows that approver-policy, unmodified, judges the CertificateRequests of these controllers.
package approverpolicy
