package ca

import (
	"crypto/x509"
	"slices"
	"strings"
	"testing"
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig/bounds"
	"chancery.dev/internal/signer"
)

// rotated are three roots of one name, each after the other, and the links from each to the one before.
type rotated struct {
	roots  []*authority
	bc, ab *x509.Certificate
}

func newRotated(t testing.TB, ends ...time.Duration) rotated {
	t.Helper()
	var r rotated
	for _, end := range ends {
		r.roots = append(r.roots, newAuthorityWith(t, "root", true, true, nil, func(c *x509.Certificate) { c.NotAfter = now.Add(end) }))
	}
	link := func(root, old *authority) *x509.Certificate {
		key, err := pki.DecodePrivateKey(old.key)
		if err != nil {
			t.Fatal(err)
		}
		link, err := pki.NewLink(root.cert, old.cert, key, now)
		if err != nil {
			t.Fatal(err)
		}
		return link
	}
	r.ab, r.bc = link(r.roots[1], r.roots[0]), link(r.roots[2], r.roots[1])
	return r
}

// bundle is ca.crt of the third CA.
func (r rotated) bundle() []byte {
	return slices.Concat(pemOf(r.roots[2], r.roots[1], r.roots[0]), pki.EncodeCertificates(r.ab, r.bc))
}

// delivered signs a request, and returns what is in tls.crt behind the certificate, and what is in ca.crt.
func delivered(t *testing.T, s *Signer, annotations map[string]string, r signer.Request) (behind, roots []*x509.Certificate) {
	t.Helper()
	issuer := issuerIn("team")
	issuer.SetAnnotations(annotations)
	result, err := s.Sign(t.Context(), issuer, r)
	if err != nil {
		t.Fatal(err)
	}
	chain, err := pki.DecodeChain(result.Bundle.Chain)
	if err != nil {
		t.Fatal(err)
	}
	if roots, err = pki.DecodeBundle(result.Bundle.CA); err != nil {
		t.Fatal(err)
	}
	return chain[1:], roots
}

// TestRootsAreKnown: an intermediate whose root is not in its Secret, a chain that does not fit, and a Secret that is
// not there have no roots, and say what to do.
func TestRootsAreKnown(t *testing.T) {
	t.Parallel()
	root, other := newAuthority(t, "root", true, nil), newAuthority(t, "other", true, nil)
	sub := newAuthority(t, "sub", true, root)
	for name, c := range map[string]struct {
		secret map[string][]byte
		says   string
	}{
		"no root":           {map[string][]byte{"tls.crt": pemOf(sub), "tls.key": sub.key}, "put the root of the CA into ca.crt"},
		"another root":      {map[string][]byte{"tls.crt": pemOf(sub), "tls.key": sub.key, "ca.crt": pemOf(other)}, "the CA certificates in Secret"},
		"there is nothing":  {nil, "does not exist"},
		"the key is no key": {map[string][]byte{"tls.crt": pemOf(root), "tls.key": []byte("x")}, "tls.key"},
	} {
		store := &secrets{}
		if c.secret != nil {
			store.put("team", "ca", c.secret)
		}
		roots, err := newSigner(store).Roots(t.Context(), issuerIn("team"))
		if fault.Of(err) == nil || !strings.Contains(err.Error(), c.says) || len(roots) > 0 {
			t.Errorf("%s: %v, %d roots", name, err, len(roots))
		}
	}
}

