// Package venafi signs requests by CyberArk Certificate Manager, formerly Venafi:
// self-hosted (TPP), SaaS (Cloud) and next-generation trust security (NGTS).
//
// A request is handed in once; what identifies it there, the pickup id, is kept on
// the request as an annotation, and the certificate is asked for by it until it is
// there. The protocol is the vcert library's, and the policy of what may be issued the
// server's: this package holds neither. Calls are made in flights, never on the
// caller's worker.
package venafi

import (
	"context"
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

const (
	// lookAgain is how soon a missing Secret is looked for beside its events.
	lookAgain = 30 * time.Second
	// idle is how long the outcome of a call is kept that nobody asks for: its object is
	// gone. sweepEvery is how often that is looked at.
	idle       = time.Hour
	sweepEvery = 10 * time.Minute
	// idleAccount is how long an account is kept that nobody uses.
	idleAccount = 24 * time.Hour
)

// Config is what a Signer needs.
type Config struct {
	// Secrets holds the credentials.
	Secrets signer.SecretReader
	// Flights makes the calls. Each of them is several exchanges with the server.
	Flights *flight.Flights
	// NotifyRequest has a request of that kind looked at again. It MUST NOT block.
	NotifyRequest func(kind string, request types.NamespacedName)
	// Doubt has an issuer looked at again that was in order: its credential was refused. It MUST NOT block.
	Doubt func(issuer types.UID)
	// UserAgent is what servers are told.
	UserAgent string
	// Now is the clock.
	Now func() time.Time
	// ClusterResourceNamespace is where the Secrets of ClusterIssuers are.
	ClusterResourceNamespace string
	// Egress says which addresses the servers of Issuers may have; nil means all.
	Egress *egress.Policy
}

// Signer implements signer.Signer and signer.Prober for issuers with spec.venafi.
type Signer struct {
	Config

	// connect opens a connection: tests put the library's own fake in its place.
	connect func(a *account, x *exchange) (connector, error)

	mu       sync.Mutex
	accounts map[types.UID]*account
	asked    map[types.UID]*inquiry
	swept    time.Time
}

// New returns a Signer.
func New(c Config) *Signer {
	return &Signer{
		Config: c, connect: (*account).connect,
		accounts: map[types.UID]*account{}, asked: map[types.UID]*inquiry{},
	}
}

var (
	_ signer.Signer = (*Signer)(nil)
	_ signer.Prober = (*Signer)(nil)
	_ signer.Remote = (*Signer)(nil)
)

// words are the reasons of one kind of request (spec §3.4, §4.5), and the keys of its
// annotations, of which the first that is there counts.
type words struct {
	secretMissing, initError, pending      string
	customFields, request, retrieve, parse string
	pickupID                               string
	customFieldKeys                        []string
}

func wordsOf(kind string) words {
	if kind == certmanagerv1.CertificateRequestKind {
		return words{
			secretMissing: "SecretMissing", initError: "VenafiInitError", pending: "IssuancePending",
			customFields: "CustomFieldsError", request: "RequestError", retrieve: "RetrieveError", parse: "ParseError",
			pickupID:        certmanagerv1.VenafiPickupIDAnnotation,
			customFieldKeys: []string{certmanagerv1.VenafiCustomFieldsAnnotation},
		}
	}
	return words{
		secretMissing: "SecretNotFound", initError: "ErrorVenafiInit", pending: "IssuancePending",
		customFields: "ErrorCustomFields", request: "ErrorRequest", retrieve: "ErrorRetrieve", parse: "ErrorParse",
		pickupID:        certmanagerv1.CSRVenafiPickupIDAnnotation,
		customFieldKeys: []string{certmanagerv1.CSRVenafiCustomFieldsAnnotation, certmanagerv1.VenafiCustomFieldsAnnotation},
	}
}

// Sign implements signer.Signer. A request that has no pickup id is handed in; the one
// that comes back is in Result.Annotations beside a fault.After.
func (s *Signer) Sign(ctx context.Context, issuer certmanagerv1.GenericIssuer, r signer.Request) (signer.Result, error) {
	if issuer.GetSpec().Venafi == nil {
		return signer.Result{}, fmt.Errorf("issuer %q has no spec.venafi", issuer.GetName())
	}
	w := wordsOf(r.SourceKind)
	fields, err := customFields(issuer.GetAnnotations(), r.Source.GetAnnotations(), w.customFieldKeys)
	if err != nil {
		return signer.Result{}, fault.Failed(fault.ClassPermanent, w.customFields, "%w", err)
	}
	order, err := newOrder(r, fields)
	if err != nil {
		return signer.Result{}, fault.Failed(fault.ClassPermanent, w.request, "%w", err)
	}
	a, err := s.account(ctx, issuer)
	if err != nil {
		return signer.Result{}, accessFault(err, w)
	}
	p := pass{Signer: s, issuer: issuer.GetUID(), account: a, r: r, words: w, order: order}
	if !r.Approved {
		return signer.Result{}, fault.Pending("", "The request is handed in to %s once it is approved", a.server)
	}
	if err := s.resting(r.Source.GetUID(), a); err != nil {
		return signer.Result{}, err
	}
	if id := r.Source.GetAnnotations()[w.pickupID]; id != "" {
		return p.retrieve(ctx, id)
	}
	return p.request()
}

// inquiry is what is remembered of an object that calls are made for.
type inquiry struct {
	// at is when it was last asked about.
	at time.Time
	// The object rests until then, for that reason, as long as the account is the same:
	// a look at it before that is by chance.
	account *account
	until   time.Time
	fault   *fault.Fault
}

// ask is Flights.Ask for a call on behalf of an object. What is not asked for again is
// forgotten in time.
func (s *Signer) ask(object types.UID, call string, a *account, run func(ctx context.Context) (any, error), landed func()) (flight.Outcome, bool) {
	now := s.Now()
	s.mu.Lock()
	s.sweep(now)
	s.asked[object] = &inquiry{at: now}
	s.mu.Unlock()
	return s.Flights.Ask(flight.Call{
		Key: flight.Key{Object: object, Call: call}, Lane: a.lane, Run: run, Landed: landed,
	})
}

// rest has a request left alone for as long as err says; it returns err.
func (s *Signer) rest(object types.UID, a *account, err error) error {
	if f := fault.Of(err); f != nil && f.Kind == fault.KindAfter {
		now := s.Now()
		s.mu.Lock()
		s.asked[object] = &inquiry{at: now, account: a, until: now.Add(f.Delay), fault: f}
		s.mu.Unlock()
	}
	return err
}

// resting returns why a request is left alone, or nil if it is not.
func (s *Signer) resting(object types.UID, a *account) error {
	now := s.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.asked[object]
	if i == nil || i.account != a || !now.Before(i.until) {
		return nil
	}
	return fault.After(i.until.Sub(now), i.fault.Reason, "%w", i.fault)
}

// sweep drops what belongs to objects that are gone. It is called with the lock held.
func (s *Signer) sweep(now time.Time) {
	if now.Sub(s.swept) < sweepEvery {
		return
	}
	s.swept = now
	for object, i := range s.asked {
		if now.Sub(i.at) > idle {
			delete(s.asked, object)
			s.Flights.Forget(object)
		}
	}
	for issuer, a := range s.accounts {
		if now.Sub(a.used) > idleAccount {
			delete(s.accounts, issuer)
			a.transport.CloseIdleConnections()
		}
	}
}
