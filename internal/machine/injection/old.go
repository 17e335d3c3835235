package injection

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/pki"
)

// overlap is what an injectable says of CAs that have left its source, and what is known of them.
type overlap struct {
	// on says that they are dropped, once they have been gone for this time.
	on    bool
	after time.Duration
	// since is when each was first found to have left, by its digest.
	since map[string]time.Time
}

// overlapOf reads the annotations of an injectable. The error says what is wrong with what a user has written; nothing
// is dropped then. What the injector has written itself, and cannot be read, is as good as nothing.
func overlapOf(annotations map[string]string) (overlap, error) {
	o := overlap{since: map[string]time.Time{}}
	if json.Unmarshal([]byte(annotations[certmanagerv1.OldCAsAnnotation]), &o.since) != nil {
		o.since = map[string]time.Time{}
	}
	text, on := annotations[certmanagerv1.DropOldCAsAfterAnnotation]
	if !on {
		return o, nil
	}
	after, err := time.ParseDuration(text)
	if err != nil || after < 0 {
		return o, fmt.Errorf("the annotation %s must be a duration such as 24h, not %.300q: no CA is dropped",
			certmanagerv1.DropOldCAsAfterAnnotation, text)
	}
	o.on, o.after = true, after
	return o, nil
}

// next is when the next CA is to be dropped; zero for never.
func (o overlap) next() time.Time {
	var first time.Time
	for _, since := range o.since {
		if at := since.Add(o.after); o.on && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// due reports whether a CA is to be dropped now.
func (o overlap) due(now time.Time) bool {
	at := o.next()
	return !at.IsZero() && !now.Before(at)
}

// step takes from bundles the CAs that have been gone for long enough, and returns what is known of the others.
func (o overlap) step(bundles [][]*x509.Certificate, ca []*x509.Certificate, now time.Time) (kept [][]*x509.Certificate, after overlap, dropped int) {
	after = overlap{on: o.on, after: o.after, since: map[string]time.Time{}}
	gone, given := map[string]bool{}, rawOf(ca)
	for _, certs := range bundles {
		kept = append(kept, slices.DeleteFunc(slices.Clone(certs), func(c *x509.Certificate) bool {
			if !o.on || now.After(c.NotAfter) || given[string(c.Raw)] {
				return false
			}
			digest := digestOf(c)
			since, known := o.since[digest]
			if !known || since.After(now) { // the clock may have been put back
				since = now.UTC().Truncate(time.Second)
			}
			if !now.Before(since.Add(o.after)) {
				gone[digest] = true
				return true
			}
			after.since[digest] = since
			return false
		}))
	}
	return kept, after, len(gone)
}

// rawOf is a set of certificates.
func rawOf(certs []*x509.Certificate) map[string]bool {
	out := make(map[string]bool, len(certs))
	for _, c := range certs {
		out[string(c.Raw)] = true
	}
	return out
}

func digestOf(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:16])
}

// text is what is written into the annotation; empty for none.
func (o overlap) text() string {
	if len(o.since) == 0 {
		return ""
	}
	text, _ := json.Marshal(o.since) // strings and times can always be encoded
	return string(text)
}

// fit takes CAs that are not in the source out of a bundle until it has no more bytes than may be. The one that is last
// has left last, and servers may still use it: it goes last. Of the others the newest goes first, so that whoever may
// write the source, and fills the bundle, does not push out what was there before. The CA of the source itself fits.
func fit(certs, ca []*x509.Certificate) (fitting []*x509.Certificate, taken int) {
	size := len(pki.EncodeCertificates(certs...))
	if size <= pki.MaxBundlePEM {
		return certs, 0
	}
	given := rawOf(ca)
	var old []*x509.Certificate
	for _, c := range certs {
		if !given[string(c.Raw)] {
			old = append(old, c)
		}
	}
	slices.Reverse(old)
	if len(old) > 1 {
		old = append(old[1:], old[0])
	}
	out := map[*x509.Certificate]bool{}
	for _, c := range old {
		if size <= pki.MaxBundlePEM {
			break
		}
		size -= len(pki.EncodeCertificates(c))
		out[c] = true
	}
	return slices.DeleteFunc(slices.Clone(certs), func(c *x509.Certificate) bool { return out[c] }), len(out)
}
