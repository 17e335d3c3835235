package accounts

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
	"chancery.dev/internal/machine/challenge"
	"chancery.dev/internal/machine/order"
)

// parallel bounds how many authorizations of one order are read at once.
const parallel = 4

// Order executes an external step of an Order, and returns what the CA has answered. While the account is parked
// nothing is sent. Its error is a fault.
func (a *Account) Order(ctx context.Context, action order.Action) (out order.Outcome, err error) {
	a.calls.RLock()
	defer a.calls.RUnlock()
	if f := a.parkedFault(); f != nil {
		return out, f
	}
	c := a.current()
	sent := a.registry.o.Now()
	switch action.Step {
	case order.Create:
		if f := a.held(action.NewOrder); f != nil {
			return out, f
		}
		out.Order, err = c.NewOrder(ctx, action.NewOrder.NewOrderRequest)
		if err == nil {
			a.tell(func(m *account.Machine, now time.Time) { m.OrderTaken(limited(action.NewOrder), now) })
		}
	case order.Fetch:
		out.Order, err = c.GetOrder(ctx, action.URL)
	case order.Finalize:
		out.Order, err = c.FinalizeOrder(ctx, action.URL, action.CSR)
	case order.FetchAuthorizations:
		out.Authorizations, err = authorizations(ctx, c, action.URLs)
	case order.Download:
		out.Chain, err = chain(ctx, c, action.URL, action.PreferredChain)
	case order.Deactivate:
		err = deactivate(ctx, c, action.URLs)
	default:
		return out, fault.Failed(fault.ClassRefused, "", "not a step that leaves the cluster: %s", action.Step)
	}
	if err == nil {
		a.served()
		return out, nil
	}
	if action.Step == order.Create {
		a.tell(func(m *account.Machine, now time.Time) { m.OrderFailed(limited(action.NewOrder), now) })
	}
	if action.Step == order.Create && isLimit(err) {
		f := a.classify(ctx, c, "", err)
		refusal := account.Refusal{
			Order: limited(action.NewOrder), Sent: sent, Wait: min(orDefault(f.Delay), fault.Orders.With("").Obeyed), Detail: f.Error(), Paused: f.Class == fault.ClassPaused,
		}
		a.tell(func(m *account.Machine, now time.Time) { m.OrderRefused(refusal, now) })
		return out, f
	}
	f := a.failure(ctx, c, calledBy(action), sent, err)
	if action.Step == order.Finalize && acmeclient.StatusOf(err) == http.StatusForbidden {
		f = fault.Answered(fault.ClassNotReady, f.Problem, f.Delay, f.Err)
	}
	return out, f
}

// Challenge executes challenge.Fetch or challenge.Accept. While the account is parked nothing is sent. Its error is a
// fault.
func (a *Account) Challenge(ctx context.Context, step challenge.Step, spec acmev1.ChallengeSpec) (out challenge.Outcome, err error) {
	a.calls.RLock()
	defer a.calls.RUnlock()
	if f := a.parkedFault(); f != nil {
		return out, f
	}
	if step == challenge.Accept {
		if f := a.mayAccept(spec); f != nil {
			return out, f
		}
	}
	c, sent := a.current(), a.registry.o.Now()
	switch step {
	case challenge.Fetch:
		if out.Authorization, err = c.GetAuthorization(ctx, spec.AuthorizationURL); err == nil {
			a.looked(*out.Authorization, spec)
		}
	case challenge.Accept:
		err = c.AcceptChallenge(ctx, spec.URL)
	default:
		return out, fault.Failed(fault.ClassRefused, "", "not a step of the CA: %s", step)
	}
	if err != nil {
		return out, a.failure(ctx, c, spec.AuthorizationURL, sent, err)
	}
	a.served()
	return out, nil
}

// calledBy is an address that the step of an Order calls; empty for newOrder.
func calledBy(action order.Action) string {
	if len(action.URLs) > 0 {
		return action.URLs[0]
	}
	return action.URL
}

// parkedFault is the outcome of a call whose turn in its lane comes while the account is parked; nil if the account is
// not parked. The call was decided on before the CA asked to be left alone. Nothing has failed: as after a refused
// nonce, the same call is sent later, and no status is written for it.
func (a *Account) parkedFault() *fault.Fault {
	until, reason := a.Parked()
	wait := until.Sub(a.registry.o.Now())
	if wait <= 0 {
		return nil
	}
	return fault.Answered(fault.ClassNotProcessed, "", wait, errors.New(reason))
}

// isLimit reports whether a CA has refused an order for a limit of its own. It says so with
// 429; a busy one may call it rateLimited, too.
func isLimit(err error) bool {
	return acme.HasCode(err, acme.CodeRateLimited) && acmeclient.StatusOf(err) == http.StatusTooManyRequests
}

// held is the outcome of an order that the CA is known not to take, or that is beyond the share of its namespace; nil
// if it is sent.
func (a *Account) held(n order.NewOrder) *fault.Fault {
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
	f := fault.Answered(class, "", until.Until.Sub(now), errors.New(until.Reason))
	f.Unsent = true
	return f
}

