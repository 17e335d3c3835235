package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cli/terminal"
)

// Succession says since when a CA issuer has its CA, and what is left of the CAs before.
type Succession struct {
	// Since is when the CA was first found to be the issuer's, and Replaced whether it took the place of another one.
	Since    metav1.Time `json:"since"`
	Replaced bool        `json:"replaced"`
	// Namespace is that of the Certificates that were read; empty for all.
	Namespace string `json:"namespace,omitempty"`
	// Certificates is how many were issued of those that were read. Earlier names those that an earlier CA has signed.
	Certificates int      `json:"certificates"`
	Earlier      []string `json:"earlier,omitempty"`
	// HandsOn says that the issuer delivers the older roots, and the links.
	HandsOn    bool                      `json:"handsOn"`
	OlderRoots []certmanagerv1.OlderRoot `json:"olderRoots,omitempty"`
}

// slack is how long after a CA has begun to sign the status may say so. What was issued in that time counts as the
// CA's.
const slack = 10 * time.Second

// EarlierCA returns the issuer of a Certificate if an earlier CA of the issuer has signed its certificate; nil
// otherwise.
func (w *Cluster) EarlierCA(crt *certmanagerv1.Certificate) certmanagerv1.GenericIssuer {
	issuer, _ := w.issuer(crt.Spec.IssuerRef, crt.Namespace)
	if issuer == nil || issuer.GetSpec().CA == nil || crt.Status.NotBefore == nil {
		return nil
	}
	ca := issuer.GetStatus().CA
	if ca == nil || !ca.Replaced || !crt.Status.NotBefore.Time.Before(ca.FirstSeen.Add(-slack)) {
		return nil
	}
	return issuer
}

// Issuer explains an Issuer or ClusterIssuer, with the Certificates of a namespace, or of all, that were read; nil if
// there is no such issuer.
func (w *Cluster) Issuer(ref cmmeta.IssuerReference, namespace string, certificates []*certmanagerv1.Certificate) *Report {
	issuer, _ := w.issuer(ref, namespace)
	if issuer == nil {
		return nil
	}
	r := &Report{Node: NodeOf(issuer), Trouble: issuerRow(issuer, w.now).Trouble}
	ca := issuer.GetStatus().CA
	if issuer.GetSpec().CA == nil || ca == nil {
		return r
	}
	r.Expires = ca.NotAfter
	r.CA = &Succession{
		Since: ca.FirstSeen, Replaced: ca.Replaced, Namespace: namespace, OlderRoots: ca.OlderRoots,
		HandsOn: certmanagerv1.DeliversRoots(issuer) && !certmanagerv1.ReissuesNow(issuer),
	}
	for _, crt := range certificates {
		if of, _ := w.issuer(crt.Spec.IssuerRef, crt.Namespace); of != issuer || crt.Status.NotBefore == nil {
			continue
		}
		r.CA.Certificates++
		if w.EarlierCA(crt) != nil {
			r.CA.Earlier = append(r.CA.Earlier, crt.Namespace+"/"+crt.Name)
		}
	}
	slices.Sort(r.CA.Earlier)
	return r
}

// lines say it for people.
func (s *Succession) lines(now time.Time) []Line {
	out := []Line{{"CA since", moment(&s.Since, now)}}
	if s.Replaced {
		where := "in all namespaces"
		if s.Namespace != "" {
			where = "in namespace " + s.Namespace + ", -A counts all"
		}
		text := fmt.Sprintf("%d of %d certificates, %s", len(s.Earlier), s.Certificates, where)
		if shown := s.Earlier[:min(len(s.Earlier), maxNames)]; len(shown) > 0 {
			text += ": " + strings.Join(shown, ", ")
			if more := len(s.Earlier) - len(shown); more > 0 {
				text += fmt.Sprintf(" and %d more", more)
			}
		}
		out = append(out, Line{"earlier CA", text})
	}
	for _, root := range s.OlderRoots {
		text := "expires " + moment(&root.NotAfter, now) + "; clients that have no other root "
		if root.Unlinked != "" {
			text += "refuse what the issuer signs: " + terminal.Line(root.Unlinked) + ". Give them the new root"
		} else {
			text += "accept what the issuer signs, until shortly before then"
		}
		if !s.HandsOn {
			text = "expires " + moment(&root.NotAfter, now) + "; the issuer does not hand it on, which takes the annotation " + certmanagerv1.DeliverRootsAnnotation +
				"=true without " + certmanagerv1.ReissueNowAnnotation
		}
		out = append(out, Line{"older root", text})
	}
	return out
}
