// Package notices runs Certificates on the engine a second time, to tell the receiver of CloudEvents what has become of
// them. Which event is next is decided by internal/machine/notice.
package notices

import (
	"context"
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cloudevents"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/machine/notice"
)

// +kubebuilder:rbac:groups=cert-manager.io,resources=certificates,verbs=get;list;watch
// +kubebuilder:rbac:groups=cert-manager.io,resources=certificates/status,verbs=patch

const (
	// call names the call that sends an event.
	call = "cloudevent"
	// atOnce is how many events of a namespace are sent at once where no other namespace has any.
	atOnce = 4
	// Reasons of the condition.
	reasonGaveUp, reasonDelivered = "GaveUp", "Delivered"
)

// Send sends an event once.
type Send func(ctx context.Context, e cloudevents.Event) error

// memory is what is remembered of a Certificate: since when an event is being sent, and what status.told was set to.
type memory struct {
	id    string
	since time.Time
	told  *certmanagerv1.CertificateTold
}

type pass = engine.Pass[*certmanagerv1.Certificate, memory]

type notices struct {
	*controller.Deps

	send  Send
	began time.Time
}

// Setup adds the controller that tells of Certificates.
func Setup(ctx context.Context, d *controller.Deps, send Send) error {
	if err := d.Observed(ctx, &certmanagerv1.Certificate{}); err != nil {
		return err
	}
	r := &notices{Deps: d, send: send, began: d.Now()}
	runner := r.runner()
	return ctrl.NewControllerManagedBy(d.Manager).Named("cloudevents").
		For(&certmanagerv1.Certificate{}).
		WatchesRawSource(runner).
		WithOptions(r.Options(time.Second, 5*time.Minute)).
		Complete(runner)
}

// runner runs Certificates.
func (r *notices) runner() *engine.Runner[*certmanagerv1.Certificate, memory, notice.State, notice.Action] {
	return engine.Run(r.Engine, engine.Kind[*certmanagerv1.Certificate, memory, notice.State, notice.Action]{
		Name: "CloudEvent", New: func() *certmanagerv1.Certificate { return &certmanagerv1.Certificate{} },
		Events: r.Events("chancery-cloudevents"), Observe: r.observe, Decide: notice.Decide, Plan: r.plan,
	})
}

func (r *notices) observe(_ context.Context, p *pass) (notice.State, error) {
	return notice.State{Certificate: p.Object, Began: r.began, Kept: p.Memory.told}, nil
}

// plan sends the event that is next, again and again, and notes what was told.
func (r *notices) plan(_ context.Context, p *pass, _ notice.State, a notice.Action) (engine.Plan, error) {
	e := a.Event
	if e == nil {
		plan := engine.Plan{Wake: a.Wake}
		if !a.Wake.IsZero() {
			plan.Waits = engine.For{What: engine.WaitTime, Detail: "the renewal is late then"}
		}
		return plan, nil
	}
	if p.Memory.id != e.ID {
		p.Memory.id, p.Memory.since = e.ID, r.Now()
	}
	answer := p.Ask(engine.Call{
		Name: call, Inputs: e.ID, Lane: engine.Lane{Name: call, Limit: atOnce, Timeout: cloudevents.Timeout},
		Run: func(ctx context.Context) (any, error) {
			return nil, r.send(ctx, cloudevents.Event{
				ID: e.ID, Type: string(e.Type), Subject: e.Data.Namespace + "/" + e.Data.Name, Time: e.Time, Data: e.Data,
			})
		},
	})
	end := p.Memory.since.Add(notice.Patience)
	switch {
	case answer.Given:
		return r.told(p, e, nil), nil
	case answer.Err != nil && !r.Now().Before(end):
		return r.told(p, e, answer.Err), nil
	case answer.Err != nil && a.Known != nil:
		changed := p.Object.DeepCopy()
		changed.Status.Told = a.Known
		return engine.Plan{First: r.write(p, changed), Again: true}, nil
	case answer.Err != nil && !answer.Until.IsZero():
		until := answer.Until
		if end.Before(until) {
			until = end
		}
		return engine.Plan{Waits: engine.For{What: engine.WaitTime, Detail: answer.Err.Error()}, Wake: until}, nil
	default:
		return engine.Plan{Waits: engine.For{What: engine.WaitCall, Detail: "the receiver of CloudEvents"}}, nil
	}
}

// told notes that an event is delivered, or given up.
func (r *notices) told(p *pass, e *notice.Event, failure error) engine.Plan {
	changed := p.Object.DeepCopy()
	changed.Status.Told = e.Told
	plan := engine.Plan{Again: true}
	before := certmanagerv1.FindCertificateCondition(p.Object.Status.Conditions, certmanagerv1.CertificateConditionUndelivered)
	c := certmanagerv1.CertificateCondition{
		Type: certmanagerv1.CertificateConditionUndelivered, Status: cmmeta.ConditionFalse, Reason: reasonDelivered, Message: "delivered: " + string(e.Type),
	}
	if failure != nil {
		c.Status, c.Reason = cmmeta.ConditionTrue, reasonGaveUp
		c.Message = fmt.Sprintf("gave up %s of %s after %s: %v", e.Type, e.Time.Format(time.RFC3339), notice.Patience, failure)
		plan.Events = []engine.Event{{Warning: true, Reason: "CloudEventUndelivered", Message: c.Message}}
	}
	if failure != nil || before != nil && before.Status == cmmeta.ConditionTrue {
		certmanagerv1.SetCertificateCondition(changed, c, r.Now())
	}
	write := r.write(p, changed)
	plan.First = func(ctx context.Context) error {
		if err := write(ctx); err != nil {
			return err
		}
		p.Forget(call)
		p.Memory.id = ""
		return nil
	}
	return plan
}

// write returns the step that writes what was told. The status is another controller's: what that one has seen
// (observedGeneration) is left alone, and a write that came between is not undone.
func (r *notices) write(p *pass, changed *certmanagerv1.Certificate) func(context.Context) error {
	told, patch := changed.Status.Told, client.MergeFromWithOptions(p.Object, client.MergeFromWithOptimisticLock{})
	return func(ctx context.Context) error {
		if err := r.Client.PatchStatus(ctx, changed, patch); err != nil {
			return err
		}
		p.Memory.told = told
		return nil
	}
}
