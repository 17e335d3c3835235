// Package stepca shows, with a real step-ca, that certificates are issued by an ACME server
// that is not the one that everything else is tested with.
//
// step-ca is the binary that CHANCERY_STEP_CA_BIN names, built by make e2e; it listens on
// the loopback interface and ends with its test.
package stepca
