package fault

import "time"

// Patience is a row of the table of patience: how long somebody waits after failures of one class in a row.
type Patience struct {
	// Free is how many failures in a row cost no wait.
	Free int
	// First is the wait after the next failure. Each further one multiplies the wait by Factor, up to Most.
	First, Most time.Duration
	Factor      int
	// Steps are the waits in place of First, Factor and Most.
	Steps []time.Duration
	// Obeyed is the longest wait that the other side may ask for, in a Retry-After for example (RFC 9110 §10.2.3). A
	// longer one is cut to Obeyed.
	Obeyed time.Duration
	// Over is the most by which chance makes Obeyed longer: callers that were told different waits above Obeyed do not
	// all come back in one instant. A wait of Obeyed or less stays as it is.
	Over time.Duration
	// Spread is the most that chance adds to a wait that was asked for: never more than a tenth of the wait.
	Spread time.Duration
}

// Waiter is somebody who waits after failures.
type Waiter string

const (
	// Orders are Orders and Challenges, with the CA and with solvers.
	Orders Waiter = "orders"
	// Calls are calls that the engine repeats: registration, contact, key change, revocation, Vault, Venafi. All calls
	// are among them but those of Orders and Challenges.
	Calls Waiter = "calls"
	// Renewals are Certificates after a failed issuance, where no setting says how long they wait. After a failure
	// of a class without a row, they wait as certificate.DefaultBackoff says.
	Renewals Waiter = "renewals"
	// Parks are the pauses of an ACME account: meanwhile nothing is sent to the CA.
	Parks Waiter = "parks"
	// Unsure is the pause of an account while nobody knows which of its keys the CA accepts. It lasts at most Most.
	Unsure Waiter = "unsure"
	// Polls are questions for the state of an order or an authorization.
	Polls Waiter = "polls"
	// SlowPolls are such questions to a CA that is known to be slow.
	SlowPolls Waiter = "slow polls"
	// SelfChecks settle at the period of the settings, a week at most.
	SelfChecks Waiter = "self checks"
	// Breakers are the pauses of a credential of a DNS provider.
	Breakers Waiter = "breakers"
	// Writes are writes that the API server refuses.
	Writes Waiter = "writes"
	// WatchedWrites are refused writes that a watched change can mend: another spec, another Secret.
	WatchedWrites Waiter = "watched writes"
	// Conflicts are passes whose write came after a write of somebody else. By then the watch shows that write, but a
	// broken watch may show nothing for long.
	Conflicts Waiter = "conflicts"
	// Approvals are tries to approve requests that the controller may not approve: the kind of the issuer, or the right
	// to approve, may be only a moment old.
	Approvals Waiter = "approvals"
	// Rights are questions whether a ServiceAccount may have a certificate, after it was told that it may not.
	Rights Waiter = "rights"
	// Finalizes are finalize requests that a CA refuses although it shows the order as ready.
	Finalizes Waiter = "finalizes"
)

