package injection

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/pki"
)

// steps is an injectable over time, whose source and annotation change.
type steps struct {
	State

	now time.Time
}

func newSteps(after string, bundle ...string) *steps {
	s := &steps{now: now}
	s.Annotations = map[string]string{certmanagerv1.InjectCAFromSecretAnnotation: "ns/name"}
	s.says(after)
	s.Target = &Target{Slots: []Slot{{"w", text(bundle...)}}}
	return s
}

func (s *steps) says(after string) {
	delete(s.Annotations, certmanagerv1.DropOldCAsAfterAnnotation)
	if after != "" {
		s.Annotations[certmanagerv1.DropOldCAsAfterAnnotation] = after
	}
}

// decide decides some time later with a CA in the source, writes what was decided, and returns the bundle.
func (s *steps) decide(later time.Duration, ca ...string) (string, Action) {
	s.now = s.now.Add(later)
	s.Given = Given{CA: text(ca...)}
	a := Decide(s.State, s.now)
	for _, slot := range a.Write {
		s.Target.Slots[0].Bundle = slot.Bundle
	}
	switch {
	case a.Old == nil:
	case *a.Old == "":
		delete(s.Annotations, certmanagerv1.OldCAsAnnotation)
	default:
		s.Annotations[certmanagerv1.OldCAsAnnotation] = *a.Old
	}
	return words(s.Target.Slots[0].Bundle), a
}

// TestOldCAsAreDropped: on demand, a CA leaves a bundle some time after it has left the source, and no earlier.
func TestOldCAsAreDropped(t *testing.T) {
	const both, alone = "‹old›‹new›", "‹new›"
	t.Run("after the overlap", func(t *testing.T) {
		s := newSteps("20m", "old")
		if got, a := s.decide(0, "new"); got != both || !a.Wake.Equal(now.Add(20*time.Minute)) {
			t.Errorf("at first: %s, %s", got, describe(a))
		}
		if got, a := s.decide(19*time.Minute, "new"); got != both || a.Write != nil || a.Old != nil || !a.Wake.Equal(now.Add(20*time.Minute)) {
			t.Errorf("within the overlap: %s, %s", got, describe(a))
		}
		s.Settled = true
		if a := Decide(s.State, s.now); !a.Wake.Equal(now.Add(20*time.Minute)) || a.Read {
			t.Errorf("settled within the overlap: %s", describe(a))
		}
		target := s.Target
		s.Target = nil
		if a := Decide(s.State, now.Add(20*time.Minute)); !a.Read {
			t.Errorf("settled after the overlap: %s, want that it is read", describe(a))
		}
		s.Target = target
		got, a := s.decide(time.Minute, "new")
		if _, there := s.Annotations[certmanagerv1.OldCAsAnnotation]; got != alone || there || a.Say == nil || a.Say.Reason != ReasonDropped || !a.Wake.IsZero() {
			t.Errorf("after the overlap: %s, %s, annotations %q", got, describe(a), s.Annotations)
		}
	})
	t.Run("one that comes back stays", func(t *testing.T) {
		s := newSteps("20m", "old")
		s.decide(0, "new")
		if got, _ := s.decide(19*time.Minute, "new", "old"); got != both {
			t.Error(got)
		}
		if got, _ := s.decide(10*time.Minute, "new"); got != both {
			t.Errorf("it has just left again: %s", got)
		}
		if got, _ := s.decide(20*time.Minute, "new"); got != alone {
			t.Error(got)
		}
	})
	t.Run("only on demand", func(t *testing.T) {
		s := newSteps("", "old")
		if got, a := s.decide(0, "new"); got != both || a.Old != nil {
			t.Errorf("%s, %s", got, describe(a))
		}
		if got, _ := s.decide(50*time.Minute, "new"); got != both {
			t.Error(got)
		}
		s.says("1m")
		s.decide(0, "new")
		s.says("") // the demand is withdrawn, and what was known is forgotten
		if got, _ := s.decide(2*time.Minute, "new"); got != both || s.Annotations[certmanagerv1.OldCAsAnnotation] != "" {
			t.Errorf("%s, %q", got, s.Annotations)
		}
	})
	t.Run("not while the source has nothing", func(t *testing.T) {
		s := newSteps("0s", "old")
		for _, ca := range []string{"past", "key", "hello"} {
			if got, _ := s.decide(0, ca); got != "‹old›" {
				t.Errorf("source %q: %s", ca, got)
			}
		}
		if got, _ := s.decide(0, "new"); got != alone {
			t.Errorf("without an overlap: %s", got)
		}
	})
	for _, wrong := range []string{"soon", "-1h", "1", ""} {
		s := newSteps("x", "old")
		s.Annotations[certmanagerv1.DropOldCAsAfterAnnotation] = wrong
		if got, a := s.decide(0, "new"); got != both || a.Say == nil || a.Say.Reason != ReasonMalformed {
			t.Errorf("%q: %s, %s; want that the new CA is injected, that nothing is dropped, and that an event says so", wrong, got, describe(a))
		}
	}
	for _, forged := range []string{"{", "[]", `{"x":"y"}`, `{"` + strings.Repeat("0", 32) + `":"2000-01-01T00:00:00Z"}`} {
		s := newSteps("20m", "old")
		s.Annotations[certmanagerv1.OldCAsAnnotation] = forged
		if got, _ := s.decide(0, "new"); got != both {
			t.Errorf("%s: %s", forged, got)
		}
	}
}

