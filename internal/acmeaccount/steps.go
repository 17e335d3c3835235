package acmeaccount

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
	acmeclient "chancery.dev/internal/acme/client"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/account"
	"chancery.dev/internal/machine/acmeflow"
)

// parallel bounds how many authorizations of one order are read at once.
const parallel = 4

// Order executes an external step of an Order. The outcome lacks the time and the
// jitter, which are the caller's to fill in. While the account is parked nothing is sent.
func (a *Account) Order(ctx context.Context, action acmeflow.OrderAction) acmeflow.OrderOutcome {
	out := acmeflow.OrderOutcome{Step: action.Step}
	a.calls.RLock()
	defer a.calls.RUnlock()
	if out.Failure = a.heldBack(); out.Failure != nil {
		return out
	}
	c := a.current()
	var order *acme.Order
	var err error
	sent := a.registry.o.Now()
	switch action.Step {
	case acmeflow.OrderCreate:
		if out.Failure = a.held(action.NewOrder); out.Failure != nil {
			return out
		}
		order, err = c.NewOrder(ctx, action.NewOrder.NewOrderRequest)
		if err == nil {
			a.tell(func(m *account.Machine, now time.Time) { m.OrderTaken(limited(action.NewOrder), now) })
		}
	case acmeflow.OrderFetch:
		order, err = c.GetOrder(ctx, action.URL)
	case acmeflow.OrderFinalize:
		order, err = c.FinalizeOrder(ctx, action.URL, action.CSR)
	case acmeflow.OrderFetchAuthorizations:
		out.Authorizations, err = authorizations(ctx, c, action.URLs)
	case acmeflow.OrderDownload:
		out.Chain, err = chain(ctx, c, action.URL, action.PreferredChain)
	case acmeflow.OrderDeactivate:
		err = deactivate(ctx, c, action.URLs)
	default:
		out.Failure = &acmeflow.Failure{Class: fault.ClassRefused, Detail: "not a step that leaves the cluster: " + action.Step.String()}
		return out
	}
	out.Order = order
	if err == nil {
		a.served()
		return out
	}
	if action.Step == acmeflow.OrderCreate {
		a.tell(func(m *account.Machine, now time.Time) { m.OrderFailed(limited(action.NewOrder), now) })
	}
	if action.Step == acmeflow.OrderCreate && isLimit(err) {
		out.Failure = a.classify(c, "", err)
		wait := min(orDefault(out.Failure.RetryAfter), acmeflow.MaxRetryAfter)
		refusal := account.Refusal{
			Order: limited(action.NewOrder), Sent: sent, Wait: wait, Detail: out.Failure.Detail, Paused: out.Failure.Class == fault.ClassPaused,
		}
		a.tell(func(m *account.Machine, now time.Time) { m.OrderRefused(refusal, now) })
		return out
	}
	out.Failure = a.failure(c, calledBy(action), sent, err)
	if action.Step == acmeflow.OrderFinalize && acmeclient.StatusOf(err) == http.StatusForbidden {
		out.Failure.Class = fault.ClassNotReady
	}
	return out
}

// Challenge executes ChallengeFetch or ChallengeAccept. The outcome lacks the time
// and the jitter. While the account is parked nothing is sent.
func (a *Account) Challenge(ctx context.Context, step acmeflow.ChallengeStep, spec acmev1.ChallengeSpec) acmeflow.ChallengeOutcome {
	out := acmeflow.ChallengeOutcome{Step: step}
	a.calls.RLock()
	defer a.calls.RUnlock()
	if out.Failure = a.heldBack(); out.Failure != nil {
		return out
	}
	if step == acmeflow.ChallengeAccept {
		if out.Failure = a.mayAccept(spec); out.Failure != nil {
			return out
		}
	}
	c, sent := a.current(), a.registry.o.Now()
	var err error
	switch step {
	case acmeflow.ChallengeFetch:
		if out.Authorization, err = c.GetAuthorization(ctx, spec.AuthorizationURL); err == nil {
			a.looked(*out.Authorization, spec)
		}
	case acmeflow.ChallengeAccept:
		err = c.AcceptChallenge(ctx, spec.URL)
	default:
		out.Failure = &acmeflow.Failure{Class: fault.ClassRefused, Detail: "not a step of the CA: " + step.String()}
		return out
	}
	if err != nil {
		out.Failure = a.failure(c, spec.AuthorizationURL, sent, err)
		return out
	}
	a.served()
	return out
}

