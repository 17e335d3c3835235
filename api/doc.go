// Package api holds what Chancery installs on an API server, and what it needs to talk to that server: the generated
// CustomResourceDefinitions and policies, embedded, and the scheme of all kinds.
//
// It applies nothing itself and defines no types: those are in the packages below it.
package api
