// Package chart tests the Helm chart in deploy/chart with helm itself. The tests check that the chart accepts the
// values of cert-manager's chart, that the API server accepts the rendered manifests, and that the controllers in the
// pods issue certificates. The containers of the pods run as processes, with the arguments and the rights that the
// chart gives to the pods. The package has no code except tests.
package chart
