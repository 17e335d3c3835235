package pki

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"
)

// maxChain bounds the number of certificates that are joined: their signatures may have to be
// verified with each of them. The spec allows 1,000 (§3.4); real chains have less than ten.
const maxChain = 20

// Chain is certificates in order.
type Chain struct {
	// Certificates are leaf first, each signed by the next, without a self-signed
	// root (unless it is the only certificate).
	Certificates []*x509.Certificate
	// CA is the topmost known certificate: the root if it is known. Nil for a lone certificate that is not self-signed.
	CA *x509.Certificate
	// Cross are certificates by which verifiers reach other roots: certificates with the name and key of one in the
	// chain, but signed by somebody else, and those above them. None is self-signed.
	Cross []*x509.Certificate
}

// PEM returns the chain with its cross certificates, and the CA, both encoded. ca is nil if there is no CA.
func (c Chain) PEM() (chain, ca []byte) {
	if c.CA != nil {
		ca = EncodeCertificates(c.CA)
	}
	return EncodeCertificates(slices.Concat(c.Certificates, c.Cross)...), ca
}

// BuildChain orders certificates into one chain, from the lowest of them to a root (spec §3.4). They may come in any
// order and more than once. A CA may have several certificates, signed by different keys: when a root is replaced, or
// if a CA has two parents. Then BuildChain prefers the path whose key identifiers fit, that ends in a root, that stays
// valid longest and that is shortest, in this order. The others are in Cross. It is an error if a certificate is not
// above the lowest, or if ctx ends. If each certificate has signed another one, the first is the lowest.
//
// Of the certificates in further, those go into Cross that lead from the chain to other roots. The others are left out.
//
// BuildChain looks at names and signatures only: verifiers judge whether a signer may sign.
func BuildChain(ctx context.Context, certs []*x509.Certificate, further ...*x509.Certificate) (Chain, error) {
	unique, err := deduplicate(certs)
	if err != nil {
		return Chain{}, err
	}
	all, err := deduplicate(slices.Concat(unique, further))
	if err != nil {
		return Chain{}, err
	}
	g := graph{members: map[string][]*x509.Certificate{}, above: map[*x509.Certificate]string{}, roots: map[*x509.Certificate]bool{}}
	if err := g.link(ctx, all); err != nil {
		return Chain{}, err
	}
	lowest, err := g.lowest(unique)
	if err != nil {
		return Chain{}, err
	}
	first := g.members[lowest]
	if holder(certs[0]) == lowest { // a leaf, or a signer, whose leaves name its key as it does
		first = named(first, certs[0].SubjectKeyId)
	}
	path := g.best(first, nil)
	chain := split(path)
	chain.Cross = g.cross(path)
	return chain, nil
}

// Prepend adds a new leaf, signed by the lowest certificate, to the chain, and returns the same chain as BuildChain
// would. It is for signers that have just made the leaf: it does not verify the signature again.
func (c Chain) Prepend(leaf *x509.Certificate) (Chain, error) {
	if len(c.Certificates) == 0 || !bytes.Equal(leaf.RawIssuer, c.Certificates[0].RawSubject) {
		return Chain{}, errors.New("the certificate is not signed by the lowest certificate of the chain")
	}
	issuer := c.Certificates[0]
	if bytes.Equal(leaf.RawIssuer, leaf.RawSubject) && PublicKeysEqual(leaf.PublicKey, issuer.PublicKey) {
		return Chain{}, fmt.Errorf("the certificate has the name and the key of its signer %q: it must have its own", name(issuer))
	}
	lone := len(c.Certificates) == 1
	switch {
	case lone && c.CA == issuer: // self-signed
		return Chain{Certificates: []*x509.Certificate{leaf}, CA: issuer, Cross: c.Cross}, nil
	case lone && c.CA == nil:
		return Chain{Certificates: []*x509.Certificate{leaf, issuer}, CA: issuer, Cross: c.Cross}, nil
	default:
		return Chain{Certificates: slices.Concat([]*x509.Certificate{leaf}, c.Certificates), CA: c.CA, Cross: c.Cross}, nil
	}
}

func deduplicate(certs []*x509.Certificate) ([]*x509.Certificate, error) {
	seen := make(map[string]bool, len(certs))
	var unique []*x509.Certificate
	for _, c := range certs {
		if !seen[string(c.Raw)] {
			seen[string(c.Raw)] = true
			unique = append(unique, c)
		}
	}
	switch {
	case len(unique) == 0:
		return nil, errors.New("no certificates to make a chain of")
	case len(unique) > maxChain:
		return nil, fmt.Errorf("%d certificates are too many for a chain: the limit is %d", len(unique), maxChain)
	}
	return unique, nil
}

// graph is certificates by their holder, which is a name with a key: any certificate of the holder that has signed
// another one will do for a verifier.
type graph struct {
	// members are the certificates of each holder, the last to expire first.
	members map[string][]*x509.Certificate
	// above is the holder that has signed a certificate; none for self-signed ones and those whose signer is unknown.
	above map[*x509.Certificate]string
	// roots are the self-signed certificates.
	roots map[*x509.Certificate]bool
}

