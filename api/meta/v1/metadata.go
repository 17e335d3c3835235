package v1

// PausedAnnotation is our own: an object that has it, with any value, is left alone by every controller until the
// annotation is removed. An object that is being deleted is finished all the same.
const PausedAnnotation = "chancery.dev/paused"

// TestSolverAnnotation is our own: on an Issuer or ClusterIssuer of the type ACME, the value "<id> <dns name>" has the
// controller test the DNS-01 solver that it would choose for the name. The test writes a TXT record and removes it, and
// status.acme.solverTest says how it has ended. Each id, a word of up to 63 characters, is tested once.
const TestSolverAnnotation = "chancery.dev/test-solver"
