// Package stepca tests with a real step-ca that Chancery works with an ACME server other than Pebble, which all other
// tests use.
//
// step-ca is the binary that CHANCERY_STEP_CA_BIN names, built by make e2e; it listens on the loopback interface and
// ends with its test.
package stepca
