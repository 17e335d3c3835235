package certificate

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/rig/golden"
)

func byClass(w *world) { w.backoff.ByClass, w.issuer = true, &IssuerFacts{Version: "a/1"} }
func passwordGone(w *world) {
	w.passwords = facts.Passwords{Error: errors.New(`Secret "p" does not exist`)}
}
func asks(w *world) { w.issuer = &IssuerFacts{Version: "a/1", Informs: true} }
func hour(w *world) { w.now = w.now.Add(time.Hour) }
func temporaryWanted(w *world) {
	w.crt.Annotations = map[string]string{certmanagerv1.IssueTemporaryAnnotation: "true"}
}
func labelTaken(w *world) { w.takes("kubectl", func(s *corev1.Secret) { delete(s.Labels, "team") }) }
func labelGiven(w *world) {
	w.secret.Labels["team"] = "a"
	w.versions++
	w.secret.ResourceVersion, w.secret.ManagedFields = strconv.Itoa(w.versions), nil
}
func repairRefused(w *world) {
	w.repaired, w.repairedFor, w.repairedAt, w.repairError = w.secret.ResourceVersion, "", w.now, "a policy forbids it"
}
func noWindow(w *world) { w.amend(openAt(opens("0 0 30 2 *", time.Hour, ""))) }
func anotherCA(w *world) {
	w.issuer = &IssuerFacts{Authority: &AuthorityFacts{NotBefore: w.now.Add(-2 * time.Hour)}, ReissueNow: true}
}
func pendingRequestOf(w *world) {
	w.conclude(w.next(), cmmeta.ConditionFalse, "Pending", "in the works")
}
func failedAs(class fault.Class) func(*world) {
	return func(w *world) { w.failAs(class) }
}

// overdrawn issues five certificates within a few seconds, because somebody replaces
// the key each time, and once more.
func overdrawn(w *world) {
	w.t.Helper()
	for range 4 {
		w.spoil()
		w.settle()
		w.sign(w.next())
		w.settle()
		w.now = w.now.Add(time.Second)
	}
	w.spoil()
}

func answered(a RenewalAnswer) func(*world) {
	return func(w *world) {
		a.Certificate, a.At = facts.OfSecret(w.secret).Leaf.ID, w.now
		w.answer = &a
	}
}

// upkeepSituations are what spec §2.1 says of windows, spec §2.5 of ARI, spec §2.6, the
// temporary certificates of spec §2.4, and what is our own: classes of failure, budgets, changed CAs.
func upkeepSituations() []situation {
	dawn := start().Add(60 * 24 * time.Hour)
	return []situation{
		{"everything is wanted, and in order", rich},
		{"a label was taken", after(rich, labelTaken)},
		{"a label was taken, and renewal is due", after(rich, labelTaken, due)},
		{"a label was taken, and another Certificate has the Secret", after(rich, labelTaken, func(w *world) { w.owner = "older" })},
		{"a label was taken, and a failure is waited out", after(rich, otherNames, settled, failedRequest, settled, labelTaken)},
		{"a label was taken, and an issuance is under way", after(rich, triggered, settled, labelTaken)},
		{"a label was taken a moment after a repair", after(rich, labelTaken, func(w *world) { w.repairedAt = w.now.Add(-time.Second) })},
		{"a label was taken, and repairing it did not help", after(rich, labelTaken, func(w *world) { w.repaired, w.repairedFor = w.secret.ResourceVersion, "" })},
		{"a label was taken, and repairing it was refused", after(rich, labelTaken, repairRefused)},
		{"a label was taken, and repairing it was refused, which was said", after(rich, labelTaken, repairRefused, settled)},
		{"a label was taken, and repairing it was refused some time ago", after(rich, labelTaken, repairRefused, settled, hour)},
		{"a label was given back, after repairing it was refused", after(rich, labelTaken, repairRefused, settled, labelGiven)},
		{"a label was taken, and the password is gone", after(rich, labelTaken, passwordGone)},
		{"issued, and the password is gone", after(rich, triggered, settled, func(w *world) { w.signWithCA(w.next()) }, passwordGone)},
		{"no window before the end", after(issued, noWindow)},
		{"no window before the end, which was said", after(issued, noWindow, settled)},
		{"no window before the end, and renewal is due", after(issued, noWindow, settled, due)},
		{"no window, and a Secret of another issuer", after(issued, noWindow, annotate(certmanagerv1.IssuerNameAnnotation, "old"))},
		{"the issuer can be asked when to renew", after(issued, asks)},
		{"the issuer is to be asked", after(issued, asks, hour, hour, hour, hour, hour, hour, hour)},
		{"the issuer is to be asked, and a label was taken", after(rich, asks, hour, hour, hour, hour, hour, hour, hour, labelTaken)},
		{"the issuer has said when", after(issued, asks, answered(RenewalAnswer{Start: dawn, End: dawn.Add(time.Hour), ExplanationURL: "https://why"}))},
		{"the issuer has said at once", after(issued, asks, answered(RenewalAnswer{Start: start(), End: start().Add(time.Second)}), hour)},
		{"the issuer has nothing to say", after(issued, asks, answered(RenewalAnswer{None: true}))},
		{"the issuer could not be asked", after(issued, asks, answered(RenewalAnswer{Error: errors.New("asleep")}))},
		{"the issuer has another CA", after(issued, anotherCA)},
		{"the issuer has another CA, and nothing is ever renewed", after(issued, anotherCA, disabled)},
		{"issued too often", after(issued, overdrawn)},
		{"issued too often, which was said", after(issued, overdrawn, settled)},
		{"issued too often, and the names are changed", after(issued, overdrawn, settled, otherNames)},
		{"issued too often, and asked for by hand", after(issued, overdrawn, settled, triggered)},
		{"issued too often, and an hour has passed", after(issued, overdrawn, settled, hour)},
		{"failed for good", after(newWorld, byClass, settled, failedAs(fault.ClassPermanent))},
		{"failed for good, which was said", after(newWorld, byClass, settled, failedAs(fault.ClassPermanent), settled, hour)},
		{"failed for good, where the user has bounds", after(newWorld, settled, failedAs(fault.ClassPermanent), settled)},
		{"failed to validate", after(newWorld, byClass, settled, failedAs(fault.ClassValidation), settled)},
		{"the CA wants fewer requests", after(newWorld, byClass, settled, failedAs(fault.ClassRateLimited), settled)},
		{"the CA was out of order", after(newWorld, byClass, settled, failedAs(fault.ClassUnavailable), settled)},
		{"a temporary certificate is wanted", after(newWorld, temporaryWanted, settled, pendingRequestOf)},
		{"a temporary certificate is there", after(newWorld, temporaryWanted, settled, pendingRequestOf, settled)},
		{"a temporary certificate is wanted, but there is a real one", after(issuing, temporaryWanted, pendingRequestOf)},
		{"a temporary certificate is there, and the request failed", after(newWorld, temporaryWanted, settled, pendingRequestOf, settled, failedRequest, settled, hour)},
	}
}

func TestUpkeepTable(t *testing.T) {
	out := ""
	for _, s := range upkeepSituations() {
		w := s.world(t)
		out += fmt.Sprintf("%s\n%s\n", s.name, describe(w, Decide(w.state(), w.now)))
	}
	golden.Check(t, "upkeep.txt", out)
}
