package order

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/account"
	"chancery.dev/internal/machine/acmeflow"
)

// Step is the one thing that an Order needs now. The order is that of an issuance.
type Step int

const (
	// Wait: nothing to do before Action.Wake or an event.
	Wait Step = iota
	// Create: POST newOrder with Action.NewOrder. External. Outcome: Order.
	Create
	// Fetch: POST-as-GET of Action.URL, the order. External. Outcome: Order.
	Fetch
	// FetchAuthorizations: POST-as-GET of all Action.URLs, in parallel; there may be more to read after them.
	// External. Outcome: Authorizations, all of them; or Failure if any failed.
	FetchAuthorizations
	// DeleteChallenges: delete the Challenges named in Action.Delete. Local. Not found is fine.
	DeleteChallenges
	// CreateChallenges: create Action.Challenges. Local. Already exists is fine.
	CreateChallenges
	// Finalize: POST Action.CSR to Action.URL. External. Outcome: Order. An answer of 403, whatever
	// its problem type, is a fault.ClassNotReady.
	Finalize
	// Download: POST-as-GET of Action.URL, the certificate. External. Outcome: Chain, the first chain for which
	// ChainMatches holds if Action.PreferredChain is not empty, and the default chain if there is no such chain.
	// Alternates are fetched only if they are needed.
	Download
	// Deactivate: deactivate the authorizations at Action.URLs (RFC 8555 §7.5.2), ignoring those that
	// the CA no longer knows. External; if there is no client, the outcome is an
	// fault.ClassRefused. Outcome: nothing but a Failure, if any.
	Deactivate
	// Done: nothing will ever be needed again; Memory may be dropped.
	Done
)

// String returns the name of the step.
func (s Step) String() string {
	return [...]string{
		"Wait", "Create", "Fetch", "FetchAuthorizations", "DeleteChallenges", "CreateChallenges",
		"Finalize", "Download", "Deactivate", "Done",
	}[s]
}

// External reports whether the step leaves the cluster and has an outcome.
func (s Step) External() bool {
	return slices.Contains([]Step{Create, Fetch, FetchAuthorizations, Finalize, Download, Deactivate}, s)
}

// State is all that decides about an Order.
type State struct {
	// Order is the object, own writes included. It is not changed.
	Order *acmev1.Order
	// Made says that this process has made the Order: no other can have ordered for it.
	Made bool
	// Challenges are those that the Order controls, own writes included. They are not changed.
	Challenges []*acmev1.Challenge
	// CleaningUp are those of them whose clean-up was sent, and has not come back.
	CleaningUp map[types.UID]bool
	// Issuer is the one that the Order names.
	Issuer acmeflow.Issuer
	// Account is the issuer's.
	Account acmeflow.AccountState
	// Memory is what this process has learned from outcomes.
	Memory Memory
	// Settings are the configurable times.
	Settings acmeflow.Settings
}

// Action is what to do for an Order.
type Action struct {
	// Status is to be written first, as a whole; nil if it has not changed. Cause says that it tells what a
	// Challenge waits for.
	Status *acmev1.OrderStatus
	Cause  bool
	// Step is to be done then.
	Step Step
	// Event is to be emitted; may be nil.
	Event *acmeflow.Event
	// Wake is when to decide again at the latest; zero if only an event helps.
	Wake time.Time

	// NewOrder is the body for Create.
	NewOrder NewOrder
	// URL is what Fetch, Finalize and Download call.
	URL string
	// URLs are what FetchAuthorizations and Deactivate call.
	URLs []string
	// CSR is DER, for Finalize.
	CSR []byte
	// PreferredChain is for Download; may be empty.
	PreferredChain string
	// Challenges are to be created, complete with name, owner and finalizer.
	Challenges []*acmev1.Challenge
	// Delete names Challenges to delete.
	Delete []string
}

// NewOrder is the body of a newOrder request (RFC 8555 §7.4, RFC 9773 §5), and what its sender has to know
// beside the body.
type NewOrder struct {
	acme.NewOrderRequest

	// Renewal says that the order renews a known certificate, even if this attempt leaves out Replaces.
	Renewal bool
	// Namespace is that of the Order, Share how many orders the issuer lets each namespace make, and Reissue says that
	// the order is for a certificate that has been issued before.
	Namespace string
	Share     account.Share
	Reissue   bool
}

// Outcome is what an external step came back with.
type Outcome struct {
	// Step is the one that came back, and At is when.
	Step Step
	At   time.Time
	// Jitter in [0,1) spreads retries.
	Jitter float64
	// Failure is nil if the step succeeded.
	Failure *fault.Fault
	// Order is the answer to Create, Fetch and Finalize.
	Order *acme.Order
	// Authorizations is the answer to FetchAuthorizations.
	Authorizations []acme.Authorization
	// Chain is the answer to Download, PEM.
	Chain []byte
}

