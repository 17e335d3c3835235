// Package api gathers what Chancery installs on an API server and needs to talk to it: the scheme of all
// kinds, and the generated CustomResourceDefinitions and policies, embedded.
//
// It applies nothing itself and holds no types: those are in the packages below it.
package api
