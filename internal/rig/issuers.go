package rig

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
)

// Issuers returns all Issuers and ClusterIssuers.
func Issuers(ctx context.Context, c client.Reader) (all []certmanagerv1.GenericIssuer, err error) {
	for _, list := range []client.ObjectList{&certmanagerv1.IssuerList{}, &certmanagerv1.ClusterIssuerList{}} {
		err = errors.Join(err, c.List(ctx, list), meta.EachListItem(list, func(item runtime.Object) error {
			all = append(all, item.(certmanagerv1.GenericIssuer)) //nolint:forcetypeassert // both kinds are
			return nil
		}))
	}
	return all, err
}
