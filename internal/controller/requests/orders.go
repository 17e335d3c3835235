package requests

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/order"
	"chancery.dev/internal/machine/request"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/signer"
)

// +kubebuilder:rbac:groups=acme.cert-manager.io,resources=orders,verbs=get;list;watch;create;delete

// observeOrder notes what is known of the Order of a request, if its issuer signs by one.
func (r *requests) observeOrder(ctx context.Context, p *pass, o *observation) (err error) {
	var ok bool
	if o.orderer, ok = r.Signers[signer.TypeOf(o.issuer.GetSpec())].(signer.Orderer); !ok {
		return nil
	}
	facts := &request.Order{}
	o.state.Order = facts
	if o.wanted, facts.Problem = o.orderer.Order(o.issuer, o.sign); facts.Problem != nil {
		return nil //nolint:nilerr // the decision says so
	}
	if facts.Found, err = r.find(ctx, o); err != nil {
		return err
	}
	facts.Namespace, facts.Name = o.wanted.Namespace, o.wanted.Name
	if held := p.Memory.orderAfter; r.Now().Before(held) {
		facts.Held = held
	}
	if facts.Found == nil {
		if _, err = pki.DecodeCSR(o.sign.CSR); err != nil {
			facts.Problem = fault.Failed(fault.ClassPermanent, reasonRequestParsing, "Failed to decode CSR in spec.request: %w", err)
		}
		return nil
	}
	facts.Foreign = !metav1.IsControlledBy(facts.Found, o.sign.Source)
	facts.Class = order.Class(facts.Found.Status)
	if chain := facts.Found.Status.Certificate; len(chain) > 0 {
		facts.Wrong = answers(o.sign.CSR, chain)
	}
	return nil
}

// find returns the Order of a request; nil if there is none. Where somebody else's has its name, such as one that a
// backup has brought back, the Order is wanted by a second name; not for a request without an owner: a backup may have
// brought back that one, too, and nobody waits for it.
func (r *requests) find(ctx context.Context, o *observation) (found *acmev1.Order, err error) {
	source, free := o.sign.Source, ""
	for _, name := range []string{o.wanted.Name, controller.SecondName(o.wanted.Name, source.GetUID())} {
		found = &acmev1.Order{}
		err = r.Client.Get(ctx, client.ObjectKey{Namespace: o.wanted.Namespace, Name: name}, found)
		switch {
		case apierrors.IsNotFound(err):
			free = cmp.Or(free, name)
		case err != nil:
			return nil, err
		case metav1.IsControlledBy(found, source):
			o.wanted.Name = name
			return found, nil
		case metav1.GetControllerOfNoCopy(source) == nil, controller.IsPassing(found, source, r.Now()):
			return found, nil
		}
	}
	if free != "" {
		o.wanted.Name, found = free, nil
	}
	return found, nil
}

// reasonRequestParsing is the reason for a request whose PKCS#10 request is not signed by its own key.
const reasonRequestParsing = "RequestParsingError"

// answers checks that a CA has issued what a signing request asks for.
func answers(request, chain []byte) error {
	csr, err := pki.ParseCSR(request)
	var certs []*x509.Certificate
	if err == nil {
		certs, err = pki.DecodeChain(chain)
	}
	if err == nil && !pki.PublicKeysEqual(certs[0].PublicKey, csr.PublicKey) {
		return errors.New("the certificate's public key is not that of the request")
	}
	return err
}

// byOrder carries out what is decided about the Order of a request.
func (r *requests) byOrder(ctx context.Context, p *pass, o *observation, v verdict) (engine.Plan, error) {
	var err error
	switch v.step {
	case request.StepOrder:
		err = r.makeOrder(ctx, o)
	case request.StepDeleteOrder:
		err = r.deleteOrder(ctx, p, o)
	default:
		v.result = &signer.Result{Bundle: signer.Bundle{Chain: o.state.Order.Found.Status.Certificate}}
		return r.record(p, v, engine.Plan{}), nil
	}
	plan := engine.Plan{Waits: engine.For{What: engine.WaitEvent, Detail: v.message}, Failure: err}
	if c := cause.OfWrite(err, acmev1.OrderKind+" "+o.wanted.Name); c != nil && v.step == request.StepOrder {
		return r.refusedOrder(p, v, c), nil
	}
	if err != nil {
		return r.conclude(p, v, plan, err), nil
	}
	made := v.step == request.StepOrder
	if made {
		p.Memory.unordered = cause.Refusals{}
	}
	plan.Again, v.step = made, request.StepWait
	plan = r.record(p, v, plan)
	if made && r.Settings.StepEvents {
		plan.Events = append(plan.Events, engine.Event{Reason: "OrderCreated", Message: fmt.Sprintf(
			"Created Order resource %s/%s", o.wanted.Namespace, o.wanted.Name)}) // spec §3.4
	}
	return plan, nil
}

// refusedOrder waits because of an Order that the API server does not let us make.
func (r *requests) refusedOrder(p *pass, v verdict, c *cmmeta.Cause) engine.Plan {
	now, news := r.Now(), p.Memory.unordered == cause.Refusals{}
	wait := p.Memory.unordered.After(c, now)
	v.step, v.reason, v.message, v.cause, v.awaited = request.StepWait, reasonErrorUpdate, cause.Sentence(c), c, false
	plan := r.record(p, v, engine.Plan{Wake: now.Add(wait), Waits: engine.For{What: engine.WaitTime, Detail: v.message}})
	if news {
		plan.Events = append(plan.Events, engine.Event{Warning: true, Reason: v.reason, Message: v.message})
	}
	return plan
}

// deleteOrder deletes the Order, and puts off the next one: longer each time.
func (r *requests) deleteOrder(ctx context.Context, p *pass, o *observation) error {
	if err := r.Client.Delete(ctx, o.state.Order.Found); err != nil {
		return fmt.Errorf("delete Order %s/%s: %w", o.wanted.Namespace, o.wanted.Name, err)
	}
	p.Memory.wrong++
	p.Memory.orderAfter = r.Now().Add(acmeflow.Backoff(&fault.Fault{Class: fault.ClassRateLimited}, p.Memory.wrong, 0))
	return nil
}

// makeOrder makes the Order of a request, or finds the one that a pass that was cut short has made.
func (r *requests) makeOrder(ctx context.Context, o *observation) (err error) {
	if o.wanted.Spec.Replaces, err = o.orderer.Replaces(ctx, o.issuer, o.sign); err != nil {
		return err
	}
	// The next decision says what one is like that is there already.
	if _, err = r.Make(ctx, o.wanted, &acmev1.Order{}, o.sign.Source); err != nil {
		return fmt.Errorf("create Order %s/%s: %w", o.wanted.Namespace, o.wanted.Name, err)
	}
	return nil
}
