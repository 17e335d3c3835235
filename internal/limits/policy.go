package limits

// Bounds of the policy of a Venafi server.
const (
	// PolicyEntries is how many entries one of its lists has: domains, regular expressions, keys.
	PolicyEntries = 1000
	// PolicyEntryBytes is how long an entry is. A DNS name has 253 bytes.
	PolicyEntryBytes = 255
	// PolicySteps is how many steps a regular expression for the names of a request has: x{0,1000} has 2,000, and any
	// letter, \p{L}, some 700.
	PolicySteps = 2500
)

func policies() []Row {
	return []Row{{
		What: "Entries of a list in the policy of a Venafi zone: domains, regular expressions, keys", Who: "the Venafi server of an issuer",
		Numbers: []Number{
			held("entries of a policy", PolicyEntries, "entries", Refused), held("entry of a policy", PolicyEntryBytes, "bytes", Refused), held("steps of an expression", PolicySteps, "steps", Refused),
		},
		Bound: "%s of %s; a regular expression has %s",
		Costs: "Entries times names: each entry is compiled once for all names, compared with each, and dropped. A request takes 15 seconds of a core at most, every five minutes, and all requests together one core: they take turns",
		Above: "The issuer is not ready, and a request waits. Both say so, and are tried again every five minutes",
		Tests: []string{"TestPolicyIsBounded", "TestPolicyIsCompiledOnce", "TestPolicyGrows", "TestPolicyEndsWithTheContext", "TestPoliciesAreComparedInTurn"},
		Fuzz:  []string{"FuzzVenafiPolicy"},
	}}
}
