// Package contract holds one test suite for all implementations of signer.Signer. The tests of each adapter run the
// suite with the adapter alone; internal/rig/signer/conformance tests whole controllers. Only tests import the package.
package contract

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/signer"
)

// Harness is a type of issuer, and another side that signs.
type Harness struct {
	// New returns a Signer that shares nothing with another one, as a new process would.
	New func() signer.Signer
	// Issuer is one that can be used.
	Issuer certmanagerv1.GenericIssuer
	// Request is a CertificateRequest's that is signed. Its Source may be nil.
	Request signer.Request
	// Silence makes the other side answer nothing until the function that it returns is called; nil where nothing
	// leaves the process.
	Silence func() (end func())
}

const (
	// patience is how long a call may take whose context has ended.
	patience = 10 * time.Second
	// soon is how long the context of a call lasts that nobody answers.
	soon = 200 * time.Millisecond
	// calls bounds how often a request is handed on until it is signed.
	calls = 10
)

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for _, step := range []struct {
		name string
		run  func(*testing.T, Harness)
	}{
		{"probe", probe},
		{"sign, and sign again", signTwice},
		{"each call by a new process", signByMany},
		{"at once", signAtOnce},
		{"a context that has ended", ended},
		{"silence", silence},
		{"where calls go", lane},
	} {
		t.Run(step.name, func(t *testing.T) { step.run(t, h) })
	}
}

// fresh returns the request as nobody has signed it yet.
func (h *Harness) fresh() signer.Request {
	r, source := h.Request, &certmanagerv1.CertificateRequest{}
	if r.Source != nil {
		source = r.Source.(*certmanagerv1.CertificateRequest).DeepCopy() //nolint:forcetypeassert // Harness says so
	}
	r.Source = source
	return r
}

// probe: two Signers find the same, and the issuer stays as it is.
func probe(t *testing.T, h Harness) {
	before := h.Issuer.DeepCopyObject()
	var found []signer.Facts
	for range 2 {
		prober, ok := h.New().(signer.Prober)
		if !ok {
			t.Skip("an issuer of this type can always be used")
		}
		facts, err := prober.Probe(t.Context(), h.Issuer)
		if err != nil || !facts.Ready || facts.Reason == "" {
			t.Fatalf("%+v, %v: want an issuer that can be used", facts, err)
		}
		found = append(found, facts)
	}
	if a, b := found[0], found[1]; a.Ready != b.Ready || a.Reason != b.Reason || a.Message != b.Message || !a.Until.Equal(b.Until) {
		t.Errorf("one Signer finds %+v, another one %+v", a, b)
	}
	if !equality.Semantic.DeepEqual(before, h.Issuer) {
		t.Error("Probe has changed the issuer")
	}
}

// signed gets a request signed, by the Signer that each call is given, and checks what comes. What a call gives to
// remember is with the next one.
func signed(t *testing.T, h Harness, by func() signer.Signer, r signer.Request) {
	t.Helper()
	for range calls {
		result, err := by().Sign(t.Context(), h.Issuer, r)
		if err == nil {
			verify(t, r, result.Bundle)
			return
		}
		if fault.IsTerminal(err) || fault.Of(err) == nil {
			t.Fatalf("%v", err)
		}
		annotations := maps.Clone(r.Source.GetAnnotations())
		if annotations == nil {
			annotations = map[string]string{}
		}
		maps.Copy(annotations, result.Annotations)
		r.Source.SetAnnotations(annotations)
	}
	t.Fatalf("not signed after %d calls", calls)
}

// verify checks that a certificate is for the key of the request.
func verify(t *testing.T, r signer.Request, b signer.Bundle) {
	t.Helper()
	certs, err := pki.DecodeChain(b.Chain)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := pki.DecodeCSR(r.CSR)
	if err != nil {
		t.Fatal(err)
	}
	if !pki.PublicKeysEqual(certs[0].PublicKey, csr.PublicKey) {
		t.Error("the certificate is for another key")
	}
}

// signTwice: a request that was signed may be signed again, since the process may end before the certificate is stored.
func signTwice(t *testing.T, h Harness) {
	s, r := h.New(), h.fresh()
	for range 2 {
		signed(t, h, func() signer.Signer { return s }, r)
	}
}

// signByMany: a Signer needs nothing of what another one remembers.
func signByMany(t *testing.T, h Harness) { signed(t, h, h.New, h.fresh()) }

// signAtOnce: calls for several requests do not disturb each other.
func signAtOnce(t *testing.T, h Harness) {
	s := h.New()
	var all sync.WaitGroup
	for range 4 {
		r := h.fresh()
		all.Go(func() { signed(t, h, func() signer.Signer { return s }, r) })
	}
	all.Wait()
}

// returns fails the test if a call does not return soon after its context has ended, or takes that for the last word.
func returns(ctx context.Context, t *testing.T, what string, call func(context.Context) error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- call(ctx) }()
	select {
	case err := <-done:
		if fault.IsTerminal(err) {
			t.Errorf("%s took the end of its context for the last word: %v", what, err)
		}
	case <-time.After(soon + patience):
		t.Fatalf("%s did not return although its context had ended", what)
	}
}

func everyCall(ctx context.Context, t *testing.T, h Harness) {
	t.Helper()
	s := h.New()
	returns(ctx, t, "Sign", func(ctx context.Context) error {
		_, err := s.Sign(ctx, h.Issuer, h.fresh())
		return err
	})
	if prober, ok := s.(signer.Prober); ok {
		returns(ctx, t, "Probe", func(ctx context.Context) error {
			_, err := prober.Probe(ctx, h.Issuer)
			return err
		})
	}
}

func ended(t *testing.T, h Harness) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	everyCall(ctx, t, h)
}

// silence: calls end with their context, also those that wait for another one's login, and work again after that.
func silence(t *testing.T, h Harness) {
	if h.Silence == nil {
		t.Skip("nothing leaves the process")
	}
	end := sync.OnceFunc(h.Silence())
	defer end()
	s := h.New()
	sign := func(ctx context.Context) error {
		_, err := s.Sign(ctx, h.Issuer, h.fresh())
		if f := fault.Of(err); f == nil || f.Kind != fault.KindAfter || f.Class != fault.ClassUnavailable {
			t.Errorf("of a server that is silent: %v (%+v), want a fault of the class %s to come back from", err, f, fault.ClassUnavailable)
		}
		return err
	}
	first, stop := context.WithCancel(t.Context())
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { _ = sign(first) }) // the others may wait for its login
	for range 3 {
		all.Go(func() { returns(ctx, t, "Sign", sign) })
	}
	<-ctx.Done()
	returns(ctx, t, "Sign", sign)
	stop()
	all.Wait()
	everyCall(ctx, t, h)
	end()
	signed(t, h, func() signer.Signer { return s }, h.fresh())
}

// lane: whoever leaves the process says where calls go, and bounds them; whoever does not says that.
func lane(t *testing.T, h Harness) {
	s := h.New()
	remote, leaves := s.(signer.Remote)
	if _, inLine := s.(signer.InLine); inLine == leaves || leaves != (h.Silence != nil) {
		t.Fatalf("says that it leaves the process: %v, and that it does not: %v", leaves, inLine)
	}
	if !leaves {
		return
	}
	one, other := remote.Lane(h.Issuer), h.New().(signer.Remote).Lane(h.Issuer) //nolint:forcetypeassert // as above
	if one != other || one.Name == "" || one.Limit < 1 || one.Timeout <= 0 {
		t.Errorf("lanes %+v and %+v", one, other)
	}
}
