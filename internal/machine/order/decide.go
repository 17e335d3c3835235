package order

import (
	"cmp"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/selection"
	"chancery.dev/internal/when"
)

const (
	// slowProcessing is how long a CA processes an order before the status says so.
	slowProcessing = 10 * time.Second
	// maxRefused bounds finalizes in a row that a CA refuses although it shows the order as ready.
	maxRefused = 5
	// authorizationsAtOnce bounds how many authorizations one call reads: the call has to end within its time limit,
	// however slow the CA is.
	authorizationsAtOnce = 20
	// challengesAtOnce bounds how many Challenges are made in a pass, which Orders of other namespaces wait for, and
	// challengeBytesAtOnce the solvers that they hold: none is made after these bytes.
	challengesAtOnce     = 20
	challengeBytesAtOnce = 256 << 10
)

// decision is one decision in the making.
type decision struct {
	State
	now time.Time
	// next is the status as it is known now: what is stored, and what the CA has shown
	// since. Its State is the stored one.
	next acmev1.OrderStatus
	// state is where the order stands, as last known.
	state acmev1.State
}

// Decide says what an Order needs now. It is total: every state has exactly one action.
func Decide(s State, now time.Time) Action {
	if s.Order == nil {
		return Action{Step: Done}
	}
	d := newDecision(s, now)
	switch stored := s.Order.Status; {
	case stored.State.IsFailure():
		return d.afterFailed()
	case stored.State == acmev1.Valid && len(stored.Certificate) > 0:
		return d.afterValid()
	}
	if a, due := d.addressAlone(); due {
		return a
	}
	if len(s.Memory.Chain) > 0 {
		return d.complete()
	}
	if failed := d.failedChallenge(); failed != nil {
		return d.settleFailed(failed)
	}
	if s.Memory.Running != Wait {
		return Action{}
	}
	a, blocked := d.blocked()
	if !blocked {
		a = d.progress()
	}
	return d.withAddress(a)
}

// newDecision merges what is stored with what is remembered.
func newDecision(s State, now time.Time) *decision {
	d := &decision{State: s, now: now, next: *s.Order.Status.DeepCopy(), state: s.Order.Status.State}
	remote := s.Memory.Remote
	if remote != nil {
		d.next.URL = cmp.Or(d.next.URL, remote.URL)
		d.next.FinalizeURL = cmp.Or(d.next.FinalizeURL, remote.Finalize)
		if len(d.next.Authorizations) == 0 && len(remote.Authorizations) <= d.maxAuthorizations() {
			for _, url := range remote.Authorizations {
				d.next.Authorizations = append(d.next.Authorizations, acmev1.ACMEAuthorization{URL: url})
			}
		}
		d.state = d.Memory.remoteState(remote.Status)
	}
	for i, a := range d.next.Authorizations {
		if seen, ok := s.Memory.Authorizations[a.URL]; ok && a.Identifier == "" {
			d.next.Authorizations[i] = StoredAuthorization(seen)
		}
	}
	if d.next.State == acmev1.Unknown && d.next.URL != "" {
		d.next.State = acmev1.Pending
		if d.state == acmev1.Ready {
			d.next.State = acmev1.Ready
		}
	}
	if d.state == acmev1.Unknown {
		d.state = d.next.State
	}
	return d
}

// remoteState is the state for a status of RFC 8555 §7.1.6. A CA may have further ones: where they come after finalize,
// the certificate is being made.
func (m *Memory) remoteState(status acme.Status) acmev1.State {
	switch state := acmev1.State(status); {
	case state == acmev1.Ready, state == acmev1.Processing, state == acmev1.Valid, state == acmev1.Invalid:
		return state
	case state != acmev1.Pending && !m.Finalized.IsZero():
		return acmev1.Processing
	default:
		return acmev1.Pending
	}
}

