package acmeflow

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
	"chancery.dev/internal/machine/selection"
	"chancery.dev/internal/when"
)

const (
	// expiryGrace is how long after its expiry a CA may still show an order as pending before the order is given up:
	// the clock of the CA may be late.
	expiryGrace = time.Hour
	// expiryPoll is the time between looks at an order that has expired by our clock.
	expiryPoll = time.Minute
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

// orderDecision is one decision in the making.
type orderDecision struct {
	OrderState
	now time.Time
	// next is the status as it is known now: what is stored, and what the CA has shown
	// since. Its State is the stored one.
	next acmev1.OrderStatus
	// state is where the order stands, as last known.
	state acmev1.State
}

// DecideOrder says what an Order needs now. It is total: every state has exactly one action.
func DecideOrder(s OrderState, now time.Time) OrderAction {
	if s.Order == nil {
		return OrderAction{Step: OrderDone}
	}
	d := newOrderDecision(s, now)
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
	if s.Memory.Running != OrderWait {
		return OrderAction{}
	}
	a, blocked := d.blocked()
	if !blocked {
		a = d.progress()
	}
	return d.withAddress(a)
}

// newOrderDecision merges what is stored with what is remembered.
func newOrderDecision(s OrderState, now time.Time) *orderDecision {
	d := &orderDecision{OrderState: s, now: now, next: *s.Order.Status.DeepCopy(), state: s.Order.Status.State}
	remote := s.Memory.Remote
	if remote != nil {
		d.next.URL = cmp.Or(d.next.URL, remote.URL)
		d.next.FinalizeURL = cmp.Or(d.next.FinalizeURL, remote.Finalize)
		if len(d.next.Authorizations) == 0 && len(remote.Authorizations) <= d.maxAuthorizations() {
			for _, url := range remote.Authorizations {
				d.next.Authorizations = append(d.next.Authorizations, acmev1.ACMEAuthorization{URL: url})
			}
		}
		d.state = remoteOrderState(remote.Status)
	}
	for i, a := range d.next.Authorizations {
		if seen, ok := s.Memory.Authorizations[a.URL]; ok && a.Identifier == "" {
			d.next.Authorizations[i] = storedAuthorization(seen)
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

// remoteOrderState is the state for a status of RFC 8555 §7.1.6.
func remoteOrderState(status acme.Status) acmev1.State {
	switch state := acmev1.State(status); state {
	case acmev1.Ready, acmev1.Processing, acmev1.Valid, acmev1.Invalid:
		return state
	default:
		return acmev1.Pending
	}
}

// storedAuthorization is how an authorization is kept in an Order's status.
func storedAuthorization(a acme.Authorization) acmev1.ACMEAuthorization {
	stored := acmev1.ACMEAuthorization{
		URL: a.URL, Identifier: a.Identifier.Value, Wildcard: new(a.Wildcard), InitialState: authorizationState(a.Status),
	}
	for _, c := range a.Challenges {
		stored.Challenges = append(stored.Challenges, acmev1.ACMEChallenge{
			URL: c.URL, Token: c.Token, Type: string(c.Type), AccountURI: c.AccountURI, IssuerDomainNames: c.IssuerDomainNames,
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
func (d *orderDecision) status(f failed, reason string) *acmev1.OrderStatus {
	d.next.FailureClass, d.next.ProblemType, d.next.Cause = f.shown(), f.problemType(), f.cause(reason)
	d.next.Reason, d.next.ReasonEnd = ending(reason, f.end), f.end
	return d.changed()
}

// wait is the action of waiting for an event, or for wake, saying why.
func (d *orderDecision) wait(f failed, reason string, wake time.Time) OrderAction {
	return OrderAction{Status: d.status(f, reason), Wake: wake}
}

// blocked says what keeps any step from being taken: a refusal, a missing issuer, a
// parked account, a retry that is not due.
func (d *orderDecision) blocked() (OrderAction, bool) {
	failure := d.Memory.Failure
	if failure != nil && d.refused(failure) {
		state, class := d.refusal(failure)
		return d.fail(state, failed{class: class, code: codeOf(failure)}, failedTo(d.Memory.Failed)+failure.Error()), true
	}
	if reason, ok := d.Issuer.blocks(d.Order.Spec.IssuerRef.Name); ok {
		if reason == "" {
			return OrderAction{}, true
		}
		return d.wait(of(fault.ClassConfiguration), reason, time.Time{}), true
	}
	if until := d.Account.ParkedUntil; d.now.Before(until) {
		if until.Sub(d.now) <= shortPark {
			return OrderAction{Wake: until}, true
		}
		return d.wait(failed{class: fault.ClassRateLimited, next: until}, d.Account.parkedReason(), until), true
	}
	if failure == nil {
		return OrderAction{}, false
	}
	if d.Memory.Failed == OrderFinalize && failure.Class == fault.ClassNotReady {
		return OrderAction{}, false // the order is looked at, at its own pace
	}
	if d.mayBlameReplaces() {
		return OrderAction{}, false
	}
	if wake := d.retryAt(); d.now.Before(wake) {
		if failure.Class == fault.ClassNotProcessed {
			return OrderAction{Wake: wake}, true
		}
		why := failedBy(failure)
		if why.end = retrying(failure, wake); names(failure) {
			why.next = wake
		}
		return d.wait(why, failedTo(d.Memory.Failed)+failure.Error(), wake), true
	}
	return OrderAction{}, false
}

// refused reports whether the failure ends the order: no retry cures it.
func (d *orderDecision) refused(f *fault.Fault) bool {
	switch {
	case d.Memory.Failed == OrderDeactivate, f.MayPass(), d.mayBlameReplaces():
		return false
	case d.Memory.Failed == OrderFinalize && f.Class == fault.ClassNotReady:
		return false
	default:
		return true
	}
}

// refusal is how an order ends that the CA refuses: expired where the CA no longer knows an order past its
// expiry. Only a CA that has refused what the Order asks for makes a failure permanent. Where the CA has
// forgotten something of its own, or answered in no way that ACME knows, another Order may well succeed.
func (d *orderDecision) refusal(f *fault.Fault) (acmev1.State, fault.Class) {
	remote, step := d.Memory.Remote, d.Memory.Failed
	content := step == OrderCreate || step == OrderFinalize // the steps that carry what was asked for
	switch {
	case isGone(f) && remote != nil && !remote.Expires.IsZero() && !d.now.Before(remote.Expires):
		return acmev1.Expired, fault.ClassValidation
	case content && (f.Class == fault.ClassPermanent || codeOf(f) == acme.CodeMalformed && f.Class != fault.ClassNotFound):
		return acmev1.Errored, fault.ClassPermanent
	default:
		return acmev1.Errored, fault.ClassRefused
	}
}

// retryAt is when the failed step may be tried again.
func (d *orderDecision) retryAt() time.Time {
	m := d.Memory
	if m.Failed == OrderFinalize {
		m.Failures = max(m.Failures, m.Unfinalized)
	}
	return m.retryAt()
}

// failedTo opens the reason of a failed step (spec §5.3).
func failedTo(step OrderStep) string {
	return map[OrderStep]string{
		OrderCreate:              "Failed to create Order: ",
		OrderFetch:               "Failed to retrieve Order resource: ",
		OrderFetchAuthorizations: "Failed to retrieve authorizations: ",
		OrderFinalize:            "Failed to finalize Order: ",
		OrderDownload:            "Failed to download certificate: ",
		OrderDeactivate:          "Failed to deactivate authorizations: ",
	}[step]
}

// blocks says why the issuer cannot be used; the reason is empty if nothing is to be written.
func (i Issuer) blocks(name string) (string, bool) {
	switch i.Readiness {
	case IssuerReady:
		return "", false
	case IssuerStarting:
		return "", true
	case IssuerNotReady:
		return fmt.Sprintf("Waiting for issuer %q to become ready: %s", name, cmp.Or(i.Message, "its Ready condition is not True")), true
	default:
		return fmt.Sprintf("Waiting for issuer %q to exist: %s", name, cmp.Or(i.Message, "no ACME issuer of that name was found")), true
	}
}

func (a AccountState) parkedReason() string {
	return fmt.Sprintf("The ACME server asked to be left alone until %s: %s",
		a.ParkedUntil.UTC().Format(time.RFC3339), cmp.Or(a.ParkedReason, "rate limited"))
}

// progress takes the next step of an order that nothing blocks.
func (d *orderDecision) progress() OrderAction {
	m := d.Memory
	if n := d.maxAuthorizations(); m.Remote != nil && len(m.Remote.Authorizations) > n {
		return d.fail(acmev1.Errored, of(fault.ClassUnavailable), fmt.Sprintf(
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
			a.Status = d.status(of(fault.ClassUnavailable), "The ACME server sent an order without the address to finalize it at (RFC 8555 §7.1.3); asking again")
		}
		return a
	}
	switch d.state {
	case acmev1.Invalid:
		return d.remoteInvalid()
	case acmev1.Valid:
		if m.Remote != nil && m.Remote.Certificate != "" {
			return OrderAction{Step: OrderDownload, URL: m.Remote.Certificate, PreferredChain: d.Issuer.PreferredChain}
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
func (d *orderDecision) maxAuthorizations() int {
	return 2*len(Identifiers(d.Order.Spec)) + limits.FurtherAuthorizations
}

// look fetches the order at once.
func (d *orderDecision) look() OrderAction {
	return OrderAction{Step: OrderFetch, URL: d.next.URL}
}

// poll fetches the order at the CA's pace, until the CA must have given it up.
func (d *orderDecision) poll() OrderAction {
	m := d.Memory
	if m.Remote == nil {
		return d.look()
	}
	if expires := m.Remote.Expires; !expires.IsZero() && m.RemoteAt.After(expires.Add(expiryGrace)) {
		return d.fail(acmev1.Errored, of(fault.ClassUnavailable), fmt.Sprintf("The ACME server still showed the order as %s long after it expired", d.state))
	}
	if wake := m.RemoteAt.Add(PollDelay(m.Polls, m.Remote.RetryAfter)); d.now.Before(wake) {
		return OrderAction{Wake: wake}
	}
	return d.look()
}

// processing polls; the state is only written if the CA takes its time.
func (d *orderDecision) processing() OrderAction {
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
		a.Status = d.status(of(""), "Waiting for the ACME server to issue the certificate")
	}
	return a
}

// finalize posts the signing request.
func (d *orderDecision) finalize() OrderAction {
	csr := CSRBytes(d.Order.Spec.Request)
	if len(csr) == 0 {
		return d.fail(acmev1.Errored, of(fault.ClassPermanent), failedTo(OrderFinalize)+"spec.request is empty")
	}
	if d.Memory.Refused >= maxRefused {
		return d.refusedToFinalize()
	}
	if m := d.Memory; m.Refused > 0 {
		if wake := m.RemoteAt.Add(fault.Finalizes.With("").Step(m.Refused)); d.now.Before(wake) {
			return OrderAction{Wake: wake}
		}
	}
	return OrderAction{Step: OrderFinalize, URL: d.next.FinalizeURL, CSR: csr}
}

// refusedToFinalize ends an order that the CA keeps refusing to finalize.
func (d *orderDecision) refusedToFinalize() OrderAction {
	why, detail := of(fault.ClassRefused), ""
	if f := d.Memory.Refusal; f != nil {
		detail, why.code = f.Error(), codeOf(f)
		if why.code.RefusesContent() {
			why.class = fault.ClassPermanent
		}
	}
	return d.fail(acmev1.Errored, why, failedTo(OrderFinalize)+detail)
}

// CSRBytes is the DER of a request that is PEM, or DER already (spec §5.3 k).
func CSRBytes(request []byte) []byte {
	if block, _ := pem.Decode(request); block != nil {
		return block.Bytes
	}
	return request
}

// remoteInvalid ends an order that the CA shows as invalid.
func (d *orderDecision) remoteInvalid() OrderAction {
	remote := d.Memory.Remote
	if remote == nil {
		return d.look()
	}
	if !remote.Expires.IsZero() && !d.now.Before(remote.Expires) && remote.Error == nil {
		return d.fail(acmev1.Expired, of(fault.ClassValidation), "The order expired at the ACME server before it was finalized")
	}
	return d.fail(acmev1.Invalid, failed{class: acme.ClassOfInvalid(remote.Error), code: remote.Error.Cause()}, "The ACME server shows the order as invalid: "+cmp.Or(textOf(remote.Error), "it gives no reason"))
}

// authorize gets every name authorized, through Challenges.
func (d *orderDecision) authorize() OrderAction {
	if missing := d.unreadAuthorizations(); len(missing) > 0 {
		return OrderAction{Step: OrderFetchAuthorizations, URLs: missing[:min(len(missing), authorizationsAtOnce)]}
	}
	for _, a := range d.next.Authorizations {
		if a.InitialState.IsFailure() {
			return d.fail(acmev1.Invalid, of(fault.ClassValidation), fmt.Sprintf("The ACME server shows the authorization of %q as %s", a.Identifier, a.InitialState))
		}
	}
	plan, err := d.planChallenges()
	switch {
	case err != nil:
		return d.noSolver(plan.unsolved, err)
	case len(plan.remove) > 0:
		return OrderAction{Status: d.status(of(""), ""), Step: OrderDeleteChallenges, Delete: plan.remove}
	case len(plan.create) > 0:
		d.noteSolvers(plan.choices)
		return OrderAction{Status: d.status(of(""), ""), Step: OrderCreateChallenges, Challenges: plan.create}
	case plan.open > 0:
		a := d.awaitChallenges()
		a.Wake = when.Earliest(a.Wake, plan.due)
		return a
	case d.Memory.Refused > 0 && d.Memory.Polls >= longPolls:
		// An authorization that has ended since we saw it is not shown in the order.
		return d.refusedToFinalize()
	case d.Memory.Refused > 0:
		return d.poll() // the order of the CA does not show yet that its authorizations are valid
	default:
		return d.finalize()
	}
}

func (d *orderDecision) unreadAuthorizations() []string {
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
func (d *orderDecision) noSolver(name string, err error) OrderAction {
	if a, due := d.expired(); due {
		return a
	}
	a := d.wait(failed{class: fault.ClassConfiguration, subject: name, noSolver: !errors.Is(err, selection.ErrTooLarge)}, err.Error(), d.expiry())
	if a.Status != nil {
		a.Event = &Event{Warning: true, Reason: acmev1.OrderReasonSolver, Message: err.Error()}
	}
	return a
}

// awaitChallenges waits for the Challenges, at the latest until the order expires, and says what they wait for.
func (d *orderDecision) awaitChallenges() OrderAction {
	if a, due := d.expired(); due {
		return a
	}
	return d.passOn()
}

// expiry is when to look whether the CA has given up the order.
func (d *orderDecision) expiry() time.Time {
	if d.Memory.Remote == nil {
		return d.Order.CreationTimestamp.Add(d.Settings.OrderRefresh)
	}
	return d.Settings.lookAgain(d.Memory.RemoteAt, d.Memory.Remote.Expires)
}

// lookAgain is when to look again at an order or authorization of the CA that was last seen at a time: when it should
// have expired. The expiry is zero if the CA does not say it.
func (s Settings) lookAgain(seen, expires time.Time) time.Time {
	switch {
	case expires.IsZero():
		return seen.Add(s.OrderRefresh)
	case seen.Before(expires):
		return expires
	default:
		return seen.Add(expiryPoll)
	}
}

// expired looks at the order once it should have expired, and gives it up when the CA still does not say so long after.
func (d *orderDecision) expired() (OrderAction, bool) {
	if d.now.Before(d.expiry()) {
		return OrderAction{}, false
	}
	remote := d.Memory.Remote
	if remote != nil && !remote.Expires.IsZero() && !d.now.Before(remote.Expires.Add(expiryGrace)) {
		return d.fail(acmev1.Expired, of(fault.ClassValidation), "The order expired before all names were authorized"), true
	}
	return d.look(), true
}

// mayBlameReplaces reports whether the CA may have refused the order because of the field replaces. CAs disagree about
// the problem type of that refusal (RFC 9773 §5 names one), so an order that was refused once is sent again without
// the field: the field is only a hint to the CA.
func (d *orderDecision) mayBlameReplaces() bool {
	m := d.Memory
	return m.Failed == OrderCreate && !m.Failure.MayPass() && d.Order.Spec.Replaces != "" && m.CreateRefused == 1
}

// doubtsReplaces reports whether the field replaces is left out: after a refusal, and in every third attempt in a row
// that fails as unavailable. Some CAs fail with an error of their own because of the field. Other such errors pass, and
// then the field is useful: so most attempts keep it.
func (d *orderDecision) doubtsReplaces() bool {
	m := d.Memory
	return m.CreateRefused > 0 || m.Failed == OrderCreate && m.Failure.Class == fault.ClassUnavailable && m.Failures%3 == 2
}

// newOrder is the body of the newOrder request.
func (d *orderDecision) newOrder() NewOrder {
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
