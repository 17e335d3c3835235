package fault

import "time"

// Patience is a row of the table below: how long somebody waits after failures of one class in a row.
type Patience struct {
	// Free is how many failures in a row cost no wait.
	Free int
	// First is the wait after the next failure. Each further one multiplies the wait by Factor, up to Most.
	First, Most time.Duration
	Factor      int
	// Obeyed is the longest wait that the other side may ask for, in a Retry-After for example (RFC 9110 §10.2.3). Who
	// asks for more gets this one.
	Obeyed time.Duration
	// Over is by how much chance makes Obeyed longer: those who were told different waits above it do not come back in
	// one instant. A wait that is not above Obeyed stays as it is.
	Over time.Duration
	// Spread is by how much chance makes each wait longer that was asked for: a tenth of the wait at most.
	Spread time.Duration
}

// ObeyedForOrders is the longest of the limits that CAs publish. A CA that asks for more has made a mistake, and is
// asked once a week.
const ObeyedForOrders = 7 * 24 * time.Hour

// ObeyedForCalls is short, because a person may have mended what was wrong at the other side, and no event tells.
const ObeyedForCalls = time.Hour

// PatienceWithCalls is the patience of those who have the engine repeat a call: registration, contact, key change,
// revocation, Vault, Venafi. All but Orders and Challenges do.
//
// No event tells that somebody has mended what is wrong with a credential, or that a server is back: with its spread,
// the wait for the one is 5 minutes at most, and the wait for the other a minute.
func PatienceWithCalls(class Class) Patience {
	p := Patience{First: time.Second, Most: 5 * time.Minute, Factor: 2, Obeyed: ObeyedForCalls, Over: ObeyedForCalls / 10}
	switch class {
	case ClassPermanent, ClassPolicy:
		p.First, p.Most = time.Hour, 24*time.Hour
	case ClassCredential:
		p.First, p.Most = 4*time.Minute, 4*time.Minute
	case ClassUnavailable:
		p.Most = 48 * time.Second
	case ClassRateLimited:
		p.First, p.Most = time.Minute, 100*time.Minute
	default:
	}
	return p
}

// PatienceWithOrders is the patience of Orders and Challenges, with the CA and with solvers.
//
// Where the CA wants fewer requests, it is the retry schedule that Let's Encrypt's integration guide asks for, up to
// the point where an order would outlive its usefulness: 1, 10, then every 100 minutes.
func PatienceWithOrders(class Class) Patience {
	p := Patience{First: time.Second, Most: 5 * time.Minute, Factor: 2, Obeyed: ObeyedForOrders, Spread: time.Minute}
	switch class {
	case ClassNotProcessed:
		p.Free = 5
	case ClassRateLimited, ClassPaused:
		p.First, p.Most, p.Factor = time.Minute, 100*time.Minute, 10
	case ClassSolver:
		p.First = 2 * time.Second
	case ClassPermanent, ClassRefused:
		p.First = p.Most
	default:
	}
	return p
}

// Wait is how long to wait after so many failures in a row, 1 for the first, of which the last has asked for a wait;
// zero if it has not. Chance in [0,1) spreads those who fail together. Around a wait of the table, that is half of it.
// A wait that was asked for is not undercut, unless it is above Obeyed.
func (p Patience) Wait(asked time.Duration, failures int, chance float64) time.Duration {
	part := func(of time.Duration) time.Duration { return time.Duration(chance * float64(of)) }
	failures = max(failures, 1)
	if failures <= p.Free {
		return 0
	}
	if asked > 0 {
		wait := min(asked, p.Obeyed+part(p.Over))
		return wait + part(min(wait/10, p.Spread))
	}
	wait := p.First
	for n := p.Free + 1; n < failures && wait < p.Most; n++ {
		wait *= time.Duration(p.Factor)
	}
	wait = min(wait, p.Most)
	return wait*3/4 + part(wait/2)
}
