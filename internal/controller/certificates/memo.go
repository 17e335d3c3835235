package certificates

import (
	"crypto/sha256"
	"encoding/json"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/lifecycle"
)

// memo is what is remembered of a Certificate from one pass to the next: nothing that
// is lost with the process but work that is done again.
type memo struct {
	uid types.UID
	// requests are the facts of requests, whose specs never change.
	requests map[types.UID]lifecycle.RequestFacts
	// repaired is the version of the Secret that a repair has led to, at repairedAt, and
	// repairedFor what the repair was made from.
	repaired    string
	repairedAt  time.Time
	repairedFor [sha256.Size]byte
	// answer is what the issuer said when it was last asked when to renew.
	answer *lifecycle.RenewalAnswer
}

// memos has one memo for each Certificate. A memo is used by one pass at a time.
type memos struct {
	mu     sync.Mutex
	byName map[types.NamespacedName]*memo
}

// of returns the memo of a Certificate: an empty one if it is a new one by the name.
func (m *memos) of(name types.NamespacedName, uid types.UID) *memo {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byName == nil {
		m.byName = map[types.NamespacedName]*memo{}
	}
	if known := m.byName[name]; known != nil && known.uid == uid {
		return known
	}
	made := &memo{uid: uid}
	m.byName[name] = made
	return made
}

// forget drops the memo of a Certificate that is gone and returns its UID; empty if
// nothing was known of it.
func (m *memos) forget(name types.NamespacedName) types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.byName[name]
	if known == nil {
		return ""
	}
	delete(m.byName, name)
	return known.uid
}

// factsOf returns the facts of exactly these requests, and forgets others.
func (m *memo) factsOf(requests []certmanagerv1.CertificateRequest) []lifecycle.RequestFacts {
	var out []lifecycle.RequestFacts
	var kept map[types.UID]lifecycle.RequestFacts
	for i := range requests {
		r := &requests[i]
		facts, ok := m.requests[r.UID]
		if ok {
			facts.CertificateRequest = r
		} else {
			facts = lifecycle.RequestFactsOf(r)
		}
		out = append(out, facts)
		if kept == nil {
			kept = map[types.UID]lifecycle.RequestFacts{}
		}
		facts.CertificateRequest = nil
		kept[r.UID] = facts
	}
	m.requests = kept
	return out
}

// recall fills in what the last repair has led to, if nothing else is wanted since.
func (m *memo) recall(s *lifecycle.State) {
	s.Answer, s.RepairedAt = m.answer, m.repairedAt
	if m.repaired != "" && m.repairedFor == wanted(s) {
		s.Repaired = m.repaired
	}
}

// note remembers what a repair has led to.
func (m *memo) note(s *lifecycle.State, version string, now time.Time) {
	m.repaired, m.repairedAt, m.repairedFor = version, now, wanted(s)
}

// wanted is a digest of what a repair is made from, beside the Secret.
func wanted(s *lifecycle.State) [sha256.Size]byte {
	text, err := json.Marshal([]any{s.Certificate.Generation, s.OwnerReference, s.Passwords.JKS, s.Passwords.PKCS12})
	if err != nil {
		return [sha256.Size]byte{} // numbers and strings always have a JSON form
	}
	return sha256.Sum256(text)
}
