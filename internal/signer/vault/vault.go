// Package vault signs requests by a PKI engine of HashiCorp Vault, and sets Vault
// issuers up.
//
// Every call to Vault, to AWS and for a service account's token is made in a flight;
// its landing has the issuer or the request looked at again. The token of a login is
// kept until its lease is nearly over. Whether a request may be signed is decided
// elsewhere, and so is what may be asked of a role: that is Vault's policy.
package vault

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/egress"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/flight"
	"chancery.dev/internal/signer"
)

// Config is what a Signer needs.
type Config struct {
	// Secrets holds credentials and CA bundles.
	Secrets signer.SecretReader
	// Tokens gives tokens of service accounts.
	Tokens TokenSource
	// Flights makes the calls.
	Flights *flight.Flights
	// NotifyRequest has a request looked at again; kind is its Request.SourceKind. It
	// MUST NOT block.
	NotifyRequest func(kind string, name types.NamespacedName)
	// Now is the clock.
	Now func() time.Time
	// ClusterResourceNamespace is where the Secrets of ClusterIssuers are.
	ClusterResourceNamespace string
	// AWS says where identities of AWS come from.
	AWS AWSConfig
	// Egress says which addresses the servers of Issuers may have; nil means all.
	Egress *egress.Policy
}

// Signer implements signer.Signer and signer.Prober for issuers with spec.vault.
type Signer struct {
	Config

	mu sync.Mutex
	// sessions by issuer, attempts by request; both are bounded.
	sessions map[types.UID]*session
	attempts map[types.UID]*attempt
}

// New returns a Signer.
func New(c Config) *Signer {
	return &Signer{Config: c, sessions: map[types.UID]*session{}, attempts: map[types.UID]*attempt{}}
}

var (
	_ signer.Signer = (*Signer)(nil)
	_ signer.Prober = (*Signer)(nil)
	_ signer.Remote = (*Signer)(nil)
)

const (
	// maxSessions and maxAttempts bound the memory. What has not been used for
	// forgetAfter goes first: its issuer or request may be gone.
	maxSessions = 1000
	maxAttempts = 10000
	forgetAfter = time.Hour
	// lookAgain is how soon a request looks again for what its issuer lacks. The issuer's
	// next change calls for it too, but there is none if what was missing is back before the
	// issuer was looked at.
	lookAgain = 30 * time.Second
)

// attempt is how signing a request goes.
type attempt struct {
	kind string
	name types.NamespacedName
	// session it was last tried in: in another one, failures count for nothing.
	session  *session
	failures int
	until    time.Time
	failed   *trouble
	used     time.Time
}

// reasons are the words for a kind of request (spec §3.4, §4.5).
type reasons struct{ missing, login, signing string }

func reasonsOf(kind string) reasons {
	if kind == certmanagerv1.CertificateRequestKind {
		return reasons{missing: "SecretMissing", login: "VaultInitError", signing: "SigningError"}
	}
	return reasons{missing: "SecretNotFound", login: "ErrorVaultInit", signing: "ErrorSigning"}
}

func (r reasons) of(t *trouble) string {
	switch {
	case t.missing:
		return r.missing
	case t.stage == stageSign:
		return r.signing
	default:
		return r.login
	}
}

// Sign implements signer.Signer. While Vault is being asked it returns a fault.Pending
// without a reason: there is nothing yet to tell the requester.
func (s *Signer) Sign(ctx context.Context, issuer certmanagerv1.GenericIssuer, r signer.Request) (signer.Result, error) {
	spec := issuer.GetSpec().Vault
	if spec == nil {
		return signer.Result{}, fmt.Errorf("issuer %q has no spec.vault", issuer.GetName())
	}
	words := reasonsOf(r.SourceKind)
	order, err := newOrder(spec.Path, r)
	if err != nil {
		return signer.Result{}, fault.Failed(fault.ClassPermanent, words.signing, "%w", err)
	}
	if !r.Approved {
		return signer.Result{}, fault.Pending("", "Vault %s is asked to sign once the approval is stored", spec.Server)
	}
	session, err := s.session(ctx, issuer)
	if err != nil {
		return signer.Result{}, waitFor(err, words)
	}
	a := s.attempt(session, r)
	if a.failed != nil && s.Now().Before(a.until) {
		return signer.Result{}, s.later(a, words)
	}
	landed, ok := s.Flights.Ask(flight.Call{
		Key:    flight.Key{Object: r.Source.GetUID(), Call: "vault sign"},
		Lane:   session.lane,
		Run:    func(ctx context.Context) (any, error) { return order.place(ctx, session), nil },
		Landed: func() { s.NotifyRequest(a.kind, a.name) },
	})
	if !ok {
		return signer.Result{}, fault.Pending("", "Vault %s is being asked to sign", spec.Server)
	}
	answer, ok := landed.Value.(answer)
	if !ok {
		answer.session, answer.err = session, landed.Err
	}
	if answer.session != session && answer.err != nil {
		// What went wrong with other credentials says nothing: come again at once.
		return signer.Result{}, fault.After(time.Millisecond, "", "Vault %s is being asked to sign", spec.Server)
	}
	if answer.err == nil {
		s.forget(r.Source.GetUID())
		return answer.result, nil
	}
	err = s.failed(a, answer.err, words)
	if fault.IsTerminal(err) {
		s.forget(r.Source.GetUID())
	}
	return signer.Result{}, err
}

// failed notes a try that did not work out, and says when to come back.
func (s *Signer) failed(a *attempt, err error, words reasons) error {
	t := troubleOf(err)
	if t.class == fault.ClassPermanent {
		return fault.Failed(fault.ClassPermanent, words.of(t), "%w", t)
	}
	s.mu.Lock()
	a.failures++
	a.failed, a.until = t, s.Now().Add(t.patience(a.failures))
	s.mu.Unlock()
	return s.later(a, words)
}

func (s *Signer) later(a *attempt, words reasons) error {
	return a.failed.class.After(max(a.until.Sub(s.Now()), time.Millisecond), words.of(a.failed), "%w", a.failed)
}

// waitFor says what a request waits for whose issuer cannot be reached as it stands.
func waitFor(err error, words reasons) error {
	var t *trouble
	if !errors.As(err, &t) {
		return err
	}
	return fault.After(lookAgain, words.of(t), "%w", t)
}

// attempt returns what is known of a request. Only the worker that has the request
// changes it, but for used.
func (s *Signer) attempt(session *session, r signer.Request) *attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Now()
	uid := r.Source.GetUID()
	a := s.attempts[uid]
	if a == nil {
		if len(s.attempts) >= maxAttempts {
			s.sweep(now)
		}
		a = &attempt{kind: r.SourceKind, name: types.NamespacedName{Namespace: r.Source.GetNamespace(), Name: r.Source.GetName()}}
		s.attempts[uid] = a
	}
	if a.session != session {
		a.session, a.failures, a.failed = session, 0, nil
	}
	a.used = now
	return a
}

// sweep drops the attempts of requests that nobody has asked about for long: with them
// go answers that nobody took. It is called with the lock held.
func (s *Signer) sweep(now time.Time) {
	for uid, a := range s.attempts {
		if now.Sub(a.used) > forgetAfter {
			delete(s.attempts, uid)
			s.Flights.Forget(uid)
		}
	}
}

func (s *Signer) forget(request types.UID) {
	s.mu.Lock()
	delete(s.attempts, request)
	s.mu.Unlock()
}
