// The servers that the tests of chancery.dev/e2e run against. There is no package here:
// each server has a mod file of its own, for go build -modfile, so that their version
// trees do not merge.
module chancery.dev/e2e/peers

go 1.27.0

toolchain go1.27.3
