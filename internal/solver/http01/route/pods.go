package route

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/machine/service"
)

// answer makes the Service and the pod that answer a Challenge, or deletes both if the Challenge is over. It is
// idempotent.
func (r *Router) answer(ctx context.Context, c *acmev1.Challenge, over bool) error {
	s := service.PodState{Challenge: c, Over: over, Pods: r.o.Pods, ExtraLabels: r.o.ExtraLabels}
	key := types.NamespacedName{Namespace: c.Namespace, Name: service.ObjectName(c.UID)}
	found := &corev1.Service{}
	switch err := r.o.Services.Get(ctx, key, found); {
	case err == nil:
		s.Service = found
	case !apierrors.IsNotFound(err):
		return err
	case over && !r.o.Pods.Answer(c.Spec.Solver.HTTP01):
		return nil // the responder has answered
	}
	pod := &corev1.Pod{}
	switch err := r.o.Client.Get(ctx, key, pod); {
	case err == nil:
		s.Pod = pod
	case !apierrors.IsNotFound(err):
		return err
	}
	return r.do(ctx, s, service.DecidePod(s))
}

// do carries out an action. What exists by the name of something that is to be made is somebody else's.
func (r *Router) do(ctx context.Context, s service.PodState, a service.PodAction) error {
	if a.CreateService != nil {
		err := r.o.Services.Create(ctx, a.CreateService, client.FieldOwner(service.FieldManager))
		if err != nil {
			return madeBy(err, "Service", a.CreateService.Name)
		}
	}
	if a.CreatePod != nil {
		if err := r.o.Client.Create(ctx, a.CreatePod, client.FieldOwner(service.FieldManager)); err != nil {
			return madeBy(err, "Pod", a.CreatePod.Name)
		}
	}
	if a.DeletePod {
		if err := client.IgnoreNotFound(r.o.Client.Delete(ctx, s.Pod)); err != nil {
			return err
		}
	}
	if a.DeleteService {
		if err := r.o.Services.Delete(ctx, s.Service); err != nil {
			return err
		}
	}
	return a.Err
}

// madeBy explains why an object could not be made.
func madeBy(err error, kind, name string) error {
	if apierrors.IsAlreadyExists(err) {
		return service.Taken(kind, name)
	}
	return fmt.Errorf("make the %s: %w", kind, err)
}

// podStatus says why the pod of a Challenge does not answer; empty if it does.
func (r *Router) podStatus(ctx context.Context, c *acmev1.Challenge) string {
	pod := &corev1.Pod{}
	key := types.NamespacedName{Namespace: c.Namespace, Name: service.ObjectName(c.UID)}
	if err := r.o.Client.Get(ctx, key, pod); err != nil {
		return unread("Pod", key.Name, err)
	}
	return service.Trouble(pod)
}
