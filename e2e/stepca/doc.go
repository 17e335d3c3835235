// Package stepca tests Chancery with a second ACME server, a real step-ca. All other tests use Pebble.
//
// step-ca is the binary that CHANCERY_STEP_CA_BIN names. make e2e builds the binary. step-ca listens on the loopback
// interface and ends with its test.
package stepca