// Memory is what a process has learned from outcomes. The zero value knows nothing.
type Memory struct {
	acmeflow.Attempts[Step]

	// Began is when this process first saw the Order, WroteAt when it last wrote the status, and Cause says whether
	// that told what a Challenge waits for.
	Began, WroteAt time.Time
	Cause          bool
	// Unmade counts how often the API server refused to create a Challenge, Barred is the last cause; nil for none.
	Unmade cause.Refusals
	Barred *cmmeta.Cause
	// Unwritten says that the last write of the status was not taken.
	Unwritten bool
	// Remote is the order as last seen at RemoteAt; nil if never.
	Remote   *acme.Order
	RemoteAt time.Time
	// Authorizations are those read, by URL.
	Authorizations map[string]acme.Authorization
	// Chain is the downloaded certificate with its issuers.
	Chain []byte
	// Finalized is when finalize was accepted; zero if not.
	Finalized time.Time
	// Polls counts how often the order was read since Finalized, or since finalize was refused.
	Polls int
	// Refused counts finalizes in a row that were answered "not ready", and Refusal is
	// what the last one said; nil if there is none.
	Refused int
	Refusal *fault.Fault
	// Unfinalized counts finalizes in a row that failed.
	Unfinalized int
	// Look says that the order has to be read before anything else is done.
	Look bool
	// CreateRefused counts newOrder requests that the CA has refused for good: after the
	// first, the field replaces is left out.
	CreateRefused int
	// Deactivated is set once what the failed order left pending has been deactivated, or given up.
	Deactivated bool
}

// Started returns the memory with step under way.
func (m Memory) Started(step Step, now time.Time) Memory {
	m.Running, m.Since = step, now
	return m
}

// After returns the memory with what the outcome tells.
func (m Memory) After(o Outcome) Memory {
	m.Finished()
	if slices.ContainsFunc(o.Authorizations, func(a acme.Authorization) bool { return a.Identifier.Value == "" }) {
		o.Failure = acmeflow.NewFault(fault.ClassUnavailable, "the ACME server sent an authorization without an identifier (RFC 8555 §7.1.4)")
	}
	known := m.withAuthorizations(o.Authorizations)
	if len(o.Authorizations) > 0 && sizeOf(known) > min(maxAuthorizations, len(known)*maxAuthorization) {
		o.Failure = acmeflow.NewFault(fault.ClassRefused, "the authorizations of the ACME server are too long for the status of an Order")
	}
	if o.Step == Download && o.Failure == nil && len(o.Chain) == 0 {
		o.Failure = acmeflow.NewFault(fault.ClassUnavailable, "the ACME server sent an empty chain")
	}
	if o.Failure = m.Certain(o.Step, o.Failure); o.Failure != nil {
		return m.afterFailure(o)
	}
	m.Attempts = acmeflow.Attempts[Step]{}
	switch o.Step {
	case Create, Fetch, Finalize:
		m = m.sawOrder(o)
	case FetchAuthorizations:
		m.Authorizations = known
	case Download:
		m.Chain = o.Chain
	case Deactivate:
		m.Deactivated = true
	default: // local steps have no outcome
	}
	return m
}

// withAuthorizations are the known authorizations and those that were read now.
func (m Memory) withAuthorizations(read []acme.Authorization) map[string]acme.Authorization {
	known := make(map[string]acme.Authorization, len(m.Authorizations)+len(read))
	maps.Copy(known, m.Authorizations)
	for _, a := range read {
		known[a.URL] = a
	}
	return known
}

const (
	// maxAuthorizations bounds, in bytes, the authorizations in the status of an Order: etcd takes
	// objects of 1.5 MiB. maxAuthorization bounds their average.
	maxAuthorizations = 1 << 20
	maxAuthorization  = 32 << 10
)

// sizeOf is how many bytes of JSON the authorizations take in a status.
func sizeOf(authorizations map[string]acme.Authorization) int {
	size := 0
	for _, a := range authorizations {
		text, _ := json.Marshal(StoredAuthorization(a)) // plain fields: it never fails
		size += len(text)
	}
	return size
}

func (m Memory) sawOrder(o Outcome) Memory {
	if o.Order == nil {
		o.Failure = acmeflow.NewFault(fault.ClassUnavailable, "the ACME server sent no order")
		return m.afterFailure(o)
	}
	remote := *o.Order
	if m.Remote != nil {
		// Answers to finalize need not repeat what has been said before.
		remote.URL = cmp.Or(remote.URL, m.Remote.URL)
		remote.Finalize = cmp.Or(remote.Finalize, m.Remote.Finalize)
		if remote.Expires.IsZero() {
			remote.Expires = m.Remote.Expires
		}
		if len(remote.Authorizations) == 0 {
			remote.Authorizations = m.Remote.Authorizations
		}
	}
	m.Remote, m.RemoteAt, m.Look = &remote, o.At, false
	switch {
	case o.Step != Finalize:
		m.Polls++
	case remote.Status == acme.StatusReady, remote.Status == acme.StatusPending, remote.Status == "":
		// The CA has accepted the request and done nothing, which is a refusal.
		o.Failure = acmeflow.NewFault(fault.ClassNotReady, "the ACME server took the request, and still shows the order as "+string(remote.Status))
		return m.afterFailure(o)
	default:
		m.Finalized, m.Polls, m.Refused, m.Unfinalized = o.At, 0, 0, 0
	}
	return m
}

func (m Memory) afterFailure(o Outcome) Memory {
	switch {
	case o.Step == Create && !o.Failure.MayPass():
		m.CreateRefused++
	case o.Step == Finalize && o.Failure.Class == fault.ClassNotReady:
		m.Refused, m.Refusal = m.Refused+1, o.Failure
		m.Polls, m.Look = 0, true
	case o.Step == Finalize && o.Failure.MayPass():
		// The CA may have acted although its answer was lost: look first.
		m.Polls, m.Look = 0, true
	}
	if o.Step == Finalize {
		m.Unfinalized++
	}
	m.Fail(o.Step, o.Failure, o.At, o.Jitter)
	if o.Step == Deactivate && (!o.Failure.MayPass() || m.Failures >= maxDeactivations) {
		m.Deactivated = true
	}
	return m
}
