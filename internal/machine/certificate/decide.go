package certificate

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/machine/renewal"
	"chancery.dev/internal/machine/revocation"
	"chancery.dev/internal/when"
)

// duplicateRecheck is how often a Certificate whose Secret belongs to another one
// looks again (spec §2.1, 2).
const duplicateRecheck = 3 * time.Minute

// Decide returns what the Certificate needs now.
func Decide(s State, now time.Time) (action Action) {
	if s.Certificate.DeletionTimestamp != nil {
		return Action{Step: StepRest}
	}
	d := &decision{State: s, now: now, crt: s.Certificate.DeepCopy()}
	d.violation = d.assess()
	asked, news := d.revoke()
	var before *certmanagerv1.Certificate
	if s.Refusal != nil {
		before = d.crt.DeepCopy()
	}
	action = d.revokeOrIssue(asked, news)
	if s.Refusal != nil && s.Refusal.Step == action.Step {
		d.crt = before
		action = d.refuse(action)
	}
	d.wakeAtEnd(&action)
	if action.Rests() {
		action.Wake = when.Earliest(action.Wake, asked.Wake)
	}
	defer d.tellPostponed(&action) // once: it is not held back
	if d.quiet {
		return action
	}
	if news && (asked.Warn || asked.Tell) {
		action.Events = append(action.Events, Event{Warning: asked.Warn, Reason: asked.Say.Reason, Message: asked.Say.Message})
	}
	d.warnOfWindows(&action)
	d.noteAuthority(&action)
	d.noteUsages(&action)
	d.sayCause()
	d.warnOfRenewalInfo(&action)
	if !cmmeta.Equal(d.crt.Status, s.Certificate.Status) {
		action.Status = &d.crt.Status
		d.pace(&action)
	}
	return action
}

// decision is a State on the way to an Action: crt is a copy whose status becomes
// what it should be.
type decision struct {
	State

	now       time.Time
	crt       *certmanagerv1.Certificate
	violation *Violation
	// revoking is the certificate that is to be replaced and revoked; nil if there is none.
	revoking *revocation.Pin
	// ignored says why what the spec says of the renewal does not count; empty if it does.
	ignored string
	// unsaid is Action.Unsaid, and keep is Action.Keep. While quiet, the status is not written.
	unsaid      *certmanagerv1.CertificateCondition
	keep, quiet bool
}

func (d *decision) next() Action {
	if d.foreign() {
		return d.leave()
	}
	if a := d.stored(); a != nil {
		return *a
	}
	if d.restored() {
		return d.giveUp()
	}
	if d.issuing() != nil {
		if d.awaitsPin() {
			d.keep = d.Held != nil
			return Action{Step: StepRest}
		}
		d.dateIssuing()
		if held := d.hold(); held != nil {
			return *held
		}
		return d.issue()
	}
	if d.ours() && d.Held.Issuing.Status == cmmeta.ConditionTrue {
		d.unsaid = d.Held.Issuing.DeepCopy()
		return d.issue()
	}
	if why := d.reissue(); why != nil {
		return d.start(why)
	}
	if d.keysAreLeft() {
		return d.dropKeys()
	}
	return d.rest()
}

// leave issues nothing, whoever asked for it: the Secret is not ours to write.
func (d *decision) leave() Action {
	if d.issuing() != nil {
		certmanagerv1.RemoveCertificateCondition(d.crt, certmanagerv1.CertificateConditionIssuing)
	}
	whose := "Certificate " + d.SecretOwner
	if d.takesIssuerSecret() {
		whose = d.crt.Spec.IssuerRef.KindOrDefault() + " " + d.crt.Spec.IssuerRef.Name
	}
	d.setRestCause(cause.New(cause.SecretShared, "", whose, d.belongs().Message))
	if d.keysAreLeft() {
		return d.dropKeys()
	}
	return Action{Step: StepRest, Wake: d.now.Add(duplicateRecheck)}
}

