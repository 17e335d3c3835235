package native

import (
	"sync"
	"time"
)

// zonesHold is how long the id of a zone is used: one that is deleted and made again has another.
const zonesHold = 5 * time.Minute

// zoneIDs remembers the ids of zones by name, since providers count each question. Only what
// was found is remembered: a zone that does not exist yet is asked for again. The zero value
// is ready.
type zoneIDs struct {
	mu    sync.Mutex
	known map[string]zoneID
}

type zoneID struct {
	id    string
	until time.Time
}

// of returns the id of a zone, by look if it is not known; look returns "" where there is none.
func (z *zoneIDs) of(name string, now time.Time, look func(name string) (string, error)) (string, error) {
	z.mu.Lock()
	defer z.mu.Unlock() // one credential asks one question at a time anyway
	if known, ok := z.known[name]; ok && now.Before(known.until) {
		return known.id, nil
	}
	id, err := look(name)
	if err != nil || id == "" {
		delete(z.known, name)
		return "", err
	}
	if z.known == nil {
		z.known = map[string]zoneID{}
	}
	z.known[name] = zoneID{id, now.Add(zonesHold)}
	return id, nil
}
