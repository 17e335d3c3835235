// Package propagation learns how long a challenge must wait after its self check passes, before the controller tells
// the CA to validate. A self check looks from one place, a CA from several places (multi-perspective validation). The
// servers of a zone may answer the self check and the CA differently. If the self check has found an answer and the CA
// has not, the next challenges of that zone wait. The first wait is a few seconds. Each further such failure doubles
// the wait, up to Limit. After some successes the wait is halved. After a day without a failure the wait is forgotten.
//
// A Ledger is in memory only, and its size is bounded. A restart loses the waits without harm: the Ledger learns again
// from the next failure. The package has no clock, writes nothing, and knows zones only by name.
// internal/controller/orders makes the name from the zone, the issuer and the type of a challenge, and
// internal/machine/challenge makes the challenge wait.
package propagation

import (
	"time"
)

const (
	// First is the wait after the first failure.
	First = 5 * time.Second
	// Limit is the longest wait.
	Limit = 2 * time.Minute

	// enough is how many successes in a row halve a wait.
	enough = 3
	// memory is how long a failure counts.
	memory = 24 * time.Hour
	// maxZones bounds a Ledger: any tenant can make up zones.
	maxZones = 10_000
)

// Ledger is what is known of all zones. The zero value knows nothing, and is ready.
type Ledger struct {
	zones map[string]zone
}

// zone is what is known of one zone.
type zone struct {
	// wait is for how long to wait, since a failure at failed, and successes how many came after it.
	wait      time.Duration
	failed    time.Time
	successes int
}

// Delay is for how long a challenge of a zone has to wait, once its self check has passed.
func (l *Ledger) Delay(name string, now time.Time) time.Duration { return l.zones[name].delay(now) }

// Failed notes that the CA, told after the given wait, did not find what the self check had found. If the wait of the
// zone is longer by now, the failure changes nothing: challenges that fail together count once.
func (l *Ledger) Failed(name string, waited time.Duration, now time.Time) {
	z := l.zones[name]
	if wait := z.delay(now); waited >= wait {
		z.wait = min(max(First, 2*waited), Limit)
	}
	z.failed, z.successes = now, 0
	if l.zones == nil {
		l.zones = map[string]zone{}
	}
	if _, known := l.zones[name]; !known && len(l.zones) >= maxZones {
		l.makeRoom()
	}
	l.zones[name] = z
}

// Succeeded notes that the CA did find it.
func (l *Ledger) Succeeded(name string, now time.Time) {
	z, known := l.zones[name]
	if !known {
		return
	}
	if z.successes++; z.successes >= enough {
		z.wait, z.successes = z.wait/2, 0
	}
	if z.wait < First || z.delay(now) == 0 {
		delete(l.zones, name)
		return
	}
	l.zones[name] = z
}

func (z zone) delay(now time.Time) time.Duration {
	if now.Sub(z.failed) >= memory {
		return 0
	}
	return z.wait
}

// makeRoom drops the zone whose last failure is the longest ago.
func (l *Ledger) makeRoom() {
	oldest := ""
	for name, z := range l.zones {
		if oldest == "" || z.failed.Before(l.zones[oldest].failed) {
			oldest = name
		}
	}
	delete(l.zones, oldest)
}