// calledBy is an address that the step of an Order calls; empty for newOrder.
func calledBy(action acmeflow.OrderAction) string {
	if len(action.URLs) > 0 {
		return action.URLs[0]
	}
	return action.URL
}

// heldBack is the outcome of a call whose turn in its lane comes while the account is parked; nil if the account is not
// parked. The call was decided on before the CA asked to be left alone. Nothing has failed: as after a refused nonce,
// the same call is sent later, and no status is written for it.
func (a *Account) heldBack() *acmeflow.Failure {
	until, reason := a.Parked()
	wait := until.Sub(a.registry.o.Now())
	if wait <= 0 {
		return nil
	}
	return &acmeflow.Failure{Class: fault.ClassNotProcessed, Detail: reason, RetryAfter: wait}
}

// isLimit reports whether a CA has refused an order for a limit of its own. It says so with
// 429; a busy one may call it rateLimited, too.
func isLimit(err error) bool {
	return acme.HasCode(err, acme.CodeRateLimited) && acmeclient.StatusOf(err) == http.StatusTooManyRequests
}

// held is the outcome of an order that the CA is known not to take, or that is beyond the share of its namespace; nil
// if it is sent.
func (a *Account) held(n acmeflow.NewOrder) *acmeflow.Failure {
	var until account.Park
	var now time.Time
	a.tell(func(m *account.Machine, at time.Time) { until, now = m.Send(limited(n), at), at })
	if until.Until.IsZero() {
		return nil
	}
	class := fault.ClassRateLimited
	if until.Paused {
		class = fault.ClassPaused
	}
	return &acmeflow.Failure{Class: class, Detail: until.Reason, RetryAfter: until.Until.Sub(now), Unsent: true}
}

// RefusedForGood notes that an Order for the names, of the namespace, has ended at that time such that the same would
// fail again.
func (a *Account) RefusedForGood(namespace string, names []acme.Identifier, at time.Time) {
	a.tell(func(m *account.Machine, _ time.Time) {
		m.RefusedForGood(account.Order{Namespace: namespace, Identifiers: names}, at)
	})
}

// limited is what the limits need to know of a new order.
func limited(n acmeflow.NewOrder) account.Order {
	return account.Order{
		Identifiers: n.Identifiers, Renewal: n.Renewal, Namespace: n.Namespace, Share: n.Share, Replaces: n.Reissue,
	}
}

func orDefault(retryAfter time.Duration) time.Duration {
	if retryAfter <= 0 {
		return account.DefaultPark
	}
	return retryAfter
}

// isForeign reports whether what was called is not at the account's host: the issuer has been
// given another server since the order was made, and the old one need not know the account.
func isForeign(c *acmeclient.Client, called string) bool {
	own, err := url.Parse(c.AccountURL())
	if err != nil || own.Host == "" || called == "" {
		return false
	}
	u, err := url.Parse(called)
	return err == nil && u.Host != own.Host
}

// failure says what kind of trouble a call with the client has met, and parks or loses the
// account where the error says so. Sent is when the call went out.
func (a *Account) failure(c *acmeclient.Client, called string, sent time.Time, err error) *acmeflow.Failure {
	f := a.classify(c, called, err)
	if f.Class == fault.ClassRateLimited || f.Class == fault.ClassUnavailable && f.RetryAfter > 0 {
		a.leaveAlone(orDefault(f.RetryAfter), sent, f.Detail)
	}
	return f
}

