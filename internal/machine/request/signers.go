package request

import (
	"slices"
	"strings"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
)

// SignerPatterns are names of signers, <plural>.<group>/<name> where the name of a
// namespaced issuer is <namespace>.<name>: the names that the verb approve is given
// for (spec §3.2). <plural>.<group>/* is all of a kind, * is all there are.
type SignerPatterns []string

// All reports whether nothing is left out.
func (p SignerPatterns) All() bool { return slices.Contains(p, "*") }

// Cover reports whether a pattern names a signer; resource is <plural>.<group>.
func (p SignerPatterns) Cover(resource, name string) bool {
	return p.All() || slices.Contains(p, resource+"/*") || slices.Contains(p, resource+"/"+name)
}

// Malformed returns the first pattern that names nothing; false if there is none.
func (p SignerPatterns) Malformed() (string, bool) {
	for _, pattern := range p {
		resource, name, ok := strings.Cut(pattern, "/")
		if pattern != "*" && (!ok || name == "" || !strings.Contains(resource, ".")) {
			return pattern, true
		}
	}
	return "", false
}

// SignerResource returns <plural>.<group> of a kind of issuer, and whether it is namespaced. Foreign kinds it guesses
// to be cluster-scoped, so that only a pattern for all of a kind is sure to cover one.
func SignerResource(group, kind string) (resource string, namespaced bool) {
	return strings.ToLower(kind) + "s." + group, group == certmanagerv1.GroupName && kind == cmmeta.DefaultIssuerKind
}
