package requests

import (
	"errors"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/request"
)

// TestWaitsOfSigningRequests: the event of a wait is a Warning if something is wrong, whatever the reason is called.
func TestWaitsOfSigningRequests(t *testing.T) {
	t.Parallel()
	makes := verdictOf(request.Action{Step: request.StepOrder, Reason: request.ReasonOrderPending}) // what was to be done before
	conclude := func(err error) func(*requests, *pass) engine.Plan {
		return func(r *requests, p *pass) engine.Plan { return r.conclude(p, makes, engine.Plan{}, err) }
	}
	order := func(c *cmmeta.Cause) func(*requests, *pass) engine.Plan {
		return func(r *requests, p *pass) engine.Plan {
			return r.record(p, verdictOf(request.Action{Step: request.StepWait, Reason: request.ReasonOrderPending, Message: "waiting", Cause: c}), engine.Plan{})
		}
	}
	for name, test := range map[string]struct {
		plan func(*requests, *pass) engine.Plan
		warn bool
	}{
		"an Order goes on":           {order(nil), false},
		"an Order has failed":        {order(cause.New(cause.Quota, "", "Namespace shop", "exceeded quota")), true},
		"an Order sees no proof yet": {order(cause.New(cause.Class(fault.ClassSelfCheck), "", "a.example.test", "no record")), false},
		"an Order may not be made": {func(r *requests, p *pass) engine.Plan {
			p.Memory.unordered.After(cause.New(cause.Quota, "", "a", "one"), time.Now())
			return r.refusedOrder(p, makes, cause.New(cause.Quota, "", "Namespace shop", "exceeded quota"))
		}, true},
		"a Secret cannot be read":       {conclude(fault.After(time.Second, "SecretGetError", "500")), true},
		"Venafi has not issued yet":     {conclude(fault.After(time.Minute, "IssuancePending", "not issued yet")), false},
		"Venafi is out of order":        {conclude(fault.ClassUnavailable.After(0, "IssuancePending", "503")), true},
		"a Secret is missing":           {conclude(fault.Pending("SecretMissing", "no Secret")), true},
		"a Secret is wrong":             {conclude(fault.ClassConfiguration.After(0, "SecretMissing", "no key")), true},
		"a failure that nobody expects": {conclude(errors.New("broken")), true},
		"an Order cannot be made": {func(r *requests, p *pass) engine.Plan {
			return r.record(p, verdictOf(request.Action{Step: request.StepWait, Reason: request.ReasonBadCertificate, Message: "another one is ordered"}), engine.Plan{})
		}, true},
	} {
		deps := &controller.Deps{Now: time.Now}
		r := &requests{deps, &signingRequests{deps}}
		plan := test.plan(r, &pass{Object: &certificatesv1.CertificateSigningRequest{}, Memory: &memory{}})
		if len(plan.Events) != 1 || plan.Events[0].Warning != test.warn {
			t.Errorf("%s: %+v, want one event, a Warning: %v", name, plan.Events, test.warn)
		}
	}
}
