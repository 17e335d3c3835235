// Package readers tests what programs of others make of what Chancery says. Prometheus reads its metrics: for our
// alerts and our dashboard, and for the rules and dashboards that were made for cert-manager. kstatus reads the status
// of its objects, and Argo CD, Flux and Helm wait by that. The tests run the code of Prometheus and of kstatus. They
// are in this module because the controller needs neither.
//
// How metrics are written is the matter of internal/metrics, and what becomes of objects that of internal/stories. The
// package has no code except tests.
package readers
