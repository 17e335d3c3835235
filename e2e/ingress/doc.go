// Package ingress tests HTTP-01 and TLS-ALPN-01 through a real ingress controller, a Traefik process. The tests use an
// Ingress, an HTTPRoute or a TLSRoute. The CA is Pebble, an ACME server for tests: it sends its validation requests to
// Traefik. One test installs the chart as a new user does. The package has no code except tests.
package ingress
