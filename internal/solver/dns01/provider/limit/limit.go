// Package limit keeps the calls to DNS providers within bounds, for each credential on
// its own: so many a second, and none for a while after they kept failing. A thousand
// challenges then neither exhaust a quota nor lock an account.
//
// It makes no calls and knows no provider. What it remembers is lost with the process,
// which costs a few calls more.
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
	// patience is how long a call waits for its turn where it is. One whose turn comes later
	// gives up its flight, and comes back.
	patience = time.Second
	// maxRemembered bounds the credentials, and the turns of one: any tenant can make up more.
	maxRemembered = 1_000
	maxTurns      = 10_000
	// turnsHold is how long a turn is kept for a call that does not come back.
	turnsHold = 5 * time.Minute
)

// Options say how many calls there may be.
type Options struct {
	// QPS is how many calls a second one credential may be used for in the long run; 0 is
	// no limit.
	QPS float64
	// Burst is how many may come at once; at least 1.
	Burst int
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Limits are those of all credentials. Use New. They are safe for concurrent use.
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

// KeyOf names a credential by all that it consists of, without giving it away.
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

// Enter lets a call be made: at once, after a short wait, or with a fault.After not now.
// Whoever may go on MUST say by done how the call ended.
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
			l.leave(known)
			return nil, fault.After(patience, ReasonBusy, "%s: other requests with this credential come first", c.Provider)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	pauses, err := known.breaker.admit(c.Provider, l.o.Now())
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

// Do makes a call, if it may be made: see Enter. Nil Limits limit nothing.
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
		done(ctx.Err()) // nobody waits for it any more, which says nothing of the provider
	} else {
		done(err)
	}
	return err
}

// turn takes a turn, and says how long it is until then.
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
		return nil, 0, fault.ClassRateLimited.Turn(wait, ReasonBusy, "%s: other requests with this credential come first: "+
			"no more than %v a second are made with one (--dns01-provider-qps)", c.Provider, l.o.QPS)
	}
	known.inUse++
	return known, wait, nil
}

func (l *Limits) leave(c *credential) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.inUse--
}

// sweep makes place for another credential: first of those of which there is nothing worth
// knowing, then of all that are not in use.
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
