package trustbundles

import (
	"fmt"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
)

// Issuers says which CA issuers may have their roots in ClusterTrustBundles. The zero value is None.
type Issuers string

// The issuers that may have ClusterTrustBundles.
const (
	None           Issuers = "none"
	ClusterIssuers Issuers = "cluster-issuers"
	// All are Issuers, too.
	All Issuers = "all"
)

// Validate returns an error for a word that is none of these.
func (i Issuers) Validate() error {
	switch i {
	case "", None, ClusterIssuers, All:
		return nil
	default:
		return fmt.Errorf("must be %s, %s or %s, not %q", None, ClusterIssuers, All, string(i))
	}
}

// Any reports whether there are any.
func (i Issuers) Any() bool { return i == ClusterIssuers || i == All }

// Signers are the names of the signers whose roots are written.
func (i Issuers) Signers() []any {
	names := []any{certmanagerv1.GroupName + "/*", "clusterissuers." + certmanagerv1.GroupName + "/*"}
	if i == All {
		names = append(names, "issuers."+certmanagerv1.GroupName+"/*")
	}
	return names
}
