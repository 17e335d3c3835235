package acmeaccount

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
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