// StoredAuthorization is how an authorization is kept in an Order's status.
func StoredAuthorization(a acme.Authorization) acmev1.ACMEAuthorization {
	stored := acmev1.ACMEAuthorization{
		URL: a.URL, Identifier: a.Identifier.Value, Wildcard: new(a.Wildcard), InitialState: authorizationState(a.Status),
	}
	for _, c := range a.Challenges {
		names := c.IssuerDomainNames
		if len(names) == 0 {
			names = c.LaterDomainNames
		}
		stored.Challenges = append(stored.Challenges, acmev1.ACMEChallenge{
			URL: c.URL, Token: c.Token, Type: string(c.Type), AccountURI: c.AccountURI, IssuerDomainNames: names,
		})
	}
	return stored
}

// authorizationState is the state for a status of RFC 8555 §7.1.6. The API has no
// words for deactivated and revoked: repeating does not cure them.
func authorizationState(status acme.Status) acmev1.State {
	switch status {
	case acme.StatusValid, acme.StatusInvalid, acme.StatusExpired:
		return acmev1.State(status)
	case acme.StatusDeactivated, acme.StatusRevoked:
		return acmev1.Errored
	default:
		return acmev1.Pending
	}
}

// status is the one to write with the given failure and reason, both empty while nothing has failed, or nil if it is
// stored already.
func (d *decision) status(f acmeflow.Failure, reason string) *acmev1.OrderStatus {
	d.next.FailureClass, d.next.ProblemType, d.next.Cause = f.ShownClass(), f.ProblemType(), f.Cause(reason)
	d.next.Reason, d.next.ReasonEnd = acmeflow.WithEnd(reason, f.End), f.End
	return d.changed()
}

// wait is the action of waiting for an event, or for wake, saying why.
func (d *decision) wait(f acmeflow.Failure, reason string, wake time.Time) Action {
	return Action{Status: d.status(f, reason), Wake: wake}
}

// blocked says what keeps any step from being taken: a refusal, a missing issuer, a
// parked account, a retry that is not due.
func (d *decision) blocked() (Action, bool) {
	failure := d.Memory.Failure
	if failure != nil && d.refused(failure) {
		state, class := d.refusal(failure)
		return d.fail(state, acmeflow.Failure{Class: class, Code: acmeflow.CodeOf(failure)}, failedTo(d.Memory.Failed)+failure.Error()), true
	}
	if reason, ok := d.Issuer.Blocks(d.Order.Spec.IssuerRef.Name); ok {
		if reason == "" {
			return Action{}, true
		}
		return d.wait(acmeflow.FailureOf(fault.ClassConfiguration), reason, time.Time{}), true
	}
	if until := d.Account.ParkedUntil; d.now.Before(until) {
		if until.Sub(d.now) <= acmeflow.ShortPark {
			return Action{Wake: until}, true
		}
		return d.wait(acmeflow.Failure{Class: fault.ClassRateLimited, Next: until}, d.Account.WhyParked(), until), true
	}
	if failure == nil {
		return Action{}, false
	}
	if d.Memory.Failed == Finalize && failure.Class == fault.ClassNotReady {
		return Action{}, false // the order is looked at, at its own pace
	}
	if d.mayBlameReplaces() {
		return Action{}, false
	}
	if wake := d.retryAt(); d.now.Before(wake) {
		if failure.Class == fault.ClassNotProcessed {
			return Action{Wake: wake}, true
		}
		why := acmeflow.FailureOfCall(failure)
		if why.End = acmeflow.Retrying(failure, wake); acmeflow.NamesTime(failure) {
			why.Next = wake
		}
		return d.wait(why, failedTo(d.Memory.Failed)+failure.Error(), wake), true
	}
	return Action{}, false
}

// refused reports whether the failure ends the order: no retry cures it.
func (d *decision) refused(f *fault.Fault) bool {
	switch {
	case d.Memory.Failed == Deactivate, f.MayPass(), d.mayBlameReplaces():
		return false
	case d.Memory.Failed == Finalize && f.Class == fault.ClassNotReady:
		return false
	default:
		return true
	}
}

