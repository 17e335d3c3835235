// Package stepca tests Chancery with a second ACME server, a real step-ca. All other tests with a real ACME server use
// Pebble.
//
// The variable CHANCERY_STEP_CA_BIN names the binary of step-ca. `make e2e` builds this binary. step-ca listens on the
// loopback interface and ends with its test.
package stepca
