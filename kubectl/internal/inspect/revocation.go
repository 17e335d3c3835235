package inspect

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"golang.org/x/crypto/ocsp"

	"chancery.dev/internal/egress"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/pki"
)

// Bounds of what is downloaded, in bytes. The largest CRLs of public CAs have some 10 MB.
const (
	maxAnswer = limits.RevocationBody
	maxCRL    = limits.RevocationList
)

// Bounds of what is asked: a certificate says which servers, and anybody may have written it.
const (
	// maxMissing bounds how many missing certificates are asked for.
	maxMissing = 4
	// maxURLs bounds how many URLs of one certificate are asked, and maxAllURLs those of all certificates of a report.
	maxURLs    = 4
	maxAllURLs = 16
)

// web asks the servers that certificates name. newWeb makes one.
type web struct {
	http *http.Client
	now  time.Time
	// asked is how many URLs were asked of each certificate, by its bytes, and all of them together.
	asked map[string]int
	all   int
}

// newWeb makes a web for one report. It connects to the addresses that a policy permits, and follows no redirect.
func newWeb(policy *egress.Policy, timeout time.Duration, now time.Time) *web {
	return &web{http: policy.Client(timeout, maxCRL+1), now: now, asked: map[string]int{}}
}

// fetch returns what an address that a certificate names answers to a GET, or to a POST with a body.
func (w *web) fetch(ctx context.Context, c *x509.Certificate, address, bodyType string, body []byte, limit int64) ([]byte, error) {
	if u, err := url.Parse(address); err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%s: only http and https can be asked", address)
	}
	switch {
	case w.all >= maxAllURLs:
		return nil, fmt.Errorf("%s was not asked: of all certificates together, %d URLs are asked", address, maxAllURLs)
	case w.asked[string(c.Raw)] >= maxURLs:
		return nil, fmt.Errorf("%s was not asked: of one certificate, %d URLs are asked", address, maxURLs)
	}
	w.all++
	w.asked[string(c.Raw)]++
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	q, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		q.Header.Set("Content-Type", bodyType)
	}
	a, err := w.http.Do(q)
	if err != nil {
		return nil, offLimits(err)
	}
	defer a.Body.Close() //nolint:errcheck // it was read
	if a.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", address, a.Status)
	}
	answer, err := io.ReadAll(io.LimitReader(a.Body, limit+1))
	if err == nil && int64(len(answer)) > limit {
		err = fmt.Errorf("%s answers more than %d bytes", address, limit)
	}
	return answer, err
}

// offLimits names the flag --allow-local in an error that says that a server of this computer was not asked.
func offLimits(err error) error {
	var denied *egress.Denied
	if errors.As(err, &denied) {
		return fmt.Errorf("%s is an address of this computer, of its link or of its cloud, which is not asked without --allow-local", denied.IP)
	}
	return err
}

// complete fetches the certificates that are missing above a chain.
func (w *web) complete(ctx context.Context, j *judged) {
	top := j.certs[len(j.certs)-1]
	for len(j.added) < maxMissing && !pki.IsSelfSigned(top) {
		next := j.issuerOf(top)
		if next == nil {
			if next = w.issuerOf(ctx, top); next == nil {
				return
			}
			j.added = append(j.added, next)
		}
		top = next
	}
}

// issuerOf fetches the certificate that has signed another one, from where that says it is (RFC 5280 §4.2.2.1).
func (w *web) issuerOf(ctx context.Context, c *x509.Certificate) *x509.Certificate {
	for _, address := range c.IssuingCertificateURL {
		answer, err := w.fetch(ctx, c, address, "", nil, maxAnswer)
		if err != nil {
			continue
		}
		issuer, err := x509.ParseCertificate(answer)
		if err != nil {
			issuer, err = pki.DecodeCertificate(answer)
		}
		if err == nil && c.CheckSignatureFrom(issuer) == nil {
			return issuer
		}
	}
	return nil
}