// refusal is how an order ends that the CA refuses: expired where the CA no longer knows an order past its
// expiry. Only a CA that has refused what the Order asks for makes a failure permanent. Where the CA has
// forgotten something of its own, or answered in no way that ACME knows, another Order may well succeed.
func (d *decision) refusal(f *fault.Fault) (acmev1.State, fault.Class) {
	remote, step := d.Memory.Remote, d.Memory.Failed
	content := step == Create || step == Finalize // the steps that carry what was asked for
	switch {
	case acmeflow.IsGone(f) && remote != nil && !remote.Expires.IsZero() && !d.now.Before(remote.Expires):
		return acmev1.Expired, fault.ClassValidation
	case content && (f.Class == fault.ClassPermanent || acmeflow.CodeOf(f) == acme.CodeMalformed && f.Class != fault.ClassNotFound):
		return acmev1.Errored, fault.ClassPermanent
	default:
		return acmev1.Errored, fault.ClassRefused
	}
}

// retryAt is when the failed step may be tried again.
func (d *decision) retryAt() time.Time {
	m := d.Memory
	if m.Failed == Finalize {
		m.Failures = max(m.Failures, m.Unfinalized)
	}
	return m.RetryAt()
}

// failedTo opens the reason of a failed step (spec §5.3).
func failedTo(step Step) string {
	return map[Step]string{
		Create:              "Failed to create Order: ",
		Fetch:               "Failed to retrieve Order resource: ",
		FetchAuthorizations: "Failed to retrieve authorizations: ",
		Finalize:            "Failed to finalize Order: ",
		Download:            "Failed to download certificate: ",
		Deactivate:          "Failed to deactivate authorizations: ",
	}[step]
}

// progress takes the next step of an order that nothing blocks.
func (d *decision) progress() Action {
	m := d.Memory
	if n := d.maxAuthorizations(); m.Remote != nil && len(m.Remote.Authorizations) > n {
		return d.fail(acmev1.Errored, acmeflow.FailureOf(fault.ClassUnavailable), fmt.Sprintf(
			"The ACME server lists more than %d authorizations for an order of %d names", n, len(Identifiers(d.Order.Spec))))
	}
	switch {
	case d.next.URL == "":
		return d.create()
	case m.Look, m.Remote == nil && (d.next.FinalizeURL == "" || len(d.next.Authorizations) == 0):
		return d.look()
	case d.next.FinalizeURL == "" && (d.state == acmev1.Pending || d.state == acmev1.Ready):
		a := d.poll()
		if a.Status == nil {
			a.Status = d.status(acmeflow.FailureOf(fault.ClassUnavailable), "The ACME server sent an order without the address to finalize it at (RFC 8555 §7.1.3); asking again")
		}
		return a
	}
	switch d.state {
	case acmev1.Invalid:
		return d.remoteInvalid()
	case acmev1.Valid:
		if m.Remote != nil && m.Remote.Certificate != "" {
			return Action{Step: Download, URL: m.Remote.Certificate, PreferredChain: d.Issuer.PreferredChain}
		}
		return d.poll()
	case acmev1.Processing:
		return d.processing()
	case acmev1.Ready:
		return d.finalize()
	default:
		return d.authorize()
	}
}

// maxAuthorizations bounds how many authorizations the CA may list: RFC 8555 §7.1.3 leaves their
// number to the CA, and real CAs list one for each name.
func (d *decision) maxAuthorizations() int {
	return 2*len(Identifiers(d.Order.Spec)) + limits.FurtherAuthorizations
}

// look fetches the order at once.
func (d *decision) look() Action {
	return Action{Step: Fetch, URL: d.next.URL}
}

// poll fetches the order at the CA's pace, until the CA must have given it up.
func (d *decision) poll() Action {
	m := d.Memory
	if m.Remote == nil {
		return d.look()
	}
	if expires := m.Remote.Expires; !expires.IsZero() && m.RemoteAt.After(expires.Add(acmeflow.ExpiryGrace)) {
		return d.fail(acmev1.Errored, acmeflow.FailureOf(fault.ClassUnavailable), fmt.Sprintf("The ACME server still showed the order as %s long after it expired", d.state))
	}
	if wake := m.RemoteAt.Add(acmeflow.PollDelay(m.Polls, m.Remote.RetryAfter)); d.now.Before(wake) {
		return Action{Wake: wake}
	}
	return d.look()
}