func holder(c *x509.Certificate) string {
	return string(c.RawSubject) + string(c.RawSubjectPublicKeyInfo)
}

func (g graph) link(ctx context.Context, certs []*x509.Certificate) error {
	bySubject := make(map[string][]*x509.Certificate, len(certs))
	for _, c := range certs {
		bySubject[string(c.RawSubject)] = append(bySubject[string(c.RawSubject)], c)
		g.members[holder(c)] = append(g.members[holder(c)], c)
	}
	for _, members := range g.members {
		slices.SortFunc(members, func(a, b *x509.Certificate) int {
			return cmp.Or(b.NotAfter.Compare(a.NotAfter), bytes.Compare(a.Raw, b.Raw))
		})
	}
	for _, c := range certs {
		if g.roots[c] = IsSelfSigned(c); g.roots[c] {
			continue
		}
		issuer, err := issuerAmong(ctx, c, bySubject[string(c.RawIssuer)])
		if err != nil {
			return err
		}
		if issuer != nil {
			g.above[c] = holder(issuer)
		}
	}
	return nil
}

// lowest returns the one holder that all certificates are of, or above.
func (g graph) lowest(certs []*x509.Certificate) (string, error) {
	signs := map[string]bool{}
	for _, c := range certs {
		signs[g.above[c]] = signs[g.above[c]] || holder(c) != g.above[c]
	}
	lowest := certs[0]
	if at := slices.IndexFunc(certs, func(c *x509.Certificate) bool { return !signs[holder(c)] }); at >= 0 {
		lowest = certs[at]
	} else if !slices.ContainsFunc(certs, func(c *x509.Certificate) bool { return g.roots[c] }) {
		return "", errors.New("the certificates sign each other in a circle: they make no chain")
	}
	reached := g.reach(holder(lowest), map[string]bool{})
	return holder(lowest), g.stray(certs, reached, lowest)
}

// stray says which certificate is not among those reached from the lowest, and why; nil if there is none.
func (g graph) stray(certs []*x509.Certificate, reached map[string]bool, lowest *x509.Certificate) error {
	var stray, top *x509.Certificate
	signs := map[string]*x509.Certificate{}
	for _, c := range certs {
		switch above := g.above[c]; {
		case !reached[holder(c)]:
			stray = cmp.Or(stray, c)
		case above == "":
			top = cmp.Or(top, c)
		default:
			signs[above] = c
		}
	}
	for _, c := range certs {
		if below := signs[g.above[c]]; below != nil && !reached[holder(c)] {
			return fmt.Errorf("%q signs both %q and %q: only one of them can be in the chain", name(g.members[g.above[c]][0]), name(below), name(c))
		}
	}
	if stray != nil {
		return fmt.Errorf("the certificates %q and %q do not belong to one chain: neither leads to the other", name(cmp.Or(top, lowest)), name(stray))
	}
	return nil
}

// reach adds to a set a holder and all those above it.
func (g graph) reach(from string, set map[string]bool) map[string]bool {
	set[from] = true
	for _, c := range g.members[from] {
		if above := g.above[c]; above != "" && !set[above] {
			g.reach(above, set)
		}
	}
	return set
}

// best returns the best of the paths that go up from one of a holder's certificates, and pass no holder twice. There
// are fewer than 2,000 paths through maxChain certificates.
func (g graph) best(members []*x509.Certificate, below []*x509.Certificate) []*x509.Certificate {
	var best []*x509.Certificate
	for _, c := range members {
		path := []*x509.Certificate{c}
		passed := append(below[:len(below):len(below)], c)
		above := g.above[c]
		if !slices.ContainsFunc(passed, func(p *x509.Certificate) bool { return holder(p) == above }) {
			path = append(path, g.best(named(g.members[above], c.AuthorityKeyId), passed)...)
		}
		if best == nil || g.better(path, best) {
			best = path
		}
	}
	return best
}

// named returns the members with a key identifier, or all of them if none has it: OpenSSL takes no signer that a
// certificate does not name (RFC 5280 §4.2.1.1), and CAs may have computed it in different ways.
func named(members []*x509.Certificate, id []byte) []*x509.Certificate {
	var with []*x509.Certificate
	for _, c := range members {
		if bytes.Equal(c.SubjectKeyId, id) {
			with = append(with, c)
		}
	}
	if len(with) == 0 {
		return members
	}
	return with
}

func (g graph) better(a, b []*x509.Certificate) bool {
	if rootOfA := g.roots[a[len(a)-1]]; rootOfA != g.roots[b[len(b)-1]] {
		return rootOfA
	}
	return cmp.Or(FirstEnd(a).Compare(FirstEnd(b)), len(b)-len(a)) > 0
}

