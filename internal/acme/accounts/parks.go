package accounts

import (
	"crypto/sha256"
	"slices"
	"time"

	"chancery.dev/internal/limits"
	"chancery.dev/internal/machine/account"
)

// parks are what is kept of accounts that no issuer uses, whose CAs want to be left alone: neither connections nor
// keys. They are told apart by digests: a tenant chooses how long the address of a server is.
type parks map[[sha256.Size]byte]account.Machine

// put keeps the park of an account. Beyond the bound, the shortest are dropped.
func (p parks) put(id string, parked account.Machine, now time.Time) {
	p[sha256.Sum256([]byte(id))] = parked
	if len(p) <= limits.Parks {
		return
	}
	var ends []time.Time
	for _, m := range p {
		ends = append(ends, m.Parked(now).Until)
	}
	slices.SortFunc(ends, time.Time.Compare)
	last := ends[limits.Parks/10] // not one at a time: each time all are looked at
	for id, m := range p {
		if !m.Parked(now).Until.After(last) {
			delete(p, id)
		}
	}
}

// take returns the park of an account that is used again.
func (p parks) take(id string) account.Machine {
	key := sha256.Sum256([]byte(id))
	defer delete(p, key)
	return p[key]
}