// processing polls; the state is only written if the CA takes its time.
func (d *decision) processing() Action {
	a := d.poll()
	m := d.Memory
	if m.Remote == nil || a.Status != nil {
		return a
	}
	since := m.Finalized
	if since.IsZero() {
		since = m.RemoteAt
	}
	if m.Remote.RetryAfter >= slowProcessing || d.now.Sub(since) >= slowProcessing {
		d.next.State = acmev1.Processing
		a.Status = d.status(acmeflow.FailureOf(""), "Waiting for the ACME server to issue the certificate")
	}
	return a
}

// finalize posts the signing request.
func (d *decision) finalize() Action {
	csr := CSRBytes(d.Order.Spec.Request)
	if len(csr) == 0 {
		return d.fail(acmev1.Errored, acmeflow.FailureOf(fault.ClassPermanent), failedTo(Finalize)+"spec.request is empty")
	}
	if d.Memory.Refused >= maxRefused {
		return d.refusedToFinalize()
	}
	if m := d.Memory; m.Refused > 0 {
		if wake := m.RemoteAt.Add(fault.Finalizes.With("").Step(m.Refused)); d.now.Before(wake) {
			return Action{Wake: wake}
		}
	}
	return Action{Step: Finalize, URL: d.next.FinalizeURL, CSR: csr}
}

// refusedToFinalize ends an order that the CA keeps refusing to finalize.
func (d *decision) refusedToFinalize() Action {
	why, detail := acmeflow.FailureOf(fault.ClassRefused), ""
	if f := d.Memory.Refusal; f != nil {
		detail, why.Code = f.Error(), acmeflow.CodeOf(f)
		if why.Code.RefusesContent() {
			why.Class = fault.ClassPermanent
		}
	}
	return d.fail(acmev1.Errored, why, failedTo(Finalize)+detail)
}

// CSRBytes is the DER of a request that is PEM, or DER already (spec §5.3 k).
func CSRBytes(request []byte) []byte {
	if block, _ := pem.Decode(request); block != nil {
		return block.Bytes
	}
	return request
}

// remoteInvalid ends an order that the CA shows as invalid.
func (d *decision) remoteInvalid() Action {
	remote := d.Memory.Remote
	if remote == nil {
		return d.look()
	}
	if !remote.Expires.IsZero() && !d.now.Before(remote.Expires) && remote.Error == nil {
		return d.fail(acmev1.Expired, acmeflow.FailureOf(fault.ClassValidation), "The order expired at the ACME server before it was finalized")
	}
	return d.fail(acmev1.Invalid, acmeflow.Failure{Class: acme.ClassOfInvalid(remote.Error), Code: remote.Error.Cause()}, "The ACME server shows the order as invalid: "+cmp.Or(acmeflow.TextOf(remote.Error), "it gives no reason"))
}

// authorize gets every name authorized, through Challenges.
func (d *decision) authorize() Action {
	if missing := d.unreadAuthorizations(); len(missing) > 0 {
		return Action{Step: FetchAuthorizations, URLs: missing[:min(len(missing), authorizationsAtOnce)]}
	}
	for _, a := range d.next.Authorizations {
		if a.InitialState.IsFailure() {
			return d.fail(acmev1.Invalid, acmeflow.FailureOf(fault.ClassValidation), fmt.Sprintf("The ACME server shows the authorization of %q as %s", a.Identifier, a.InitialState))
		}
	}
	plan, err := d.planChallenges()
	switch {
	case err != nil:
		return d.noSolver(plan.unsolved, err)
	case len(plan.remove) > 0:
		return Action{Status: d.status(acmeflow.FailureOf(""), ""), Step: DeleteChallenges, Delete: plan.remove}
	case len(plan.create) > 0:
		d.noteSolvers(plan.choices)
		return Action{Status: d.status(acmeflow.FailureOf(""), ""), Step: CreateChallenges, Challenges: plan.create}
	case plan.open > 0:
		a := d.awaitChallenges()
		a.Wake = when.Earliest(a.Wake, plan.due)
		return a
	case d.Memory.Refused > 0 && d.Memory.Polls >= acmeflow.LongPolls:
		// An authorization that has ended since we saw it is not shown in the order.
		return d.refusedToFinalize()
	case d.Memory.Refused > 0:
		return d.poll() // the order of the CA does not show yet that its authorizations are valid
	default:
		return d.finalize()
	}
}

