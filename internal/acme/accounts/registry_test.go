package accounts

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	acmeclient "chancery.dev/internal/acme/client"
)

// TestTrustIsToldApartByItsWholeDigest: whoever makes two bundles whose digests begin alike, which is feasible for
// eight bytes, must not have another issuer's server taken for a server with the bundle of theirs.
func TestTrustIsToldApartByItsWholeDigest(t *testing.T) {
	bundle := []byte("a bundle")
	digest := sha256.Sum256(bundle)
	if id := (Server{URL: "https://ca.example/dir", CABundle: bundle}).id(); !strings.Contains(id, hex.EncodeToString(digest[:])) {
		t.Errorf("a server is known by %q", id)
	}
}

// TestServersWithoutEndAreToldAsOne: a hundred servers have a name for people, and keep it; any further ones share one.
func TestServersWithoutEndAreToldAsOne(t *testing.T) {
	told := map[string]int{}
	r := New(Options{Observe: func(o acmeclient.Observation) { told[o.Host]++ }})
	for range 2 {
		for n := range maxHosts + 50 {
			r.observer(fmt.Sprintf("https://ca-%d.example/directory", n))(acmeclient.Observation{Host: "elsewhere"})
		}
	}
	if len(told) != maxHosts+1 || told[otherHost] != 100 || told["ca-0.example"] != 2 {
		t.Errorf("%d names, %d requests to others, %d to the first", len(told), told[otherHost], told["ca-0.example"])
	}
}
