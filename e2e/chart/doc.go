// Package chart tests the Helm chart in deploy/chart with helm itself: the chart takes the values of cert-manager's
// chart, the API server takes the rendered manifests, and the pods issue certificates. The pods run as processes with
// the arguments and the rights that the chart gives them. The package has no code except tests.
package chart
