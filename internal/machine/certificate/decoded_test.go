package certificate

import (
	"encoding/json"
	"os"
	"runtime/debug"
	"testing"

	corev1 "k8s.io/api/core/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
)

// TestMain has little garbage collected: the heap is small, and each collection stops what is only counting.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	os.Exit(m.Run())
}

// decoded is what a world has decoded already: a world decides thousands of times over the same certificates. What was
// decoded is found by the text that it was decoded from, so that a test may change an object in place.
type decoded struct {
	secrets  map[string]SecretFacts
	keys     map[string]KeyFacts
	requests map[string]RequestFacts
}

func newDecoded() *decoded {
	return &decoded{secrets: map[string]SecretFacts{}, keys: map[string]KeyFacts{}, requests: map[string]RequestFacts{}}
}

// secret is FactsOf.
func (d *decoded) secret(t *testing.T, secret *corev1.Secret) *SecretFacts {
	t.Helper()
	text, err := json.Marshal(secret)
	if err != nil {
		t.Fatal(err)
	}
	facts, ok := d.secrets[string(text)]
	if !ok {
		facts = *FactsOf(secret)
		d.secrets[string(text)] = facts
	}
	return &facts
}

// key is KeyFactsOf.
func (d *decoded) key(secret *corev1.Secret) KeyFacts {
	text := secret.Name + " " + string(secret.Data[cmmeta.TLSPrivateKeyKey])
	facts, ok := d.keys[text]
	if !ok {
		facts = KeyFactsOf(secret)
		d.keys[text] = facts
	}
	return facts
}

// request is RequestFactsOf.
func (d *decoded) request(r *certmanagerv1.CertificateRequest) RequestFacts {
	facts, ok := d.requests[string(r.Spec.Request)]
	if !ok {
		facts = RequestFactsOf(r)
		d.requests[string(r.Spec.Request)] = facts
	}
	facts.CertificateRequest = r
	return facts
}
