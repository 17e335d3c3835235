// Package trustbundle decides about the ClusterTrustBundles of CA issuers (certificates.k8s.io, Kubernetes 1.37): each
// signer name of an issuer has one, with the roots of the CA. The package is pure.
package trustbundle

import (
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/machine/request"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/when"
)

// suffix ends the names of our bundles, behind the name of the signer.
const suffix = ":chancery"

// Reasons of events about an issuer whose bundle is not as it should be.
const (
	ReasonNotWritten = "TrustBundleNotWritten"
	ReasonTaken      = "TrustBundleTaken"
)

// Names returns the names of the bundles of an issuer, one for each name that the issuer has as a signer.
func Names(issuer metav1.Object) []string {
	if issuer.GetNamespace() != "" {
		return []string{"issuers." + certmanagerv1.GroupName + ":" + issuer.GetNamespace() + "." + issuer.GetName() + suffix}
	}
	return []string{certmanagerv1.GroupName + ":" + issuer.GetName() + suffix, "clusterissuers." + certmanagerv1.GroupName + ":" + issuer.GetName() + suffix}
}

// SignerOf returns the signer whose roots a bundle of that name has; false if the name is none of ours.
func SignerOf(bundle string) (signerName string, of request.SignerName, ours bool) {
	name, ours := strings.CutSuffix(bundle, suffix)
	signerName = strings.Replace(name, ":", "/", 1)
	of, known := request.ParseSignerName(signerName)
	return signerName, of, ours && known
}

// State is what can be observed of a bundle by its name, which is one of Names.
type State struct {
	// Bundle as it is. Without a UID it does not exist, and has nothing but a name.
	Bundle *certificatesv1.ClusterTrustBundle
	// OutOfScope says that another process looks after the issuer.
	OutOfScope bool
	// Wanted says that the issuer exists, asks for the bundle, and may have it.
	Wanted bool
	// Roots are those of the issuer, that of the CA first.
	Roots []*x509.Certificate
	// Problem says why the roots are not known, or, if the bundle is not Wanted, why an issuer that asks for it cannot
	// have it; empty for neither.
	Problem string
}

// Action is what to do for a bundle.
type Action struct {
	// Write is the bundle to make, or to put right; nil for none.
	Write *certificatesv1.ClusterTrustBundle
	// Delete says to delete the bundle.
	Delete bool
	// Reason and Message are those of a warning about the issuer.
	Reason, Message string
	// Wake is when a root leaves the bundle; zero for never.
	Wake time.Time
	// Done says that nothing need be remembered.
	Done bool
}

// Decide returns what to do for a bundle now. A bundle is never written without a root: what a Pod trusts stays as it
// is until a root is known.
func Decide(s State, now time.Time) Action {
	signerName, _, named := SignerOf(s.Bundle.Name)
	exists := s.Bundle.UID != ""
	ours := s.Bundle.Labels[certmanagerv1.TrustBundleLabel] == certmanagerv1.LabelTrue
	switch {
	case !named, s.OutOfScope:
		return Action{Done: true}
	case !s.Wanted:
		a := Action{Delete: exists && ours && s.Bundle.DeletionTimestamp == nil, Done: s.Problem == ""}
		if s.Problem != "" {
			a.Reason, a.Message = ReasonNotWritten, fmt.Sprintf("There is no ClusterTrustBundle %s: %s", s.Bundle.Name, s.Problem)
		}
		return a
	case exists && !ours:
		return Action{Reason: ReasonTaken, Message: fmt.Sprintf(
			"The ClusterTrustBundle %s exists, and is somebody else's: delete it, or label it %s=%s", s.Bundle.Name, certmanagerv1.TrustBundleLabel, certmanagerv1.LabelTrue)}
	case exists && s.Bundle.DeletionTimestamp != nil:
		return Action{} // its deletion is an event
	}
	text, until := encode(s.Roots, now)
	switch {
	case s.Problem != "":
	case !usable(s.Roots[0]):
		s.Problem = "Kubernetes takes no root that does not say that it is a CA (basic constraints): make the CA anew"
	case !now.Before(s.Roots[0].NotAfter):
		s.Problem = "the root of the CA has expired: renew the CA"
	}
	switch {
	case s.Problem != "":
		return Action{Reason: ReasonNotWritten, Message: fmt.Sprintf("The roots in the ClusterTrustBundle %s are not brought up to date: %s", s.Bundle.Name, s.Problem)}
	case exists && s.Bundle.Spec.TrustBundle == text:
		return Action{Wake: until}
	}
	write := s.Bundle.DeepCopy()
	write.Spec.SignerName, write.Spec.TrustBundle = signerName, text
	if !exists {
		write.Labels = map[string]string{certmanagerv1.TrustBundleLabel: certmanagerv1.LabelTrue}
	}
	return Action{Write: write, Wake: until}
}

// encode returns the roots that are valid, as PEM, and until when they all are.
func encode(roots []*x509.Certificate, now time.Time) (text string, until time.Time) {
	var valid []*x509.Certificate
	for _, root := range roots {
		if usable(root) && now.Before(root.NotAfter) && !slices.ContainsFunc(valid, root.Equal) {
			valid, until = append(valid, root), when.Earliest(until, root.NotAfter)
		}
	}
	return string(pki.EncodeCertificates(valid...)), until
}

// usable reports whether a certificate is a root that Kubernetes takes.
func usable(c *x509.Certificate) bool {
	return c.IsCA && c.BasicConstraintsValid && pki.IsSelfSigned(c)
}
