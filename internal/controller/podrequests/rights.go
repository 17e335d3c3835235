package podrequests

import (
	"context"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/limits"
	"chancery.dev/internal/machine/podrequest"
	"chancery.dev/internal/machine/request"
)

// granted and refused are how long an answer counts without being asked for again.
const granted, refused = time.Minute, 5 * time.Second

// keptService is how large a Service is at most, in bytes, of which an answer is kept: a larger one is read each time.
const keptService = 1 << 10

// read reads the Services that a Pod names, and the Pod if all of them exist. Neither is in a cache, since few Pods ask
// for names, or for more than a day. What is known of a Service counts as long as a right that is refused: many Pods
// wait for one.
func (r *requests) read(ctx context.Context, pcr *certificatesv1.PodCertificateRequest, s *podrequest.State, services []string) error {
	live := r.Manager.GetAPIReader()
	s.Pod, s.Services = &corev1.Pod{}, map[string]*corev1.Service{}
	s.Pod.UID = pcr.Spec.PodUID
	for _, name := range services {
		key := client.ObjectKey{Namespace: pcr.Namespace, Name: name}
		if known, is := r.rights.answers.Get(key); is {
			s.Services[name], _ = known.(*corev1.Service)
		} else {
			service := &corev1.Service{}
			switch err := live.Get(ctx, key, service); {
			case err == nil:
				kept := corev1.ServiceSpec{Type: service.Spec.Type, ClusterIP: service.Spec.ClusterIP, Selector: service.Spec.Selector}
				s.Services[name] = &corev1.Service{Spec: kept}
			case !apierrors.IsNotFound(err):
				return err
			}
			if known := s.Services[name]; known == nil || known.Size() <= keptService {
				r.rights.answers.Add(key, known, refused)
			}
		}
		if s.Services[name] == nil {
			return nil
		}
	}
	s.Pod = &corev1.Pod{}
	return client.IgnoreNotFound(live.Get(ctx, client.ObjectKey{Namespace: pcr.Namespace, Name: pcr.Spec.PodName}, s.Pod))
}

// account is a ServiceAccount that asks for certificates of a signer.
type account struct{ namespace, name, uid, signerName string }

// rights asks the API server which ServiceAccounts may have certificates of which signers.
type rights struct {
	client client.Client
	// answers are those that still count, by account, and what is known of Services, by name.
	answers *cache.LRUExpireCache
}

// clock is the clock of a cache.
type clock func() time.Time

func (c clock) Now() time.Time { return c() }

func newRights(c client.Client, now func() time.Time) rights {
	return rights{client: c, answers: cache.NewLRUExpireCacheWithClock(limits.PodRights, clock(now))}
}

// may reports whether the ServiceAccount of a Pod may have certificates. It asks for the name of the signer, and then
// for all names of its domain, which a review does not try by itself. A right of a namespace counts for an Issuer of
// the namespace.
func (r rights) may(ctx context.Context, pcr *certificatesv1.PodCertificateRequest, named request.SignerName) (bool, error) {
	of := account{pcr.Namespace, pcr.Spec.ServiceAccountName, string(pcr.Spec.ServiceAccountUID), pcr.Spec.SignerName}
	if known, is := r.answers.Get(of); is {
		return known == true, nil
	}
	domain, _, _ := strings.Cut(of.signerName, "/")
	for _, name := range []string{of.signerName, domain + "/*"} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:   "system:serviceaccount:" + of.namespace + ":" + of.name,
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + of.namespace, "system:authenticated"},
			UID:    of.uid,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: certificatesv1.GroupName, Resource: "signers", Verb: "request", Namespace: named.Namespace, Name: name, Version: "*",
			},
		}}
		if err := r.client.Create(ctx, review); err != nil {
			return false, err
		}
		if review.Status.Allowed {
			r.answers.Add(of, true, granted)
			return true, nil
		}
	}
	r.answers.Add(of, false, refused)
	return false, nil
}
