// Package chaos tests how Chancery behaves during failures. Two controllers work on an API server and etcd of their
// own; one of the controllers may be of another commit. Pebble runs behind a proxy that breaks requests. The DNS server
// is real. While objects are created, changed and deleted, the tests kill and stop processes and silence servers. The
// tests check by the API alone what must be true in spite of the failures.
//
// make chaos MINUTES=n runs the tests. It prints the faults, and the findings after each fault.
//
// make soak MINUTES=n runs one controller in the same environment without failures, and prints which measurements grow.
package chaos
