package injection

import (
	"crypto/x509"
	"slices"
	"testing"
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/pki"
)

// FuzzBundle: what is merged of PEM texts holds each certificate once, and merged with itself is the same.
func FuzzBundle(f *testing.F) {
	f.Add(text("a", "b"), text("b"))
	f.Add([]byte("-----BEGIN X-----\n-----END X-----\n"), []byte("# "+string(text("a"))))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		merged := merge(now, parse(a).certs, parse(b).certs)
		written := pki.EncodeCertificates(merged...)
		again := parse(written)
		if again.strange > 0 || !slices.EqualFunc(merge(now, again.certs, merged), merged, (*x509.Certificate).Equal) {
			t.Errorf("%q is read as %d certificates and %d others", written, len(again.certs), again.strange)
		}
		if all, err := pki.DecodeBundle(a); err == nil && !slices.EqualFunc(all, parse(a).certs, (*x509.Certificate).Equal) {
			t.Errorf("%d certificates, and %d are read", len(all), len(parse(a).certs))
		}
	})
}

// FuzzOldCAs: the two annotations about CAs that have left are read as they are written, and nothing is dropped before
// its time.
func FuzzOldCAs(f *testing.F) {
	f.Add("24h", `{"00":"2026-01-01T00:00:00Z"}`)
	f.Add("-1h", `{"00":null}`)
	f.Add("2562047h47m16s", `{"00":"9999-12-31T23:59:59Z","01":"0000-01-01T00:00:00Z"}`)
	f.Fuzz(func(t *testing.T, after, since string) {
		o, err := overlapOf(map[string]string{certmanagerv1.DropOldCAsAfterAnnotation: after, certmanagerv1.OldCAsAnnotation: since})
		if (err == nil) != o.on || o.after < 0 {
			t.Fatalf("%q is read as %+v, %v", after, o, err)
		}
		again, err := overlapOf(map[string]string{certmanagerv1.OldCAsAnnotation: o.text()})
		if err != nil || len(again.since) != len(o.since) {
			t.Fatalf("%q is written as %q, and read as %+v, %v", since, o.text(), again, err)
		}
		for digest, left := range o.since {
			if !again.since[digest].Equal(left) {
				t.Errorf("%s left at %v, and is read as %v", digest, left, again.since[digest])
			}
			if o.on && o.due(left.Add(-time.Second)) && len(o.since) == 1 {
				t.Errorf("it left at %v, and is due before", left)
			}
		}
	})
}