// revocation says of each certificate of a chain whether its CA has revoked it.
func (r *Report) revocation(ctx context.Context, w *web, j *judged) {
	for _, c := range j.certs {
		if pki.IsSelfSigned(c) {
			continue
		}
		if len(c.OCSPServer)+len(c.CRLDistributionPoints) == 0 {
			r.add(aboutRevocation, None, "", "%s names neither an OCSP responder nor a CRL", called(c))
			continue
		}
		issuer := j.issuerOf(c)
		if issuer == nil {
			r.add(aboutRevocation, Unknown, "Name the CA's certificate with --ca-file", "%s: the certificate that has signed it is not known, "+
				"so no answer about it can be verified", called(c))
			continue
		}
		v, err := w.ask(ctx, c, issuer)
		switch {
		case err != nil:
			r.add(aboutRevocation, Unknown, "", "%s: nobody could be asked: %v", called(c), err)
		case v.unknown:
			r.add(aboutRevocation, Unknown, "Ask the CA: its OCSP responder does not know a certificate that it has signed", "%s: %s does not know it", called(c), v.by)
		case v.revoked.IsZero():
			r.add(aboutRevocation, OK, "", "%s is not revoked, says %s", called(c), v.by)
		default:
			r.add(aboutRevocation, Wrong, "Have another one issued: kubectl chancery renew", "%s was revoked on %s (%s), says %s",
				called(c), stamp(v.revoked), reasonOf(v.reason), v.by)
		}
	}
}

// verdict is what a CA says about a certificate: by an OCSP responder or a CRL.
type verdict struct {
	by      string
	unknown bool
	// revoked is when it was revoked; zero if it was not.
	revoked time.Time
	reason  int
}

// ask asks the OCSP responders of a certificate, then its CRLs, until one of them gives an answer that can be verified.
func (w *web) ask(ctx context.Context, c, issuer *x509.Certificate) (v verdict, err error) {
	var failed error
	for _, address := range c.OCSPServer {
		if v, err = w.askOCSP(ctx, address, c, issuer); err == nil && !v.unknown {
			return v, nil
		}
		failed = errors.Join(failed, err)
	}
	answered := v.unknown
	for _, address := range c.CRLDistributionPoints {
		byList, err := w.askCRL(ctx, address, c, issuer)
		if err == nil {
			return byList, nil
		}
		failed = errors.Join(failed, err)
	}
	if answered {
		return v, nil
	}
	return v, failed
}

// askOCSP asks one OCSP responder (RFC 6960).
func (w *web) askOCSP(ctx context.Context, address string, c, issuer *x509.Certificate) (verdict, error) {
	v := verdict{by: "the OCSP responder " + address}
	question, err := ocsp.CreateRequest(c, issuer, nil)
	if err != nil {
		return v, err
	}
	answer, err := w.fetch(ctx, c, address, "application/ocsp-request", question, maxAnswer)
	if err != nil {
		return v, err
	}
	a, err := ocsp.ParseResponseForCert(answer, c, issuer)
	switch {
	case err != nil:
		return v, fmt.Errorf("%s: %w", address, err)
	case a.Certificate != nil && !bytes.Equal(a.Certificate.Raw, issuer.Raw) && !slices.Contains(a.Certificate.ExtKeyUsage, x509.ExtKeyUsageOCSPSigning):
		return v, fmt.Errorf("%s: the certificate that has signed the answer may not sign answers (RFC 6960 §4.2.2.2)", address)
	case !a.NextUpdate.IsZero() && w.now.After(a.NextUpdate):
		return v, fmt.Errorf("%s: the answer is too old: it was good until %s", address, stamp(a.NextUpdate))
	}
	v.unknown = a.Status == ocsp.Unknown
	if a.Status == ocsp.Revoked {
		v.revoked, v.reason = a.RevokedAt, a.RevocationReason
	}
	return v, nil
}

// askCRL looks for a certificate in a revocation list (RFC 5280 §5).
func (w *web) askCRL(ctx context.Context, address string, c, issuer *x509.Certificate) (verdict, error) {
	v := verdict{by: "the CRL " + address}
	answer, err := w.fetch(ctx, c, address, "", nil, maxCRL)
	if err != nil {
		return v, err
	}
	list, err := x509.ParseRevocationList(answer)
	if err == nil {
		err = list.CheckSignatureFrom(issuer)
	}
	if err == nil && !list.NextUpdate.IsZero() && w.now.After(list.NextUpdate) {
		err = fmt.Errorf("the list is too old: it was good until %s", stamp(list.NextUpdate))
	}
	if err != nil {
		return v, fmt.Errorf("%s: %w", address, err)
	}
	for _, entry := range list.RevokedCertificateEntries {
		if entry.SerialNumber.Cmp(c.SerialNumber) == 0 {
			v.revoked, v.reason = entry.RevocationTime, entry.ReasonCode
		}
	}
	return v, nil
}

// reasonOf names a reason of RFC 5280 §5.3.1.
func reasonOf(code int) string {
	names := map[int]string{
		0: "no reason given", 1: "key compromise", 2: "CA compromise", 3: "affiliation changed", 4: "superseded", 5: "cessation of operation",
		6: "on hold", 9: "privilege withdrawn", 10: "AA compromise",
	}
	return cmp.Or(names[code], fmt.Sprintf("reason %d", code))
}
