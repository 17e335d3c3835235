package status

import (
	"context"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/explain"
	"chancery.dev/internal/inventory"
)

// Query says what to explain.
type Query struct {
	// Namespace to look in; empty for all.
	Namespace string
	// Selector chooses Certificates by their labels.
	Selector labels.Selector
	// Args name Certificates, or what leads to them: kind/name, or a host name. Without any, all are explained.
	Args []string
	// Brief reads what was made for the Certificates only if one of them is not ready.
	Brief bool
}

// Gather reads what is known, in six requests at most, and one more for each Ingress, Gateway or
// CertificateSigningRequest that is named. It needs the rights of the role view.
func Gather(ctx context.Context, c client.Client, q Query, now time.Time) ([]explain.Report, error) {
	starts, err := q.starts(ctx, c)
	if err != nil {
		return nil, err
	}
	i, err := inventory.Read(ctx, c, q.scope(), func(all []*certmanagerv1.Certificate) bool {
		return q.Brief && len(all) > 0 && !slices.ContainsFunc(all, q.troubled)
	})
	if err != nil {
		return nil, err
	}
	return q.reports(ctx, c, starts, i, now)
}

// starts are what the arguments lead to.
func (q Query) starts(ctx context.Context, c client.Client) (starts []start, err error) {
	for _, arg := range q.Args {
		s, err := startOf(ctx, c, q.Namespace, arg)
		if err != nil {
			return nil, err
		}
		starts = append(starts, s)
	}
	return starts, nil
}

func (q Query) scope() inventory.Scope {
	return inventory.Scope{Namespace: q.Namespace, AllOrders: slices.ContainsFunc(q.Args, asksForSigningRequest)}
}

// troubled reports whether there is more to say of a Certificate than that it is good.
func (q Query) troubled(crt *certmanagerv1.Certificate) bool {
	return q.Selector.Matches(labels.Set(crt.Labels)) && explain.Describe(crt).State != "ready"
}

// reports explains what the Query asks for.
func (q Query) reports(
	ctx context.Context, c client.Client, starts []start, i *inventory.Inventory, now time.Time,
) (reports []explain.Report, err error) {
	w, all := i.World(now), i.Certificates(q.Selector)
	if len(q.Args) == 0 {
		for _, crt := range all {
			reports = append(reports, w.Certificate(crt))
		}
	}
	for _, s := range starts {
		if s.signingRequest != "" {
			csr := &certificatesv1.CertificateSigningRequest{}
			if err := c.Get(ctx, client.ObjectKey{Name: s.signingRequest}, csr); err != nil {
				return nil, err
			}
			reports = append(reports, w.SigningRequest(csr))
			continue
		}
		found, err := s.find(all)
		if err != nil {
			return nil, err
		}
		for _, crt := range found {
			reports = append(reports, w.Certificate(crt))
		}
	}
	return reports, nil
}