// start begins an issuance, unless the last one failed a moment ago or there were too many: then only what needs no
// issuer is done. A user who deletes the Secret does not wait after a failure: the keys of the failed issuance are not
// dropped before the status says that an issuance is wanted, because only the status tells that the Secret was deleted.
func (d *decision) start(why *Violation) Action {
	before := d.crt.Status.LastFailureTime != nil
	if r, ok := d.ofRevision(d.nextRevision()); ok && !before && r.Failed() && d.fulfils(r) {
		return d.judge(r, facts.Key{}) // on the short way of a process that ended before it said so
	}
	wait := d.backoff()
	until := d.budget(why.Reason)
	forced := wait > 0 && d.forced()
	if forced {
		wait, until = 0, when.Latest(until, d.budgetOfFailures())
	}
	allowed := wait == 0 && until.IsZero()
	switch {
	case d.keysAreLeft() && (!allowed || before) && (!forced || d.budgetExceeded() != nil):
		return d.dropKeys()
	case allowed:
		d.unsaid = &certmanagerv1.CertificateCondition{
			Type: certmanagerv1.CertificateConditionIssuing, Status: cmmeta.ConditionTrue, Reason: why.Reason, Message: why.Message,
		}
		return d.issue()
	case d.repairs():
		return Action{Step: StepRepair}
	case wait > 0:
		d.tryAgainIn(wait)
		return d.pause(Action{Step: StepRest, Wake: d.now.Add(wait)})
	default:
		return d.pause(d.overBudget(why, until))
	}
}

// pause wakes the Certificate at the latest when its Secret may be repaired, if
// the Secret needs a repair.
func (d *decision) pause(a Action) Action {
	if d.broken() {
		a.Wake = when.Earliest(a.Wake, d.repairDue())
	}
	return a
}

// assess fills in what readiness says (spec §2.5) and returns what is wrong with
// the Secret.
func (d *decision) assess() *Violation {
	wrong := inspect(&d.State)
	problem := d.describe()
	d.noteWindows(problem)
	unready := wrong
	switch {
	case d.foreign():
		unready = d.belongs()
	case problem != "" && wrong != nil && d.crt.Status.NotAfter == nil: // the reason stays: forced goes by it
		unready = &Violation{Reason: wrong.Reason, Message: wrong.Message + "; " + problem}
	case problem != "":
		unready = &Violation{Reason: certmanagerv1.CertificateReasonWindowError, Message: problem}
	case unready == nil:
		unready = expired(&d.State, d.now)
	}
	c := certmanagerv1.CertificateCondition{Type: certmanagerv1.CertificateConditionReady}
	if unready == nil {
		c.Status, c.Reason = cmmeta.ConditionTrue, certmanagerv1.CertificateReasonReady
		c.Message = "Certificate is up to date and has not expired"
		if d.ignored != "" {
			c.Message += "; " + d.ignored
		}
	} else {
		c.Status, c.Reason, c.Message = cmmeta.ConditionFalse, unready.Reason, unready.Message
	}
	certmanagerv1.SetCertificateCondition(d.crt, c, d.now)
	return wrong
}

// belongs says that the Secret is another Certificate's, or that of the issuer.
func (d *decision) belongs() *Violation {
	if d.takesIssuerSecret() {
		return violation(certmanagerv1.CertificateReasonIncorrectCertificate,
			"Secret %q is the issuer's: a certificate would replace the CA or the account key in it", d.crt.Spec.SecretName)
	}
	return violation(certmanagerv1.CertificateReasonIncorrectCertificate,
		"Secret %q belongs to Certificate %q, which has the same spec.secretName: give one of them another", d.crt.Spec.SecretName, d.SecretOwner)
}

// describe copies the validity of the stored certificate into the status, and says
// what is wrong with the renewal windows.
func (d *decision) describe() (problem string) {
	status := &d.crt.Status
	if d.Secret == nil || d.Secret.Leaf == nil {
		status.NotBefore, status.NotAfter, status.RenewalTime, status.ACME = nil, nil, nil, nil
		status.RenewalTimeSource = ""
		if err := renewal.CheckWindows(d.crt.Spec.Renewal); err != nil {
			return err.Error()
		}
		return ""
	}
	leaf := d.Secret.Leaf
	d.learn(leaf)
	status.NotBefore, status.NotAfter = at(leaf.NotBefore), at(leaf.NotAfter)
	rule := renewal.Of(d.crt, leaf.NotBefore, leaf.NotAfter, d.requested())
	d.ignored = rule.Ignored
	was := &d.Certificate.Status
	if was.RenewalTime != nil && rule.Serves(was.RenewalTime.Time, d.crt) {
		rule.At = was.RenewalTime.Time
	}
	d.applyRenewalInfo(&rule, leaf)
	status.RenewalTime, status.RenewalTimeSource = nil, ""
	if !rule.At.IsZero() {
		status.RenewalTime = at(rule.At)
		if was.RenewalTimeSource != "" || !was.RenewalTime.Equal(status.RenewalTime) { // the source alone is not worth a write
			status.RenewalTimeSource = rule.Source
		}
	}
	return rule.Problem
}