func (d *decision) unreadAuthorizations() []string {
	var urls []string
	for _, a := range d.next.Authorizations {
		if a.Identifier == "" {
			urls = append(urls, a.URL)
		}
	}
	return urls
}

// noSolver says that no solver fits a name, or that the one that does is too large, until the issuer changes or the
// order expires.
func (d *decision) noSolver(name string, err error) Action {
	if a, due := d.expired(); due {
		return a
	}
	wake := d.expiry()
	if m := d.Memory; len(d.Issuer.Solvers) == 0 && m.Remote != nil { // meanwhile the CA may have been told to ask for no proof
		again := m.RemoteAt.Add(d.Settings.OrderRefresh)
		if !d.now.Before(again) {
			return d.look()
		}
		wake = when.Earliest(wake, again)
	}
	a := d.wait(acmeflow.Failure{Class: fault.ClassConfiguration, Subject: name, NoSolver: !errors.Is(err, selection.ErrTooLarge)}, err.Error(), wake)
	if a.Status != nil {
		a.Event = &acmeflow.Event{Warning: true, Reason: acmev1.OrderReasonSolver, Message: err.Error()}
	}
	return a
}

// awaitChallenges waits for the Challenges, at the latest until the order expires, and says what they wait for.
func (d *decision) awaitChallenges() Action {
	if a, due := d.expired(); due {
		return a
	}
	return d.passOn()
}

// expiry is when to look whether the CA has given up the order.
func (d *decision) expiry() time.Time {
	if d.Memory.Remote == nil {
		return d.Order.CreationTimestamp.Add(d.Settings.OrderRefresh)
	}
	return d.Settings.LookAgain(d.Memory.RemoteAt, d.Memory.Remote.Expires)
}

// expired looks at the order once it should have expired, and gives it up when the CA still does not say so long after.
func (d *decision) expired() (Action, bool) {
	if d.now.Before(d.expiry()) {
		return Action{}, false
	}
	remote := d.Memory.Remote
	if remote != nil && !remote.Expires.IsZero() && !d.now.Before(remote.Expires.Add(acmeflow.ExpiryGrace)) {
		return d.fail(acmev1.Expired, acmeflow.FailureOf(fault.ClassValidation), "The order expired before all names were authorized"), true
	}
	return d.look(), true
}

// mayBlameReplaces reports whether the CA may have refused the order because of the field replaces. CAs disagree about
// the problem type of that refusal (RFC 9773 §5 names one), so an order that was refused once is sent again without
// the field: the field is only a hint to the CA.
func (d *decision) mayBlameReplaces() bool {
	m := d.Memory
	return m.Failed == Create && !m.Failure.MayPass() && d.Order.Spec.Replaces != "" && m.CreateRefused == 1
}

// doubtsReplaces reports whether the field replaces is left out: after a refusal, and in every third attempt in a row
// that fails as unavailable. Some CAs fail with an error of their own because of the field. Other such errors pass, and
// then the field is useful: so most attempts keep it.
func (d *decision) doubtsReplaces() bool {
	m := d.Memory
	return m.CreateRefused > 0 || m.Failed == Create && m.Failure.Class == fault.ClassUnavailable && m.Failures%3 == 2
}

// newOrder is the body of the newOrder request.
func (d *decision) newOrder() NewOrder {
	spec := d.Order.Spec
	revision := d.Order.Annotations[certmanagerv1.CertificateRevisionAnnotation]
	n := NewOrder{
		Renewal: spec.Replaces != "", Namespace: d.Order.Namespace, Share: d.Issuer.Share,
		Reissue: revision != "" && revision != "1",
	}
	n.Identifiers, n.Profile, n.Replaces = Identifiers(spec), spec.Profile, spec.Replaces
	if d.doubtsReplaces() {
		n.Replaces = ""
	}
	if spec.Duration != nil {
		n.NotAfter = d.now.Add(spec.Duration.Duration)
	}
	return n
}
