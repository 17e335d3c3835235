package certificate

import (
	"encoding/json"
	"os"
	"runtime/debug"
	"testing"

	corev1 "k8s.io/api/core/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/machine/facts"
)

// TestMain makes garbage collections rare: the heap is small, and each collection stops what is only counting.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	os.Exit(m.Run())
}

// decoded is what a world has decoded already: a world decides thousands of times over the same certificates. What was
// decoded is found by the text that it was decoded from, so that a test may change an object in place.
type decoded struct {
	secrets  map[string]facts.Secret
	keys     map[string]facts.Key
	requests map[string]facts.Request
}

func newDecoded() *decoded {
	return &decoded{secrets: map[string]facts.Secret{}, keys: map[string]facts.Key{}, requests: map[string]facts.Request{}}
}

// secret is facts.OfSecret.
func (d *decoded) secret(t *testing.T, secret *corev1.Secret) *facts.Secret {
	t.Helper()
	text, err := json.Marshal(secret)
	if err != nil {
		t.Fatal(err)
	}
	found, ok := d.secrets[string(text)]
	if !ok {
		found = *facts.OfSecret(secret)
		d.secrets[string(text)] = found
	}
	return &found
}

// key is facts.OfKey.
func (d *decoded) key(secret *corev1.Secret) facts.Key {
	text := secret.Name + " " + string(secret.Data[cmmeta.TLSPrivateKeyKey])
	found, ok := d.keys[text]
	if !ok {
		found = facts.OfKey(secret)
		d.keys[text] = found
	}
	return found
}

// request is facts.OfRequest.
func (d *decoded) request(r *certmanagerv1.CertificateRequest) facts.Request {
	found, ok := d.requests[string(r.Spec.Request)]
	if !ok {
		found = facts.OfRequest(r)
		d.requests[string(r.Spec.Request)] = found
	}
	found.CertificateRequest = r
	return found
}
