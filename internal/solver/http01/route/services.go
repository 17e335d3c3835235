package route

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/service"
)

// ensure makes the Service that a Challenge leads to, unless it exists, and returns it. The controller of Services
// keeps the Service from then on, and points it to the responder.
func (r *Router) ensure(ctx context.Context, c *acmev1.Challenge) (backend, error) {
	key, found := r.o.Pods.Of(c), &corev1.Service{}
	if r.o.Pods.Answer(c.Spec.Solver.HTTP01) {
		return backend{key, service.Port}, r.answer(ctx, c, false)
	}
	if own, err := r.own(ctx, c); err != nil || own.port != 0 {
		return own, err
	}
	err := r.o.Services.Get(ctx, key, found)
	if apierrors.IsNotFound(err) {
		// Created, not applied: somebody else's Service of that name stays as it is.
		found = service.New(c.Namespace, service.TypeOf(c), r.o.ExtraLabels)
		err = r.o.Services.Create(ctx, found, client.FieldOwner(service.FieldManager))
		if apierrors.IsAlreadyExists(err) { // another Challenge was faster, or it is somebody else's
			err = r.o.Client.Get(ctx, key, found)
		}
	}
	if err == nil {
		err = service.Usable(found)
	}
	return backend{key, service.Port}, err
}

// serviceStatus says why no answer can come through the Service of a Challenge; empty if one can.
func (r *Router) serviceStatus(ctx context.Context, c *acmev1.Challenge) string {
	key, found := r.o.Pods.Of(c), &corev1.Service{}
	if r.o.Pods.Answer(c.Spec.Solver.HTTP01) {
		return r.podStatus(ctx, c)
	}
	if direct, _ := r.Direct(ctx, c); direct {
		return text(r.Unanswered(ctx, c.Spec.Solver.HTTP01))
	}
	err := r.o.Services.Get(ctx, key, found)
	if apierrors.IsNotFound(err) {
		return fmt.Sprintf("the Service %s, which leads to the responder, is missing, and is being made again", key.Name)
	}
	if err == nil {
		err = service.Usable(found)
	}
	if err == nil {
		err = r.Unanswered(ctx, c.Spec.Solver.HTTP01)
	}
	return text(err)
}

// text is what an error says; empty for none.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Unanswered returns a fault if nobody would answer the Challenges of a solver, because no pod of the responder is
// ready. It returns nil if somebody would answer.
func (r *Router) Unanswered(ctx context.Context, s *acmev1.HTTP01Solver) error {
	if r.o.Pods.Answer(s) {
		return nil
	}
	responder := &discoveryv1.EndpointSliceList{}
	err := r.o.Cache.List(ctx, responder, client.InNamespace(r.o.Responder.Namespace),
		client.MatchingLabels{discoveryv1.LabelServiceName: r.o.Responder.Name}, client.UnsafeDisableDeepCopy)
	if err != nil || service.Answers(responder.Items) {
		return err
	}
	return fault.After(responderRetry, ReasonNoResponder, "no responder of HTTP-01 is ready: the Service %s has no ready endpoints; "+
		"run `chancery install --image=IMAGE`, see why the pods of the Deployment %s are not ready, name another Service by "+
		"--acme-http01-responder, or have the controller itself answer by --http01-listen-address",
		r.o.Responder, r.o.Responder.Name)
}
