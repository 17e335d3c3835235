// Package ingress tests HTTP-01 and TLS-ALPN-01 through a real ingress controller, a Traefik process: by Ingress,
// HTTPRoute and TLSRoute. Pebble validates through Traefik. The package also installs the chart as a new user does. The
// package has no code except tests.
package ingress
