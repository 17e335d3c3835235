// Package chart tests the Helm chart in deploy/chart with helm itself: that it takes the values of cert-manager's
// chart, that the API server takes what it renders, and that its pods issue certificates, run as processes with their
// own arguments and rights. It has no code of its own.
package chart
