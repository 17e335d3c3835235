package explain

import (
	"fmt"
	"slices"
	"strings"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/cause"
)

// Health is the state of a Certificate in one word: each Certificate has one. The page, status and the metric
// chancery_certificates count by it.
type Health string

// The healths.
const (
	// Expired means that the certificate, or a CA above it, has expired.
	Expired Health = "expired"
	// Late means that it, or a CA above it, expires before a renewal can succeed.
	Late Health = "late"
	// Failing means that something else is in the way.
	Failing Health = "failing"
	// Issuing means that there is no certificate yet, or not the one that is asked for, and that nothing is wrong so far.
	Issuing Health = "issuing"
	// Healthy is everything else.
	Healthy Health = "healthy"
)

// Healths are all, the worst first.
func Healths() []Health { return []Health{Expired, Late, Failing, Issuing, Healthy} }

// IsTrouble reports whether something is wrong.
func (h Health) IsTrouble() bool { return h == Expired || h == Late || h == Failing }

// rank is the place of a health among all.
func (h Health) rank() int { return slices.Index(Healths(), h) }

// Health returns the health of a Certificate. It is right even without the objects made for the Certificate, if the
// controller has noted the cause in the status.
func (w *Cluster) Health(crt *certmanagerv1.Certificate) Health {
	above := w.above(crt)
	return w.health(crt, w.troubleOf(crt, above), above)
}

func (w *Cluster) health(crt *certmanagerv1.Certificate, t Trouble, above *signed) Health {
	ends, next := crt.Status.NotAfter, crt.Status.NextTry
	switch {
	case ends != nil && !w.now.Before(ends.Time), ends != nil && above != nil && !w.now.Before(above.caEnds):
		return Expired
	case t.Class == classCATooShort, t.Class == string(cause.RenewalWindows),
		t.Cause != "" && ends != nil && next != nil && !next.Before(ends):
		return Late
	case t.Cause != "":
		return Failing
	case Describe(crt).Outcome != Issued:
		return Issuing
	default:
		return Healthy
	}
}

// Numbers says in a line how many Certificates have which health.
func Numbers(reports []Report) string {
	counts := Count(reports)
	var said []string
	for _, h := range Healths() {
		said = append(said, fmt.Sprintf("%d %s", counts[h], h))
	}
	return strings.Join(said, ", ")
}

// Count counts Certificates by their health.
func Count(reports []Report) map[Health]int {
	counts := map[Health]int{}
	for _, r := range reports {
		counts[r.Health]++
	}
	return counts
}
