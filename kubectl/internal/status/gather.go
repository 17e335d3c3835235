package status

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/clientside/explain"
	"chancery.dev/internal/clientside/inventory"
)

// Query says what to explain.
type Query struct {
	// Namespace to look in; empty for all.
	Namespace string
	// Selector chooses Certificates by their labels.
	Selector labels.Selector
	// Args name Certificates, or what leads to them: kind/name, or a host name. Without any, all are explained.
	Args []string
}

// Gather reads the objects that reports need: in six requests at most, and up to two more for each Ingress, Gateway or
// CertificateSigningRequest that is named, and four for a Pod. It needs the rights of the role view.
func Gather(ctx context.Context, c client.Client, q Query, now time.Time) ([]explain.Report, error) {
	starts, err := q.starts(ctx, c)
	if err != nil {
		return nil, err
	}
	i, err := inventory.Read(ctx, c, q.scope())
	if err != nil {
		return nil, err
	}
	for n := range starts {
		if err := starts[n].include(ctx, c, i); err != nil {
			return nil, err
		}
	}
	return q.reports(ctx, c, starts, i, now)
}

// include reads the CertificateSigningRequest, and its issuer, which may be in another namespace than is looked at.
func (s *start) include(ctx context.Context, c client.Client, i *inventory.Inventory) error {
	if len(s.volumes) > 0 {
		return s.includeVolumes(ctx, c, i)
	}
	if s.csr == nil {
		return nil
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(s.csr), s.csr); err != nil {
		return err
	}
	return includeSigner(ctx, c, i, s.csr.Spec.SignerName)
}

// includeSigner reads the issuer that a signer name names.
func includeSigner(ctx context.Context, c client.Client, i *inventory.Inventory, signerName string) error {
	kind, namespace, name := explain.SignerOf(signerName)
	if name == "" {
		return nil
	}
	return i.Include(ctx, c, certmanagerv1.NewIssuer(cmmeta.IssuerReference{Kind: kind, Name: name}, namespace))
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

// reports explains what the Query asks for.
func (q Query) reports(
	ctx context.Context, c client.Client, starts []start, i *inventory.Inventory, now time.Time,
) (reports []explain.Report, err error) {
	w, all := i.Cluster(now), i.Certificates(q.Selector)
	if len(q.Args) == 0 {
		for _, crt := range all {
			reports = append(reports, w.Certificate(crt))
		}
	}
	for _, s := range starts {
		own, err := q.without(s, w, i, all)
		if err != nil {
			return nil, err
		}
		reports = append(reports, own...)
		found, err := s.find(all)
		if err != nil && len(own) > 0 {
			continue
		}
		if err != nil {
			if said := warning(ctx, c, s.owner); said != "" {
				err = fmt.Errorf("no Certificate is made for %s: %s", s.arg, said)
			}
			return nil, err
		}
		for _, crt := range found {
			reports = append(reports, s.report(w, crt))
		}
	}
	return reports, nil
}

// without explains what an argument leads to beside Certificates: a request, an issuer, or volumes of a Pod.
func (q Query) without(s start, w *explain.Cluster, i *inventory.Inventory, all []*certmanagerv1.Certificate) (reports []explain.Report, err error) {
	switch {
	case s.csr != nil:
		return []explain.Report{w.SigningRequest(s.csr)}, nil
	case s.request != nil:
		return []explain.Report{w.Request(s.request)}, nil
	case s.issuer != nil:
		r, err := q.issuer(s, w, i, all)
		return []explain.Report{r}, err
	}
	for _, v := range s.volumes {
		reports = append(reports, w.Pod(v))
	}
	return reports, nil
}

// issuer explains the issuer that an argument names.
func (q Query) issuer(s start, w *explain.Cluster, i *inventory.Inventory, all []*certmanagerv1.Certificate) (explain.Report, error) {
	switch r := w.Issuer(*s.issuer, q.Namespace, all); {
	case r != nil:
		return *r, nil
	case i.Unread()[s.issuer.Kind]:
		return explain.Report{}, fmt.Errorf("%s: you may not read objects of the kind %s", s.arg, s.issuer.Kind)
	default:
		return explain.Report{}, fmt.Errorf("no issuer is found for %s: see which there are: kubectl chancery issuers", s.arg)
	}
}