// TestLinksGoAlong: where an issuer hands on roots, the links are behind the leaf and the older roots in ca.crt. A CA
// gets its links in ca.crt. Without the annotation, and while keys are stolen, nobody gets either.
func TestLinksGoAlong(t *testing.T) {
	r := newRotated(t, 10*time.Hour, 20*time.Hour, 30*time.Hour)
	third, second, first := r.roots[2].cert, r.roots[1].cert, r.roots[0].cert
	sub := newAuthority(t, "sub", true, r.roots[2])
	on := map[string]string{certmanagerv1.DeliverRootsAnnotation: "true"}
	stolen := map[string]string{certmanagerv1.DeliverRootsAnnotation: "true", certmanagerv1.ReissueNowAnnotation: "true"}
	type certs = []*x509.Certificate
	root := map[string][]byte{"tls.crt": pemOf(r.roots[2]), "tls.key": r.roots[2].key, "ca.crt": r.bundle()}
	below := map[string][]byte{"tls.crt": pemOf(sub), "tls.key": sub.key, "ca.crt": r.bundle()}
	byHand := map[string][]byte{
		"tls.crt": append(pemOf(r.roots[2]), pki.EncodeCertificates(r.bc, r.ab)...), "tls.key": r.roots[2].key, "ca.crt": pemOf(r.roots[2], r.roots[1], r.roots[0]),
	}
	for name, c := range map[string]struct {
		secret        map[string][]byte
		annotations   map[string]string
		isCA          bool
		kind          string
		behind, roots certs
	}{
		"a leaf":                     {root, on, false, "", certs{r.bc, r.ab}, certs{third, second, first}},
		"a leaf of a CSR":            {root, on, false, "CertificateSigningRequest", certs{r.bc, r.ab}, certs{third, second, first}},
		"a CA":                       {root, on, true, "", nil, certs{third, second, first, r.bc, r.ab}},
		"a leaf of an intermediate":  {below, on, false, "", certs{sub.cert, r.bc, r.ab}, certs{third, second, first}},
		"a CA of an intermediate":    {below, on, true, "", certs{sub.cert}, certs{third, second, first, r.bc, r.ab}},
		"links by hand in tls.crt":   {byHand, on, false, "", certs{r.bc, r.ab}, certs{third, second, first}},
		"without the annotation":     {root, nil, false, "", nil, certs{third}},
		"the same below":             {below, nil, false, "", certs{sub.cert}, certs{third}},
		"by hand, as anything there": {byHand, nil, false, "", certs{r.bc, r.ab}, certs{third}},
		"stolen":                     {root, stolen, false, "", nil, certs{third}},
		"stolen, for a CA":           {root, stolen, true, "", nil, certs{third}},
		"stolen, below":              {below, stolen, false, "", certs{sub.cert}, certs{third}},
		"stolen, links by hand":      {byHand, stolen, false, "", nil, certs{third}},
	} {
		store := &secrets{}
		store.put("team", "ca", c.secret)
		request := newRequest(t)
		request.IsCA = c.isCA
		if c.kind != "" {
			request.SourceKind = c.kind
		}
		for range 2 { // the second one finds the kept pair
			behind, roots := delivered(t, newSigner(store), c.annotations, request)
			issuer, known := issuerIn("team"), c.roots
			issuer.SetAnnotations(c.annotations)
			if c.isCA {
				known = certs{third, second, first}[:min(3, len(known))] // Roots has no links
			}
			trusted, err := newSigner(store).Roots(t.Context(), issuer)
			if err != nil || !slices.EqualFunc(trusted, known, (*x509.Certificate).Equal) {
				t.Errorf("%s: %d roots, want %d: %v", name, len(trusted), len(known), err)
			}
			if !slices.EqualFunc(behind, c.behind, (*x509.Certificate).Equal) || !slices.EqualFunc(roots, c.roots, (*x509.Certificate).Equal) {
				t.Errorf("%s: %d certificates behind it, want %d, and %d in ca.crt, want %d", name, len(behind), len(c.behind), len(roots), len(c.roots))
			}
		}
	}
}

