// Package chaos has Chancery live through failures: two controllers, of which one may be of another commit, work on an
// API server and etcd of their own, with Pebble behind a proxy that breaks requests, and a real DNS server. While
// objects come, change and go, processes are killed and stopped, and servers are silent. What must hold all the same is
// judged from outside, by the API alone.
//
// make chaos MINUTES=n runs it, and prints the faults, and what was found after each.
//
// make soak MINUTES=n has one controller work in the same world, without failures, and says what of it grows.
package chaos
