package inspect

import (
	"context"
	"crypto/x509"
	"errors"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/acme"
	acmeclient "chancery.dev/internal/acme/client"
	"chancery.dev/internal/cli/version"
	"chancery.dev/internal/egress"
)

// Renewal is when an ACME server wants a certificate to be renewed (RFC 9773).
type Renewal struct {
	Start metav1.Time `json:"start"`
	End   metav1.Time `json:"end"`
	// Asked is when the server said so.
	Asked metav1.Time `json:"asked"`
	// Explanation is a page that says why.
	Explanation string `json:"explanation,omitempty"`
}

// renewal says when the ACME server of a Certificate's issuer wants the certificate to be renewed. It asks the server,
// or takes the answer that the controller has noted.
func (r *Report) renewal(ctx context.Context, c client.Reader, o *options, crt *certmanagerv1.Certificate, leaf *x509.Certificate) {
	var noted *certmanagerv1.CertificateARIStatus
	if crt.Status.ACME != nil {
		noted = crt.Status.ACME.ARI
	}
	if noted != nil && noted.SuggestedWindow != nil && noted.LastChecked != nil {
		w := noted.SuggestedWindow
		r.Renewal = &Renewal{Start: w.Start, End: w.End, Asked: *noted.LastChecked, Explanation: noted.ExplanationURL}
	}
	if !o.offline {
		server, err := acmeServer(ctx, c, crt)
		if err == nil && server == nil && noted == nil {
			return // no ACME, no such information
		}
		if err == nil && server != nil {
			err = offLimits(r.ask(ctx, server, o.egress(), o.timeout, leaf))
		}
		switch {
		case errors.Is(err, acmeclient.ErrRenewalInfoUnsupported):
			r.add(aboutRenewal, None, "", "the ACME server does not say when to renew (RFC 9773)")
			return
		case err != nil:
			r.add(aboutRenewal, Unknown, "", "the ACME server could not be asked: %v", err)
		}
	}
	w := r.Renewal
	switch {
	case w == nil:
	case r.now.After(w.End.Time):
		r.add(aboutRenewal, Wrong, "See why it is not renewed: kubectl chancery status "+crt.Name, "%s", w.words("wanted"))
	default:
		r.add(aboutRenewal, OK, "", "%s", w.words("wants"))
	}
}

func (w *Renewal) words(wants string) string {
	text := "the ACME server " + wants + " it to be renewed between " + stamp(w.Start.Time) + " and " + stamp(w.End.Time) + " (asked at " + stamp(w.Asked.Time) + ")"
	if w.Explanation != "" {
		text += ", see " + w.Explanation
	}
	return text
}

// ask asks an ACME server. It needs no account.
func (r *Report) ask(ctx context.Context, server *acmev1.ACMEIssuer, policy *egress.Policy, timeout time.Duration, leaf *x509.Certificate) error {
	id, err := acme.CertID(leaf)
	if err != nil {
		return err
	}
	asking, err := acmeclient.NewHTTPClient(acmeclient.HTTPOptions{
		CABundle: server.CABundle, InsecureSkipVerify: server.SkipTLSVerify, Egress: policy,
	})
	if err != nil {
		return err
	}
	asking.Timeout = timeout
	asking.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	asker, err := acmeclient.New(acmeclient.Options{DirectoryURL: server.Server, HTTPClient: asking, UserAgent: "kubectl-chancery/" + version.Number()})
	if err != nil {
		return err
	}
	info, err := asker.RenewalInfo(ctx, id)
	if err != nil {
		return err
	}
	r.Renewal = &Renewal{
		Start: metav1.NewTime(info.SuggestedWindow.Start), End: metav1.NewTime(info.SuggestedWindow.End),
		Asked: metav1.NewTime(r.now), Explanation: info.ExplanationURL,
	}
	return nil
}

// acmeServer returns the ACME server of a Certificate's issuer; nil if the issuer has none.
func acmeServer(ctx context.Context, c client.Reader, crt *certmanagerv1.Certificate) (*acmev1.ACMEIssuer, error) {
	if crt.Spec.IssuerRef.IsExternal() {
		return nil, nil
	}
	issuer := certmanagerv1.NewIssuer(crt.Spec.IssuerRef, crt.Namespace)
	err := c.Get(ctx, client.ObjectKeyFromObject(issuer), issuer)
	return issuer.GetSpec().ACME, err
}