// TestLinksThatEndSoon: a link does not go along in the last tenth of its lifetime, or of that of the leaf if the leaf
// lives shorter. Its root goes along until it expires. An intermediate has a link until the link expires: the issuer
// below leaves it out when its own leaves are to have it no more.
func TestLinksThatEndSoon(t *testing.T) {
	r := newRotated(t, 10*time.Hour, 20*time.Hour, 30*time.Hour)
	store := &secrets{}
	store.put("team", "ca", map[string][]byte{"tls.crt": pemOf(r.roots[2]), "tls.key": r.roots[2].key, "ca.crt": r.bundle()})
	both, one := []*x509.Certificate{r.bc, r.ab}, []*x509.Certificate{r.bc}
	for _, c := range []struct {
		after, lifetime time.Duration
		isCA            bool
		behind          []*x509.Certificate
		inCA            int
	}{
		{0, 1000 * time.Hour, false, both, 3},
		{8*time.Hour + 53*time.Minute, 1000 * time.Hour, false, both, 3}, // the link lives for eleven hours
		{8*time.Hour + 55*time.Minute, 1000 * time.Hour, false, one, 3},
		{9*time.Hour + 53*time.Minute, time.Hour, false, both, 3},
		{9*time.Hour + 55*time.Minute, time.Hour, false, one, 3},
		{9*time.Hour + 55*time.Minute, time.Hour, true, nil, 5},
		{10*time.Hour + time.Minute, time.Hour, true, nil, 3}, // the oldest root has expired, too
		{17 * time.Hour, 1000 * time.Hour, false, one, 2},
		{18 * time.Hour, 1000 * time.Hour, false, nil, 2},
	} {
		request := newRequest(t)
		request.Duration, request.IsCA = c.lifetime, c.isCA
		s := New(Config{Secrets: store, Now: func() time.Time { return now.Add(c.after) }})
		behind, roots := delivered(t, s, map[string]string{certmanagerv1.DeliverRootsAnnotation: "true"}, request)
		if !slices.EqualFunc(behind, c.behind, (*x509.Certificate).Equal) || len(roots) != c.inCA {
			t.Errorf("after %s, for %s: %d links, want %d; %d in ca.crt, want %d", c.after, c.lifetime, len(behind), len(c.behind), len(roots), c.inCA)
		}
	}
}

// TestRootsOverlapOnDemand: the root of the chain comes first, because a CA issuer that is given such a Secret reads
// the first. Others that are no CAs or have expired are not delivered.
func TestRootsOverlapOnDemand(t *testing.T) {
	root := newAuthority(t, "root", true, nil)
	sub := newAuthority(t, "sub", true, root)
	old, leaf := newAuthority(t, "root", true, nil), newAuthority(t, "leaf", false, nil)
	expired := newAuthorityWith(t, "gone", true, true, nil, func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Minute) })
	store := &secrets{}
	store.put("team", "ca", map[string][]byte{
		"tls.crt": pemOf(sub), "tls.key": sub.key, "ca.crt": pemOf(root, expired, leaf, root, old),
	})
	issuer := issuerIn("team")
	for value, want := range map[string][]byte{"": pemOf(root), "false": pemOf(root), "true": pemOf(root, old)} {
		issuer.SetAnnotations(map[string]string{certmanagerv1.DeliverRootsAnnotation: value})
		result, err := newSigner(store).Sign(t.Context(), issuer, newRequest(t))
		if err != nil || string(result.Bundle.CA) != string(want) {
			t.Errorf("%q: %v, ca.crt\n%s\nwant\n%s", value, err, result.Bundle.CA, want)
		}
	}
	issuer.SetAnnotations(map[string]string{certmanagerv1.DeliverRootsAnnotation: "true"})
	bounds.Holds(t, "roots", func(n int) limits.Outcome {
		many := pemOf(root)
		for range n - 1 {
			many = append(many, pemOf(old)...)
		}
		store.put("team", "ca", map[string][]byte{"tls.crt": pemOf(sub), "tls.key": sub.key, "ca.crt": many})
		_, err := newSigner(store).Sign(t.Context(), issuer, newRequest(t))
		return bounds.Refusal(t, err, "11 certificates")
	})
}