// warnOfWindows says once, in an event too, that renewal windows cannot be kept.
func (d *decision) warnOfWindows(a *Action) {
	was := certmanagerv1.FindCertificateCondition(d.Certificate.Status.Conditions, certmanagerv1.CertificateConditionReady)
	is := certmanagerv1.FindCertificateCondition(d.crt.Status.Conditions, certmanagerv1.CertificateConditionReady)
	if is.Reason == certmanagerv1.CertificateReasonWindowError && (was == nil || was.Reason != is.Reason || was.ObservedGeneration != is.ObservedGeneration) {
		a.warn(is.Reason, is.Message)
	}
}

func at(t time.Time) *metav1.Time {
	m := metav1.NewTime(t)
	return &m
}

// reissue returns why a new certificate is needed, or nil.
func (d *decision) reissue() *Violation {
	if d.violation != nil {
		return d.violation
	}
	if f := d.Secret; f.Leaf != nil && d.revoking.Means(f.Leaf.ID, f.Leaf.Key) {
		return &Violation{Reason: certmanagerv1.CertificateReasonRevoking, Message: d.revoking.Why()}
	}
	if due := d.renewalDue(); !due.IsZero() && !d.now.Before(due) {
		return &Violation{Reason: certmanagerv1.CertificateReasonRenewing,
			Message: "Renewing certificate as renewal was scheduled at " + due.UTC().Format(time.RFC3339),
		}
	}
	if since, message := d.distrusted(); !since.IsZero() && !d.now.Before(since) {
		return &Violation{Reason: certmanagerv1.CertificateReasonRenewing, Message: message}
	}
	return nil
}

// renewalDue returns when the certificate is to be renewed; zero for never. An issuer may give a shorter lifetime than
// was asked for, or one that began before the request: without a floor a certificate that is due as soon as it is
// issued would be issued for ever.
func (d *decision) renewalDue() time.Time {
	if d.crt.Status.RenewalTime == nil {
		return time.Time{}
	}
	due := d.crt.Status.RenewalTime.Time
	if asked := d.requested(); !asked.IsZero() {
		return when.Latest(due, asked.Add(renewal.Floor))
	}
	return due
}

// requested returns when the certificate was asked for; zero if that is not known, or if it was written down by a clock
// that was put right since.
func (d *decision) requested() time.Time {
	if revision := d.crt.Status.Revision; revision != nil {
		if r, ok := d.ofRevision(*revision); ok && !r.CreationTimestamp.After(d.now.Add(renewal.Floor)) {
			return r.CreationTimestamp.Time
		}
	}
	return time.Time{}
}

// foreign reports whether the Secret is not for this Certificate to write.
func (d *decision) foreign() bool {
	return d.SecretOwner != d.Certificate.Name || d.takesIssuerSecret()
}

// takesIssuerSecret reports whether the certificate would take the place of the CA or the account key of its issuer.
func (d *decision) takesIssuerSecret() bool {
	return d.Issuer != nil && d.Issuer.Secret == d.crt.Spec.SecretName
}

// keysAreLeft reports whether there is a next private key, or a name for one.
func (d *decision) keysAreLeft() bool {
	return len(d.Keys) > 0 || d.crt.Status.NextPrivateKeySecretName != nil
}

func (d *decision) dropKeys() Action {
	d.crt.Status.NextPrivateKeySecretName = nil
	return Action{Step: StepDeleteKeys, Names: keyNames(d.Keys)}
}