// cross returns what leads from a path to other roots: of each holder on the way one certificate by each signer, except
// those on the path, roots, and those that a holder on the path has signed, which lead back to it.
func (g graph) cross(path []*x509.Certificate) (found []*x509.Certificate) {
	taken, onPath, seen := map[[2]string]bool{}, map[string]bool{}, map[string]bool{}
	by := func(c *x509.Certificate) [2]string {
		if g.roots[c] {
			return [2]string{holder(c), holder(c)}
		}
		return [2]string{holder(c), cmp.Or(g.above[c], string(c.RawIssuer))}
	}
	var next []string
	for _, c := range path {
		taken[by(c)], onPath[holder(c)] = true, true
		next = append(next, holder(c))
	}
	for ; len(next) > 0; next = next[1:] {
		if seen[next[0]] {
			continue
		}
		seen[next[0]] = true
		for _, c := range g.members[next[0]] {
			if taken[by(c)] || g.roots[c] || onPath[g.above[c]] {
				continue
			}
			taken[by(c)] = true
			found, next = append(found, c), append(next, g.above[c])
		}
	}
	return found
}

// issuerAmong returns a candidate that signed c, or nil. Candidates that c names by their key identifier (RFC 5280
// §4.2.1.1) come first: the others are seldom verified.
func issuerAmong(ctx context.Context, c *x509.Certificate, candidates []*x509.Certificate) (*x509.Certificate, error) {
	var named, others []*x509.Certificate
	for _, candidate := range candidates {
		if bytes.Equal(candidate.SubjectKeyId, c.AuthorityKeyId) {
			named = append(named, candidate)
		} else {
			others = append(others, candidate)
		}
	}
	for _, candidate := range append(named, others...) {
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case candidate != c && signed(candidate, c):
			return candidate, nil
		}
	}
	return nil, nil
}

// IsSelfSigned reports whether a certificate is signed with its own key.
func IsSelfSigned(c *x509.Certificate) bool {
	return bytes.Equal(c.RawIssuer, c.RawSubject) && signed(c, c)
}

// signed verifies the signature alone: CheckSignatureFrom would also ask whether
// issuer is a CA, which a self-signed leaf is not.
func signed(issuer, c *x509.Certificate) bool {
	return issuer.CheckSignature(c.SignatureAlgorithm, c.RawTBSCertificate, c.Signature) == nil
}

func split(ordered []*x509.Certificate) Chain {
	last := len(ordered) - 1
	top := ordered[last]
	switch {
	case last == 0 && IsSelfSigned(top):
		return Chain{Certificates: ordered, CA: top}
	case last == 0:
		return Chain{Certificates: ordered}
	case IsSelfSigned(top):
		return Chain{Certificates: ordered[:last], CA: top}
	default:
		return Chain{Certificates: ordered, CA: top}
	}
}

// name is what a message calls a certificate.
func name(c *x509.Certificate) string {
	if s := c.Subject.String(); s != "" {
		return s
	}
	return "serial number " + c.SerialNumber.String()
}

// FirstOf decodes the first certificate of a PEM chain of at most MaxChainPEM bytes, and returns the rest as it is.
func FirstOf(text []byte) (leaf *x509.Certificate, rest []byte, err error) {
	if len(text) > MaxChainPEM {
		return nil, nil, fmt.Errorf("%d bytes of PEM are more than the %d that are decoded", len(text), MaxChainPEM)
	}
	block, rest, err := nextBlock(text)
	if err != nil {
		return nil, nil, err
	}
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, nil, errors.New("no PEM block of type CERTIFICATE")
	}
	leaf, err = x509.ParseCertificate(block.Bytes)
	return leaf, rest, err
}

// SignedByName reports whether a certificate says that ca has signed it: by the name of ca, and by the identifier of
// its key where both have one (RFC 5280 §4.1.2.4, §4.2.1.1). It verifies no signature.
func SignedByName(cert, ca *x509.Certificate) bool {
	known := len(cert.AuthorityKeyId) > 0 && len(ca.SubjectKeyId) > 0
	return bytes.Equal(ca.RawSubject, cert.RawIssuer) && (!known || bytes.Equal(ca.SubjectKeyId, cert.AuthorityKeyId))
}

// SplitPath splits the certificates behind a leaf into those that lead to a root, which is not among them, and the
// others, by which verifiers reach other roots. If none leads there, all of them are the path. It looks at names alone.
func SplitPath(leaf *x509.Certificate, above []*x509.Certificate, root *x509.Certificate) (path, others []*x509.Certificate) {
	others = slices.Clone(above)
	for at := leaf; !SignedByName(at, root); at = path[len(path)-1] {
		next := slices.IndexFunc(others, func(c *x509.Certificate) bool { return SignedByName(at, c) })
		if next < 0 {
			return above, nil
		}
		path, others = append(path, others[next]), slices.Delete(others, next, next+1)
	}
	return path, others
}

// FirstToExpire returns the certificate whose validity (RFC 5280 §4.1.2.5) ends first; nil if there is none.
func FirstToExpire(certs []*x509.Certificate) *x509.Certificate {
	var first *x509.Certificate
	for _, c := range certs {
		if first == nil || c.NotAfter.Before(first.NotAfter) {
			first = c
		}
	}
	return first
}

// FirstEnd returns when the first of some certificates expires; zero if there is none.
func FirstEnd(certs []*x509.Certificate) time.Time {
	if first := FirstToExpire(certs); first != nil {
		return first.NotAfter
	}
	return time.Time{}
}
