// Package venafi asks CyberArk Certificate Manager (formerly Venafi) to sign requests. There are three products:
// self-hosted (TPP), SaaS (Cloud) and next-generation trust security (NGTS).
//
// The package submits a request, and the server returns a pickup ID for the request. An annotation of the request keeps
// the pickup ID. For a request with a pickup ID, the package only fetches the issued certificate by this ID. The vcert
// library speaks the protocol, and the server's policy decides what may be issued. All calls block. internal/engine
// decides when to call this package, and when to repeat a call.
package venafi

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/egress"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/kube/credential"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/signer"
)

const (
	// callsAtOnce and callTimeout bound the calls to one server for the issuers of one namespace. A call is several
	// exchanges.
	callsAtOnce = 8
	callTimeout = 2 * time.Minute
	// callBytes is what a call takes with the largest answer: up to 6 MiB were measured, and headers come on top.
	callBytes = 8 * limits.OneCall
	// tokenAgain is how soon a token is verified again that has ended by our clock, and that the server still accepts.
	tokenAgain = 5 * time.Minute
)

// Config is what a Signer needs.
type Config struct {
	// Secrets holds the credentials.
	Secrets credential.Reader
	// UserAgent is what servers are told.
	UserAgent string
	// Now is the clock.
	Now func() time.Time
	// ClusterResourceNamespace is where the Secrets of ClusterIssuers are.
	ClusterResourceNamespace string
	// Egress says which addresses the servers of Issuers may have; nil means all.
	Egress *egress.Policy
	// Observe is told of each request when it is over: what it was for, and the status of the answer, 0 if none came.
	// nil: nobody is told.
	Observe func(call string, status int, took time.Duration)
}

// Signer implements signer.Signer, signer.Prober and signer.Remote for issuers with spec.venafi.
type Signer struct {
	Config

	// connect opens a connection: tests put the library's own fake in its place.
	connect  func(a *session, x *exchange) (connector, error)
	accounts signer.Kept[*session]
	// comparing has room for the one comparison with a policy that is made at a time.
	comparing *turns
}

// New returns a Signer.
func New(c Config) *Signer {
	return &Signer{Config: c, connect: (*session).connect, comparing: newTurns(), accounts: signer.Kept[*session]{
		Size: (*session).size,
		Drop: func(a *session) { a.transport.CloseIdleConnections() },
	}}
}

// Forget implements signer.Forgetter.
func (s *Signer) Forget(issuer types.UID) { s.accounts.Forget(issuer) }

var (
	_ signer.Signer = (*Signer)(nil)
	_ signer.Prober = (*Signer)(nil)
	_ signer.Remote = (*Signer)(nil)

	_ signer.Forgetter = (*Signer)(nil)
)

// Lane implements signer.Remote.
func (s *Signer) Lane(issuer certmanagerv1.GenericIssuer) engine.Lane {
	server := "without a server"
	switch spec := issuer.GetSpec().Venafi; {
	case spec.TPP != nil:
		server = spec.TPP.URL
	case spec.Cloud != nil:
		server = cmp.Or(spec.Cloud.URL, cloudURL)
	case spec.NGTS != nil:
		server = cmp.Or(spec.NGTS.URL, ngtsURL)
	}
	namespace := signer.ResourceNamespace(issuer, s.ClusterResourceNamespace)
	return engine.Lane{Name: "Certificate Manager " + server + " for " + namespace, Limit: callsAtOnce, Timeout: callTimeout, Bytes: callBytes}
}

// Probe implements signer.Prober: it logs in and looks at the zone.
func (s *Signer) Probe(ctx context.Context, issuer certmanagerv1.GenericIssuer) (signer.Facts, error) {
	if issuer.GetSpec().Venafi == nil {
		return signer.Facts{}, fmt.Errorf("issuer %q has no spec.venafi", issuer.GetName())
	}
	a, err := s.account(ctx, issuer)
	if f := fault.Of(err); f != nil {
		return signer.Facts{}, fault.Pending(certmanagerv1.IssuerReasonVenafiErrorSetup, "%w", f.Err)
	}
	if err != nil {
		return signer.Facts{}, err
	}
	ends, err := a.verify(ctx)
	if err != nil {
		return signer.Facts{}, probeFault(err)
	}
	if now := s.Now(); !ends.IsZero() && !ends.After(now) {
		ends = now.Add(tokenAgain)
	}
	const reason = certmanagerv1.IssuerReasonVenafiReady
	return signer.Facts{Ready: true, Reason: reason, Message: reason, LeftOut: a.leftOut, Until: ends}, nil
}

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
			secretMissing: "SecretMissing", initError: "VenafiInitError", pending: signer.ReasonPending,
			customFields: "CustomFieldsError", request: "RequestError", retrieve: "RetrieveError", parse: "ParseError",
			pickupID:        certmanagerv1.VenafiPickupIDAnnotation,
			customFieldKeys: []string{certmanagerv1.VenafiCustomFieldsAnnotation},
		}
	}
	return words{
		secretMissing: "SecretNotFound", initError: "ErrorVenafiInit", pending: signer.ReasonPending,
		customFields: "ErrorCustomFields", request: "ErrorRequest", retrieve: "ErrorRetrieve", parse: "ErrorParse",
		pickupID:        certmanagerv1.CSRVenafiPickupIDAnnotation,
		customFieldKeys: []string{certmanagerv1.CSRVenafiCustomFieldsAnnotation, certmanagerv1.VenafiCustomFieldsAnnotation},
	}
}

// Sign implements signer.Signer. It hands in a request without a pickup id: then the result has a pickup id to store,
// and comes with a fault.Pending. For a request with a pickup id, Sign fetches the certificate. If the pickup id is
// lost before it is stored, Sign hands the request in again. A TPP server takes it for the same object.
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
	waited := s.Now().Sub(r.Source.GetCreationTimestamp().Time)
	if id := r.Source.GetAnnotations()[w.pickupID]; id != "" {
		result, err := a.collect(ctx, order, id, w)
		return result, w.fault(err, w.retrieve, waited)
	}
	id, err := a.request(ctx, order)
	if err != nil {
		return signer.Result{}, w.fault(err, w.request, waited)
	}
	return signer.Result{Annotations: map[string]string{w.pickupID: id}}, fault.Pending("", "The request was handed in to %s", a.server)
}

// collect asks for the certificate, and makes the request's result of it.
func (a *session) collect(ctx context.Context, order order, id string, w words) (signer.Result, error) {
	got, err := a.retrieve(ctx, order, id)
	if err != nil {
		return signer.Result{}, err
	}
	if got == nil {
		return signer.Result{}, fault.Failed(fault.ClassUnavailable, w.retrieve, "%s gave no certificate", a.server)
	}
	bundle, err := order.bundle(ctx, got)
	switch {
	case ctx.Err() != nil:
		return signer.Result{}, a.classify(&exchange{err: ctx.Err()}, ctx.Err())
	case err != nil:
		return signer.Result{}, fault.Failed(fault.ClassUnavailable, w.parse, "what %s gave cannot be used: %s", a.server, fault.Quote(err.Error()))
	}
	result := signer.Result{Bundle: bundle}
	if a.product != productTPP && order.hasCustomFields() {
		result.WarningReason = "CustomFieldsIgnored"
		result.Warning = "the certificate was issued without its custom fields: only self-hosted Certificate Manager (spec.venafi.tpp) takes them"
	}
	return result, nil
}