// RefusedForGood notes that an Order of the namespace for the names has failed at that time, and that the same Order
// would fail again.
func (a *Account) RefusedForGood(namespace string, names []acme.Identifier, at time.Time) {
	a.tell(func(m *account.Machine, _ time.Time) {
		m.RefusedForGood(account.Order{Namespace: namespace, Identifiers: names}, at)
	})
}

// limited is what the limits need to know of a new order.
func limited(n order.NewOrder) account.Order {
	return account.Order{
		Identifiers: n.Identifiers, Renewal: n.Renewal, Namespace: n.Namespace, Share: n.Share, Replaces: n.Reissue,
	}
}

func orDefault(retryAfter time.Duration) time.Duration {
	if retryAfter <= 0 {
		return fault.Parks.With("").First
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
func (a *Account) failure(ctx context.Context, c *acmeclient.Client, called string, sent time.Time, err error) *fault.Fault {
	f := a.classify(ctx, c, called, err)
	if f.Class == fault.ClassRateLimited || f.Class == fault.ClassUnavailable && f.Delay > 0 {
		a.extendPark(orDefault(f.Delay), sent, f.Error())
	}
	return f
}

// classify says what kind of trouble it is, and loses the account where the error says so.
func (a *Account) classify(ctx context.Context, c *acmeclient.Client, called string, err error) *fault.Fault {
	f := faultOf(err)
	if !isForeign(c, called) && (acme.HasCode(err, acme.CodeAccountDoesNotExist) || a.isClosed(ctx, c, err)) {
		// The account is made again, or its issuer says why not. Then the same call works.
		f = fault.Answered(fault.ClassUnavailable, f.Problem, f.Delay, f.Err)
		a.lose(c)
	}
	return f
}

// isClosed asks a CA that has refused a call of a registered account whether it lets the account in at all: requests of
// one that was deactivated are refused as unauthorized (RFC 8555 §7.3.6), and so are others.
func (a *Account) isClosed(ctx context.Context, c *acmeclient.Client, err error) bool {
	if !a.isRegistered() || !acme.HasCode(err, acme.CodeUnauthorized) {
		return false
	}
	found, failed := c.LookupAccount(ctx)
	return acme.HasCode(failed, acme.CodeUnauthorized) || failed == nil && closed(found)
}

// faultOf turns the error of a call into a fault.
func faultOf(err error) *fault.Fault {
	problem := acme.ProblemOf(err)
	code := problem.Cause()
	answered := func(class fault.Class) *fault.Fault {
		problemType := ""
		if code != "" {
			problemType = code.Type()
		}
		return fault.Answered(class, problemType, acmeclient.RetryAfter(err), err)
	}
	var page *acmeclient.HTTPError
	switch {
	case errors.Is(err, acme.ErrProfilesUnsupported), errors.Is(err, acme.ErrProfileUnknown):
		return answered(fault.ClassPermanent)
	case acmeclient.RejectsReplaces(err), errors.Is(err, acmeclient.ErrTooLarge):
		return answered(fault.ClassRefused)
	case errors.Is(err, acmeclient.ErrNoAccount):
		return answered(fault.ClassUnavailable)
	case problem.Unpause() != "":
		return answered(fault.ClassPaused)
	case errors.As(err, &page):
		class, unsure := acme.ClassOfPage(page.Status, page.Empty, page.Action == acmeclient.ActionDiscover || page.Method == http.MethodHead)
		f := answered(class)
		if unsure {
			f.Unsure, f.Kind = true, fault.KindAfter
		}
		return f
	default:
		return answered(acme.ClassOf(acmeclient.StatusOf(err), code))
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
func chain(ctx context.Context, c *acmeclient.Client, own, preferred string) ([]byte, error) {
	first, err := c.FetchCertificate(ctx, own)
	if err != nil {
		return nil, err
	}
	if preferred == "" || order.ChainMatches(preferred, first.PEM) {
		return first.PEM, nil
	}
	for _, alternate := range first.Alternates {
		other, err := c.FetchCertificate(ctx, alternate)
		if err != nil {
			if f := faultOf(err); f.MayPass() && !f.Unsure && !isNoChain(err, alternate) && !elsewhere(own, alternate) {
				return nil, err
			}
			continue // a preference must not cost the certificate
		}
		if order.ChainMatches(preferred, other.PEM) {
			return other.PEM, nil
		}
	}
	return first.PEM, nil
}

// isNoChain reports whether an alternate has answered, and with something else than a chain of certificates: in a form
// that is not known here, or with nothing so far (202).
func isNoChain(err error, alternate string) bool {
	var answer *acmeclient.ProtocolError
	return errors.As(err, &answer) && answer.URL == alternate
}

// deactivate gives authorizations up (RFC 8555 §7.5.2). What the CA does not know, or
// has decided already, is given up.
func deactivate(ctx context.Context, c *acmeclient.Client, urls []string) error {
	for _, url := range urls {
		if _, err := c.DeactivateAuthorization(ctx, url); err != nil && faultOf(err).MayPass() {
			return err
		}
	}
	return nil
}

// elsewhere reports whether an address is on another host: that of the CA behind a proxy, for example, which passes on
// the links of that CA, and keeps us from reaching it.
func elsewhere(own, other string) bool {
	a, err := url.Parse(own)
	b, failed := url.Parse(other)
	return err != nil || failed != nil || a.Host != b.Host
}
