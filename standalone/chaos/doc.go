// Package chaos tests how Chancery lives through failures. Two controllers, of which one may be of another commit,
// work on an API server and etcd of their own, with Pebble behind a proxy that breaks requests, and a real DNS server.
// While objects come, change and go, processes are killed and stopped, and servers are silent. The tests judge from
// outside, by the API alone, what must hold all the same.
//
// make chaos MINUTES=n runs it, and prints the faults, and what was found after each.
//
// make soak MINUTES=n lets one controller work in the same world without failures, and says what of it grows.
package chaos
