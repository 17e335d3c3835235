package injection

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"strings"
	"testing"
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/pki"
)

// TestMLDSA: a CA that older API servers do not know is injected, and an event says so, also when nothing is to be
// written any more.
func TestMLDSA(t *testing.T) {
	t.Parallel()
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.MLDSA44})
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "new"}, PublicKey: key.Public(), NotBefore: now, NotAfter: now.Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	ca, err := pki.Sign(template, template, key)
	if err != nil {
		t.Fatal(err)
	}
	s := State{
		Annotations: map[string]string{certmanagerv1.InjectCAFromAnnotation: "ns/name"},
		Given:       Given{CA: pki.EncodeCertificates(ca)}, Target: &Target{Slots: []Slot{{Path: "w0"}}},
	}
	for range 2 {
		a := Decide(s, now)
		if a.Say == nil || a.Say.Reason != ReasonNewKey || a.Say.Notice || !strings.Contains(a.Say.Message, "Go before 1.27") {
			t.Errorf("%+v", a.Say)
		}
		if len(a.Write) == 1 {
			s.Target.Slots[0].Bundle = a.Write[0].Bundle
		}
	}
	if string(s.Target.Slots[0].Bundle) != string(s.Given.CA) {
		t.Errorf("injected is\n%s", s.Target.Slots[0].Bundle)
	}
}