// rest is a Certificate in order: its Secret is kept as it should be, requests beyond
// the history limit go, and it is looked at again when something is due.
func (d *decision) rest() Action {
	if d.budgetExceeded() != nil {
		certmanagerv1.RemoveCertificateCondition(d.crt, certmanagerv1.CertificateConditionIssuing) // nothing is to be issued any more
	}
	switch r, ok := d.ofRevision(d.nextRevision()); {
	case d.notIssuing(ReasonSecretNotRepaired) != nil, d.is(cause.RenewalWindows):
	case ok && r.Failed() && d.fulfils(r) && d.crt.Status.LastFailureTime != nil:
		d.triedWhenDue() // what somebody has asked for by hand has failed
	default:
		d.setRestCause(nil)
	}
	if d.repairs() {
		return Action{Step: StepRepair}
	}
	if old := d.surplusRequests(); len(old) > 0 && !d.postponed(StepDropSurplus) {
		return Action{Step: StepDropSurplus, Names: old}
	}
	since, _ := d.distrusted()
	a := d.pause(Action{Step: StepRest, Wake: when.Earliest(d.renewalDue(), since)})
	d.sayUnrepaired(&a)
	d.ask(&a)
	return a
}

// wakeAtEnd wakes a Certificate that is Ready when its certificate ends,
// whatever it waits for until then: nothing else would tell.
func (d *decision) wakeAtEnd(a *Action) {
	if a.Rests() && d.isReady() && d.crt.Status.NotAfter != nil {
		a.Wake = when.Earliest(a.Wake, d.crt.Status.NotAfter.Add(time.Second))
	}
}

// surplusRequests returns all but the newest requests that revisionHistoryLimit
// keeps (spec §2.7).
func (d *decision) surplusRequests() []string {
	limit := certmanagerv1.DefaultRevisionHistoryLimit
	if l := d.crt.Spec.RevisionHistoryLimit; l != nil {
		limit = max(int(*l), 1)
	}
	var numbered []facts.Request
	for _, r := range d.Requests {
		if n, ok := r.Revision(); ok && n != d.nextRevision() { // an issuance that was given up may have left one
			numbered = append(numbered, r)
		}
	}
	if len(numbered) <= limit {
		return nil
	}
	slices.SortFunc(numbered, func(a, b facts.Request) int {
		x, _ := a.Revision()
		y, _ := b.Revision()
		return cmp.Or(cmp.Compare(y, x), strings.Compare(a.Name, b.Name))
	})
	var names []string
	for _, r := range numbered[limit:] {
		names = append(names, r.Name)
	}
	return names
}

func (d *decision) issuing() *certmanagerv1.CertificateCondition {
	c := certmanagerv1.FindCertificateCondition(d.crt.Status.Conditions, certmanagerv1.CertificateConditionIssuing)
	if c == nil || c.Status != cmmeta.ConditionTrue {
		return nil
	}
	return c
}

func (d *decision) setIssuing(status cmmeta.ConditionStatus, reason, message string) {
	certmanagerv1.SetCertificateCondition(d.crt, certmanagerv1.CertificateCondition{
		Type: certmanagerv1.CertificateConditionIssuing, Status: status, Reason: reason, Message: message,
	}, d.now)
}

// dateIssuing says since when an issuance has been under way, if the client that
// asked for it left that open (lastTransitionTime is optional), or has a clock that is
// ahead: until then each failure would pass for one from before.
func (d *decision) dateIssuing() {
	if c := d.issuing(); c.LastTransitionTime == nil || c.LastTransitionTime.After(d.now) {
		c.LastTransitionTime = at(d.now.Truncate(time.Second))
	}
}

func keyNames(keys []facts.Key) []string {
	names := make([]string, 0, len(keys))
	for _, k := range keys {
		names = append(names, k.Name)
	}
	return names
}

// keyProblem returns what of the spec a key does not match, or why it cannot be read.
func keyProblem(spec *certmanagerv1.CertificateSpec, k facts.Key) bool {
	return k.Error != nil || len(facts.KeySpecOf(spec).ViolationsOf(k.Public)) > 0
}

// samePublicKey reports whether a request was made with a key.
func samePublicKey(r facts.Request, k facts.Key) bool {
	return r.Public.Same(k.Public)
}
