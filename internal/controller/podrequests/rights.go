package podrequests

import (
	"context"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/limits"
	"chancery.dev/internal/machine/request"
)

// granted and refused are how long an answer counts without being asked for again.
const granted, refused = time.Minute, 5 * time.Second

// account is a ServiceAccount that asks for certificates of a signer.
type account struct{ namespace, name, uid, signerName string }

// rights asks the API server which ServiceAccounts may have certificates of which signers.
type rights struct {
	client client.Client
	// answers are those that still count, by account.
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