// large returns CAs that are valid, of ten kilobytes each.
func large(t *testing.T, n int) []*x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var out []*x509.Certificate
	for i := range n {
		template := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i + 1)), Subject: pkix.Name{CommonName: fmt.Sprint("ca ", i)}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(48 * time.Hour),
			ExtraExtensions: []pkix.Extension{{Id: []int{1, 2, 3, 4}, Value: bytes.Repeat([]byte{4}, 7500)}},
		}
		raw, err := x509.CreateCertificate(rand.Reader, template, template, crypto.Signer(key).Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		c, err := x509.ParseCertificate(raw)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, c)
	}
	return out
}

// TestAFullBundleTakesTheNextCA: whoever may write the source fills the bundle with CAs. The next real CA comes in, and
// neither the one that it replaces nor the first one is pushed out.
func TestAFullBundleTakesTheNextCA(t *testing.T) {
	all := large(t, 100)
	s := State{Annotations: map[string]string{certmanagerv1.InjectCAFromSecretAnnotation: "ns/name"}, Target: &Target{Slots: []Slot{{Path: "w"}}}}
	says := false
	for i, c := range all {
		s.Given = Given{CA: pki.EncodeCertificates(c)}
		a := Decide(s, now)
		if len(a.Write) != 1 || len(a.Write[0].Bundle) > pki.MaxBundlePEM {
			t.Fatalf("CA %d: %s", i, describe(a))
		}
		says = says || a.Say != nil && a.Say.Reason == ReasonTooLarge
		s.Target.Slots = a.Write
		has := parse(a.Write[0].Bundle).certs
		for _, want := range []*x509.Certificate{all[0], all[max(0, i-1)], c} {
			if !slices.ContainsFunc(has, want.Equal) {
				t.Fatalf("with CA %d, %s is not in the bundle", i, want.Subject)
			}
		}
	}
	if !says {
		t.Error("no event says that CAs were taken out")
	}
}

// TestPatchOfOldCAs: the annotation is written by its JSON pointer.
func TestPatchOfOldCAs(t *testing.T) {
	value, none := "x", ""
	for want, old := range map[string]*string{
		`{"op":"add","path":"/metadata/annotations/chancery.dev~1old-cas","value":"x"}`: &value,
		`{"op":"remove","path":"/metadata/annotations/chancery.dev~1old-cas"}`:          &none,
	} {
		got, err := json.Marshal(Patch(&Target{}, Action{Old: old}, "7"))
		if err != nil || !strings.HasSuffix(string(got), ","+want+"]") {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
	}
}
