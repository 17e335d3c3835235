package certificates

import (
	"cmp"
	"crypto"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/certificate"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/pki"
)

// heldKey is a private key that is in memory only, in the short way of an issuance.
type heldKey struct {
	facts.HeldKey

	key crypto.Signer
}

// memory is what is remembered of a Certificate while the process lives.
type memory struct {
	// requests are the facts of requests, whose specs never change.
	requests map[types.UID]facts.Request
	// held is the private key of the request that was made in the short way; nil for none.
	held *heldKey
	// made is a new private key for the step that is taken next; nil for none.
	made crypto.Signer
	// repaired is the version of the Secret that a repair has led to, at repairedAt, or
	// has failed for because of repairError, and repairedFor what it was made from.
	repaired    string
	repairError string
	repairCause *cmmeta.Cause
	repairedAt  time.Time
	repairedFor [sha256.Size]byte
	// asked is the certificate that the issuer was last asked about when to renew it, and answer what it said.
	asked  facts.Digest
	answer *certificate.RenewalAnswer
	// told is when the status was last written with another cause, or another next try.
	told time.Time
	// refusals are those of the API server in a row.
	refusals cause.Refusals
	// refusal is why the last step was not taken, until the next decision.
	refusal *certificate.Refusal
	// postponed are the steps that were not taken while the rest goes on, each with what was said of it.
	postponed map[certificate.Step]postponed
	// lastPasses counts the passes that were made because the process ends.
	lastPasses int
}

// postponed is a step that was not taken several times in a row, and what was last said of that.
type postponed struct {
	certificate.Postponed

	said     string
	failures int
}

// postpone remembers that a step was not taken that nothing else of the Certificate waits for. A write that came
// second, or to what is gone, is decided anew.
func (m *memory) postpone(step certificate.Step, cause error, now time.Time, chance float64) bool {
	if apierrors.IsConflict(cause) || apierrors.IsNotFound(cause) {
		return false
	}
	p := m.postponed[step]
	p.Step, p.failures = step, p.failures+1
	wait := engine.BackOff(cause, p.failures, chance)
	if refuses(cause) {
		wait = fault.WatchedWrites.With("").First
	}
	p.Until = now.Add(max(wait, time.Second))
	waits := "A revocation waits"
	if step == certificate.StepDropSurplus {
		waits = "The CertificateRequests of earlier revisions stay"
	}
	news := fmt.Sprintf("%s, because it was not possible to %s: %v", waits, step, cause)
	if fault.Of(cause) == nil && news != p.said {
		p.News = news
	}
	if m.postponed == nil {
		m.postponed = map[certificate.Step]postponed{}
	}
	m.postponed[step] = p
	return true
}

// stepTaken notes that a step was taken: the step is not postponed any more, and all news is said.
func (m *memory) stepTaken(taken certificate.Step) {
	delete(m.postponed, taken)
	if taken != certificate.StepRest {
		m.refusals = cause.Refusals{}
	}
	for step, p := range m.postponed {
		p.said, p.News = cmp.Or(p.News, p.said), ""
		m.postponed[step] = p
	}
}

// factsOf returns the facts of exactly these requests, and forgets others.
func (m *memory) factsOf(requests []certmanagerv1.CertificateRequest) []facts.Request {
	var out []facts.Request
	var kept map[types.UID]facts.Request
	for i := range requests {
		r := &requests[i]
		f, ok := m.requests[r.UID]
		if ok {
			f.CertificateRequest = r
		} else {
			f = facts.OfRequest(r)
		}
		out = append(out, f)
		if kept == nil {
			kept = map[types.UID]facts.Request{}
		}
		f.CertificateRequest = nil
		kept[r.UID] = f
	}
	m.requests = kept
	return out
}

// hold keeps the private key that a request is made with.
func (m *memory) hold(key crypto.Signer, a certificate.Action) {
	held := &heldKey{key: key, HeldKey: facts.HeldKey{Public: pki.FactsOfKey(key.Public())}}
	switch {
	case a.Unsaid != nil:
		held.Issuing = *a.Unsaid
	case m.held != nil:
		held.Issuing = m.held.Issuing
	}
	m.held = held
}

// recall fills in what is remembered. Of the last repair, that is only if nothing else is wanted since: what a user
// changes in a Certificate is brought to its Secret at once, and only repairs of what others undo are paced.
func (m *memory) recall(s *certificate.State) {
	s.Answer = m.answer
	s.Refusal, m.refusal, s.Told = m.refusal, nil, m.told
	if m.held != nil {
		s.Held = &m.held.HeldKey
	}
	for _, p := range m.postponed {
		s.Postponed = append(s.Postponed, p.Postponed)
	}
	if m.repaired != "" && m.repairedFor == wanted(s) {
		s.Repaired, s.RepairError, s.RepairCause, s.RepairedAt = m.repaired, m.repairError, m.repairCause, m.repairedAt
	}
}

// note remembers what a repair has led to, or why it has failed.
func (m *memory) note(s *certificate.State, version string, problem error, now time.Time) {
	m.repaired, m.repairError, m.repairCause, m.repairedAt, m.repairedFor = version, "", nil, now, wanted(s)
	if problem != nil {
		m.repairError, m.repairCause = problem.Error(), cause.OfWrite(problem, "Secret "+s.Certificate.Spec.SecretName)
	}
}

// wanted is a digest of what a repair is made from, beside the Secret.
func wanted(s *certificate.State) [sha256.Size]byte {
	text, err := json.Marshal([]any{s.Certificate.Generation, s.OwnerReference, s.OlderRoots, s.Passwords.JKS, s.Passwords.PKCS12})
	if err != nil {
		return [sha256.Size]byte{} // numbers and strings always have a JSON form
	}
	return sha256.Sum256(text)
}