// classify says what kind of trouble it is, and loses the account where the error says so.
func (a *Account) classify(c *acmeclient.Client, called string, err error) *acmeflow.Failure {
	f := failureOf(err)
	if acme.HasCode(err, acme.CodeAccountDoesNotExist) && !isForeign(c, called) {
		// The account is made again, and then the same call works.
		f.Class = fault.ClassUnavailable
		a.lose(c)
	}
	return f
}

// failureOf is the failure that an error of a call is.
func failureOf(err error) *acmeflow.Failure {
	f := &acmeflow.Failure{Code: acme.ProblemOf(err).Cause(), Detail: err.Error(), RetryAfter: acmeclient.RetryAfter(err)}
	var page *acmeclient.HTTPError
	switch {
	case errors.Is(err, acme.ErrProfilesUnsupported), errors.Is(err, acme.ErrProfileUnknown):
		f.Class = fault.ClassPermanent
	case acmeclient.RejectsReplaces(err), errors.Is(err, acmeclient.ErrTooLarge):
		f.Class = fault.ClassRefused
	case errors.Is(err, acmeclient.ErrNoAccount):
		f.Class = fault.ClassUnavailable
	case acme.ProblemOf(err).Unpause() != "":
		f.Class = fault.ClassPaused
	case errors.As(err, &page):
		f.Class, f.Unsure = classOfPage(page)
	default:
		f.Class = acmeflow.Classify(acmeclient.StatusOf(err), f.Code)
	}
	return f
}

// classOfPage is what an error answer without a problem document tells about what was asked
// for: too many requests, or gone; for certain only if it has no text, as Pebble says it. Any
// other is a proxy's or a web server's in the CA's place, and so is one in place of the
// directory or a nonce.
func classOfPage(page *acmeclient.HTTPError) (class fault.Class, unsure bool) {
	switch {
	case page.Status == http.StatusTooManyRequests:
		return fault.ClassRateLimited, false
	case page.Status != http.StatusNotFound && page.Status != http.StatusGone,
		page.Action == acmeclient.ActionDiscover, page.Method == http.MethodHead:
		return fault.ClassUnavailable, false
	default:
		return fault.ClassNotFound, !page.Empty
	}
}

// authorizations reads all of them, a few at a time. The error is that of the first
// that failed.
func authorizations(ctx context.Context, c *acmeclient.Client, urls []string) ([]acme.Authorization, error) {
	out := make([]acme.Authorization, len(urls))
	errs := make([]error, len(urls))
	slots := make(chan struct{}, parallel)
	var wg sync.WaitGroup
	for i, url := range urls {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			defer fault.Contain(&errs[i])
			authz, err := c.GetAuthorization(ctx, url)
			if err != nil {
				errs[i] = err
				return
			}
			out[i] = *authz
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// chain downloads the default chain or, if another is preferred and there is one, that alternate (RFC 8555 §7.4.2).
func chain(ctx context.Context, c *acmeclient.Client, url, preferred string) ([]byte, error) {
	first, err := c.FetchCertificate(ctx, url)
	if err != nil {
		return nil, err
	}
	if preferred == "" || acmeflow.ChainMatches(preferred, first.PEM) {
		return first.PEM, nil
	}
	for _, alternate := range first.Alternates {
		other, err := c.FetchCertificate(ctx, alternate)
		if err != nil {
			if f := failureOf(err); f.MayPass() && !f.Unsure {
				return nil, err
			}
			continue // a preference must not cost the certificate
		}
		if acmeflow.ChainMatches(preferred, other.PEM) {
			return other.PEM, nil
		}
	}
	return first.PEM, nil
}

// deactivate gives authorizations up (RFC 8555 §7.5.2). What the CA does not know, or
// has decided already, is given up.
func deactivate(ctx context.Context, c *acmeclient.Client, urls []string) error {
	for _, url := range urls {
		if _, err := c.DeactivateAuthorization(ctx, url); err != nil && failureOf(err).MayPass() {
			return err
		}
	}
	return nil
}
