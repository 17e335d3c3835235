// Package api holds what Chancery installs on an API server: the generated CustomResourceDefinitions, and the admission
// policies. Both are embedded. The package also holds the scheme of all kinds, which API clients need.
//
// The package applies nothing: internal/app and the Helm chart do. The types are in the packages below this package.
package api
