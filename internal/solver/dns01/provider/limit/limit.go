// Package limit allows each credential a limited number of calls per second to DNS providers. After repeated failures,
// it allows none for some time. So a thousand challenges do not exhaust a quota, and no provider locks an account.
//
// The package knows no provider, and its callers make the calls. A restart loses the counts: a few more calls are made.
package limit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"chancery.dev/internal/fault"
)

// The reasons of this package's faults.
const (
	// ReasonPaused: too many requests with this credential failed.
	ReasonPaused = "CredentialPaused"
	// ReasonBusy: other requests with this credential come first.
	ReasonBusy = "ProviderBusy"
)

const (
	// patience is how long a call waits for its turn. A call whose turn is later returns, and the caller comes back.
	patience = time.Second
	// maxRemembered bounds the credentials, and maxTurns the turns of one: any tenant can cause more.
	maxRemembered = 1_000
	maxTurns      = 10_000
	// turnsHold is how long a turn is kept for a call that does not come back.
	turnsHold = 5 * time.Minute
)

// Options say how many calls there may be.
type Options struct {
	// QPS is how many calls a second each credential may have on average; 0 is no limit.
	QPS float64
	// Burst is how many may come at once; at least 1.
	Burst int
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Limits are the limits of all credentials. New makes them. They are safe for concurrent use.
type Limits struct {
	o Options

	mu          sync.Mutex
	credentials map[string]*credential
}

// credential is what is known of one.
type credential struct {
	breaker breaker
	bucket  bucket
	// inUse is how many calls are under way.
	inUse int
}

// New makes Limits.
func New(o Options) *Limits {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Limits{o: o, credentials: map[string]*credential{}}
}

// KeyOf returns a digest of all parts of a credential, to tell it from others.
func KeyOf(parts ...any) (string, error) {
	text, err := json.Marshal(parts)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// Call is a call that somebody wants to make.
type Call struct {
	// Key is that of the credential.
	Key string
	// Provider names it for people.
	Provider string
	// ID is the same when the same call is tried again.
	ID string
}

// Paused returns nil if calls may be made, or a fault.After that says why not and until when.
func (l *Limits) Paused(c Call) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.credentials[c.Key]; ok {
		return known.breaker.check(c.Provider, l.o.Now())
	}
	return nil
}

// Enter returns when the call may be made: at once or after a short wait. A fault.After says that it may not be made
// now. Without an error, the caller MUST call done with the result of the call.
func (l *Limits) Enter(ctx context.Context, c Call) (done func(error), err error) {
	known, wait, err := l.turn(c)
	if err != nil {
		return nil, err
	}
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			err = fault.After(patience, ReasonBusy, "%s: other requests with this credential come first", c.Provider)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var pauses int
	if err == nil {
		pauses, err = known.breaker.admit(c.Provider, l.o.Now())
	}
	if err != nil {
		known.inUse--
		return nil, err
	}
	return func(err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		known.inUse--
		known.breaker.note(err, pauses, l.o.Now())
	}, nil
}

// Do makes a call if it may be made (see Enter). Nil Limits limit nothing.
func (l *Limits) Do(ctx context.Context, c Call, run func() error) error {
	if l == nil {
		return fault.Contained(run)
	}
	done, err := l.Enter(ctx, c)
	if err != nil {
		return err
	}
	err = fault.Contained(run)
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		done(ctx.Err()) // the caller has given up, which says nothing about the provider
	} else {
		done(err)
	}
	return err
}

// turn takes a turn, and returns the wait until then.
func (l *Limits) turn(c Call) (*credential, time.Duration, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.o.Now()
	known, ok := l.credentials[c.Key]
	if !ok {
		l.sweep(now)
		known = &credential{}
		l.credentials[c.Key] = known
	}
	if err := known.breaker.check(c.Provider, now); err != nil {
		return nil, 0, err
	}
	wait := known.bucket.turn(c.ID, now, l.o)
	if wait > patience {
		return nil, 0, fault.ClassRateLimited.AfterExactly(wait, ReasonBusy, "%s: other requests with this credential come first: "+
			"no more than %v a second are made with one (--dns01-provider-qps)", c.Provider, l.o.QPS)
	}
	known.inUse++
	return known, wait, nil
}

// sweep makes room for another credential: it drops credentials with nothing to remember, then all that are not in use.
func (l *Limits) sweep(now time.Time) {
	for _, all := range []bool{false, true} {
		if len(l.credentials) < maxRemembered {
			return
		}
		for key, c := range l.credentials {
			if c.inUse == 0 && (all || c.breaker.quiet(now) && c.bucket.full(now)) {
				delete(l.credentials, key)
			}
		}
	}
}