// patience is the table. A row without a class is for all classes that have none. All but Renewals have such a row.
var patience = map[Waiter]map[Class]Patience{
	// Where the CA wants fewer requests, it is the retry schedule that Let's Encrypt's integration guide asks for, up to
	// the point where an order would outlive its usefulness: 1, 10, then every 100 minutes. Obeyed is the longest of the
	// limits that CAs publish: a CA that asks for more has made a mistake, and is asked once a week.
	Orders: {
		"":                {First: time.Second, Factor: 2, Most: 5 * time.Minute, Obeyed: week, Spread: time.Minute},
		ClassNotProcessed: {Free: 5, First: time.Second, Factor: 2, Most: 5 * time.Minute, Obeyed: week, Spread: time.Minute},
		ClassRateLimited:  {First: time.Minute, Factor: 10, Most: 100 * time.Minute, Obeyed: week, Spread: time.Minute},
		ClassPaused:       {First: time.Minute, Factor: 10, Most: 100 * time.Minute, Obeyed: week, Spread: time.Minute},
		ClassSolver:       {First: 2 * time.Second, Factor: 2, Most: 5 * time.Minute, Obeyed: week, Spread: time.Minute},
		ClassPermanent:    {First: 5 * time.Minute, Most: 5 * time.Minute, Obeyed: week, Spread: time.Minute},
		ClassRefused:      {First: 5 * time.Minute, Most: 5 * time.Minute, Obeyed: week, Spread: time.Minute},
	},
	// Obeyed is short, because a person may have mended what was wrong at the other side, and no event tells: with its
	// spread, the wait for a credential is 5 minutes at most, and the wait for a server that was out of order a minute.
	Calls: {
		"":               {First: time.Second, Factor: 2, Most: 5 * time.Minute, Obeyed: time.Hour, Over: 6 * time.Minute},
		ClassPermanent:   {First: time.Hour, Factor: 2, Most: 24 * time.Hour, Obeyed: time.Hour, Over: 6 * time.Minute},
		ClassPolicy:      {First: time.Hour, Factor: 2, Most: 24 * time.Hour, Obeyed: time.Hour, Over: 6 * time.Minute},
		ClassCredential:  {First: 4 * time.Minute, Most: 4 * time.Minute, Obeyed: time.Hour, Over: 6 * time.Minute},
		ClassUnavailable: {First: time.Second, Factor: 2, Most: 48 * time.Second, Obeyed: time.Hour, Over: 6 * time.Minute},
		ClassRateLimited: {First: time.Minute, Factor: 2, Most: 100 * time.Minute, Obeyed: time.Hour, Over: 6 * time.Minute},
	},
	// The waits for a CA that did not find what it looked for are those of Let's Encrypt's integration guide, of which the
	// last is a day.
	Renewals: {
		ClassPolicy:        {First: time.Hour, Factor: 2, Most: 24 * time.Hour},
		ClassValidation:    {Steps: []time.Duration{time.Minute, 10 * time.Minute, 100 * time.Minute, 24 * time.Hour}},
		ClassRateLimited:   {First: 30 * time.Minute, Factor: 2, Most: 12 * time.Hour},
		ClassPaused:        {First: 30 * time.Minute, Factor: 2, Most: 12 * time.Hour},
		ClassUnavailable:   {First: time.Minute, Factor: 2, Most: time.Hour},
		ClassRefused:       {First: time.Minute, Factor: 2, Most: time.Hour},
		ClassConfiguration: {First: time.Minute, Factor: 2, Most: time.Hour},
	},
	// One answer may ask for a day, and for one object. It is obeyed longer as more answers in a row say so: others show
	// whether they are meant, too.
	Parks:         {"": {First: time.Minute, Factor: 10, Most: time.Hour, Obeyed: time.Hour}},
	Unsure:        {"": {First: 2 * time.Second, Most: time.Hour}},
	Polls:         {"": {First: 25 * time.Millisecond, Factor: 2, Most: 5 * time.Second, Obeyed: 10 * time.Minute}},
	SlowPolls:     {"": {First: time.Minute, Most: time.Minute, Obeyed: 10 * time.Minute}},
	SelfChecks:    {"": {First: time.Second / 4, Factor: 2, Most: week}},
	Breakers:      {"": {First: 30 * time.Second, Factor: 2, Most: 10 * time.Minute, Obeyed: 10 * time.Minute}},
	Writes:        {"": {First: 10 * time.Second, Factor: 2, Most: 5 * time.Minute}},
	WatchedWrites: {"": {First: 5 * time.Minute, Most: 5 * time.Minute}},
	Conflicts:     {"": {First: 50 * time.Millisecond, Factor: 2, Most: 10 * time.Second}},
	Approvals:     {"": {First: time.Second, Factor: 2, Most: 5 * time.Minute}},
	Rights:        {"": {First: 5 * time.Second, Factor: 2, Most: 20 * time.Second}},
	Finalizes:     {"": {First: time.Second, Factor: 2, Most: 5 * time.Minute}},
}

const week = 7 * 24 * time.Hour

// Patience returns a row of the table; false if there is none.
func (w Waiter) Patience(class Class) (Patience, bool) {
	p, is := patience[w][class]
	if !is {
		p, is = patience[w][""]
	}
	return p, is
}

// With is Patience for a waiter who has a row for each class.
func (w Waiter) With(class Class) Patience {
	p, _ := w.Patience(class)
	return p
}

// Step is the table's wait after so many failures in a row; failures is 1 for the first.
func (p Patience) Step(failures int) time.Duration {
	if failures = max(failures, 1); failures <= p.Free {
		return 0
	}
	if len(p.Steps) > 0 {
		return p.Steps[min(failures-p.Free, len(p.Steps))-1]
	}
	wait := p.First
	for n := p.Free + 1; p.Factor > 1 && n < failures && wait < p.Most; n++ {
		if wait > p.Most/time.Duration(p.Factor) {
			return p.Most
		}
		wait *= time.Duration(p.Factor)
	}
	return min(wait, p.Most)
}

// Wait is how long to wait after so many failures in a row; failures is 1 for the first. asked is the wait that the
// last answer has asked for, or zero. chance in [0,1) spreads callers that fail together: a wait of the table becomes
// 3/4 to 5/4 of itself. A wait that was asked for never becomes shorter, unless it is above Obeyed.
func (p Patience) Wait(asked time.Duration, failures int, chance float64) time.Duration {
	part := func(of time.Duration) time.Duration { return time.Duration(chance * float64(of)) }
	if max(failures, 1) <= p.Free {
		return 0
	}
	if asked > 0 {
		wait := min(asked, p.Obeyed+part(p.Over))
		return wait + part(min(wait/10, p.Spread))
	}
	wait := p.Step(failures)
	return wait*3/4 + part(wait/2)
}
