// Package ingress tests HTTP-01 and TLS-ALPN-01 through a real ingress controller, Traefik, as a process: by Ingress,
// HTTPRoute and TLSRoute, with Pebble validating through it. It also installs the chart as a stranger does. It has no
// code of its own.
package ingress