// TestOlderRootsAreTold: the status says which older roots the Secret holds, and whether clients that know one of them
// alone accept what the issuer signs; the issuer is looked at again when that changes.
func TestOlderRootsAreTold(t *testing.T) {
	r := newRotated(t, 10*time.Hour, 20*time.Hour, 30*time.Hour)
	strict := newAuthorityWith(t, "root", true, true, nil, func(c *x509.Certificate) { c.NotAfter, c.MaxPathLenZero = now.Add(25*time.Hour), true })
	sub := newAuthority(t, "sub", true, r.roots[2])
	var many []byte
	for range pki.MaxRoots {
		many = append(many, pemOf(newAuthority(t, "root", true, nil))...)
	}
	for name, c := range map[string]struct {
		tls, ca  []byte
		key      []byte
		after    time.Duration
		unlinked []string // in part, of each root
		until    time.Duration
	}{
		"both are linked":     {pemOf(r.roots[2]), r.bundle(), r.roots[2].key, 0, []string{"", ""}, 10 * time.Hour},
		"a link is missing":   {pemOf(r.roots[2]), append(pemOf(r.roots[2], r.roots[1], r.roots[0]), pki.EncodeCertificates(r.bc)...), r.roots[2].key, 0, []string{"", "has signed no link"}, 10 * time.Hour},
		"one has expired":     {pemOf(r.roots[2]), r.bundle(), r.roots[2].key, 11 * time.Hour, []string{""}, 20 * time.Hour},
		"no CA may be below":  {pemOf(r.roots[2]), pemOf(r.roots[2], strict), r.roots[2].key, 0, []string{"path length"}, 25 * time.Hour},
		"no older root":       {pemOf(r.roots[2]), pemOf(r.roots[2]), r.roots[2].key, 0, nil, 30*time.Hour + time.Second},
		"too many":            {pemOf(r.roots[2]), append(pemOf(r.roots[2]), many...), r.roots[2].key, 0, nil, 30*time.Hour + time.Second},
		"the root is unknown": {pemOf(sub), pemOf(sub, r.roots[0]), sub.key, 0, []string{"is not known"}, 10 * time.Hour},
		"only its own":        {pemOf(sub), pemOf(r.roots[2], sub, r.roots[2]), sub.key, 0, nil, 23*time.Hour + time.Second},
	} {
		store := &secrets{}
		store.put("team", "ca", map[string][]byte{"tls.crt": c.tls, "tls.key": c.key, "ca.crt": c.ca})
		facts, err := New(Config{Secrets: store, Now: func() time.Time { return now.Add(c.after) }}).Probe(t.Context(), issuerIn("team"))
		if err != nil {
			t.Fatal(name, err)
		}
		if len(facts.OlderRoots) != len(c.unlinked) || !facts.Until.Equal(now.Add(c.until)) {
			t.Errorf("%s: %+v, until %s", name, facts.OlderRoots, facts.Until.Sub(now))
			continue
		}
		for i, root := range facts.OlderRoots {
			if (root.Unlinked == "") != (c.unlinked[i] == "") || !strings.Contains(root.Unlinked, c.unlinked[i]) {
				t.Errorf("%s: %q, want %q", name, root.Unlinked, c.unlinked[i])
			}
		}
	}
}

// TestCrossSignedRoots: a root that a company's PKI has signed, too, by an intermediate. What is delivered is a chain
// that a CA below can sign with, whatever the annotations say.
func TestCrossSignedRoots(t *testing.T) {
	far := newAuthority(t, "far root", true, nil)
	between := newAuthority(t, "far intermediate", true, far)
	root := newAuthority(t, "root", true, nil)
	byFar := root.certifiedBy(t, between)
	store := &secrets{}
	store.put("team", "ca", map[string][]byte{"tls.crt": pemOf(root, byFar, between), "tls.key": root.key, "ca.crt": pemOf(root)})
	for _, annotations := range []map[string]string{
		nil, {certmanagerv1.DeliverRootsAnnotation: "true"}, {certmanagerv1.ReissueNowAnnotation: "true"},
		{certmanagerv1.DeliverRootsAnnotation: "true", certmanagerv1.ReissueNowAnnotation: "true"},
	} {
		request := newRequest(t)
		request.IsCA = true
		behind, roots := delivered(t, newSigner(store), annotations, request)
		leaf := newAuthority(t, "leaf", true, root) // in place of what was signed: of its signer alone the chain depends
		if _, err := pki.BuildChain(t.Context(), slices.Concat([]*x509.Certificate{leaf.cert}, behind, roots[:1])); err != nil {
			t.Errorf("with %v: %v", annotations, err)
		}
		issuer := issuerIn("team")
		issuer.SetAnnotations(annotations)
		told, err := newSigner(store).Authority(t.Context(), issuer)
		if err != nil {
			t.Fatal(err)
		}
		// What bounds no decision must be left out in time, or the CA is issued again and again.
		late := New(Config{Secrets: store, Now: func() time.Time { return byFar.cert.NotAfter.Add(-time.Minute) }})
		last, _ := delivered(t, late, annotations, request)
		for _, c := range last {
			if !slices.ContainsFunc(told, c.Equal) {
				t.Errorf("with %v: %s is delivered until it expires, and is not told", annotations, c.Issuer)
			}
		}
	}
}
