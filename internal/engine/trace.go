package engine

import (
	"context"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/tracing"
)

// Traced says to which issuance an object of a kind belongs. In the trace of the issuance each object is a span, from
// its creation until its work is over, and so is each call for the object.
type Traced struct {
	// Issuance returns the UID of the request that the object is worked on for; empty if there is none.
	Issuance func(ctx context.Context, object client.Object) types.UID
	// Issuer returns the name of the issuer.
	Issuer func(object client.Object) string
	// Over reports whether the work on the object has ended, and what has gone wrong.
	Over func(object client.Object) (over bool, problem string)
}

// Step is a part of the work on an object.
type Step struct {
	// Issuance is the UID of the request that the object is worked on for.
	Issuance types.UID
	// Name of the step; empty for the whole work on the object.
	Name string
	// First says that the trace begins with the step, whoever owns the object.
	First bool
	// Start is when the step began.
	Start time.Time
	// Issuer is the name of the issuer; may be empty.
	Issuer string
	// Problem says what has gone wrong; empty if nothing has.
	Problem string
}

// Traces reports whether issuances are traced.
func (e *Engine) Traces() bool { return e.spans != nil }

// Ended adds a step to the trace of its issuance, if issuances are traced.
func (e *Engine) Ended(object client.Object, s Step) {
	if e.spans == nil || s.Issuance == "" {
		return
	}
	uid, kind := string(object.GetUID()), e.client.KindOf(object)
	span := tracing.Span{
		Trace: tracing.TraceOf(string(s.Issuance)), ID: tracing.SpanOf(uid), Name: kind, Start: s.Start, End: e.now(), Problem: s.Problem,
		Attributes: map[string]string{"object": objectOf(kind, client.ObjectKeyFromObject(object))},
	}
	if s.Issuer != "" {
		span.Attributes["issuer"] = s.Issuer
	}
	owner := metav1.GetControllerOf(object)
	switch {
	case s.Name != "":
		span.Name, span.Parent, span.ID = s.Name, span.ID, tracing.SpanOf(uid, s.Name)
	case owner != nil && !s.First:
		span.Parent = tracing.SpanOf(string(owner.UID))
	}
	e.spans.Add(span)
}

// overNow adds the span of an object whose work has ended with the status that was written.
func (r *Runner[O, M, S, A]) overNow(ctx context.Context, old O, changed client.Object) {
	of := r.kind.Traced
	if of == nil || r.engine.spans == nil {
		return
	}
	before, _ := of.Over(old)
	if over, problem := of.Over(changed); over && !before {
		r.engine.Ended(changed, Step{
			Issuance: of.Issuance(ctx, old), Start: old.GetCreationTimestamp().Time, Issuer: of.Issuer(old), Problem: problem,
		})
	}
}

// trace adds the span of a call that has come back.
func (c *Calls) trace(w *call, outcome Outcome) {
	if c.spans == nil || w.owner.issuance == nil {
		return
	}
	issuance, uid := w.owner.issuance(c.ctx), string(w.owner.uid)
	if issuance == "" {
		return
	}
	c.spans.Add(tracing.Span{
		Trace: tracing.TraceOf(string(issuance)), Parent: tracing.SpanOf(uid), Name: w.Name, Call: true,
		ID:    tracing.SpanOf(uid, w.Name, strconv.FormatInt(w.since.UnixNano(), 10)),
		Start: w.since, End: outcome.At, Problem: outcome.Problem(),
		Attributes: map[string]string{"object": objectOf(w.owner.kind, w.owner.name)},
	})
}
