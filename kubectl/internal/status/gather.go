package status

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/explain"
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
	k, err := read(ctx, c, q)
	if err != nil {
		return nil, err
	}
	return k.reports(ctx, now)
}

// knowledge is what was read for a Query.
type knowledge struct {
	client  client.Client
	query   Query
	starts  []start
	objects map[types.UID]metav1.Object
	// lists are those that were read; unread are the kinds that may not be.
	lists  []client.ObjectList
	unread map[string]bool
}

// read reads the objects of the chain.
func read(ctx context.Context, c client.Client, q Query) (*knowledge, error) {
	k := &knowledge{client: c, query: q, objects: map[types.UID]metav1.Object{}, unread: map[string]bool{}}
	for _, arg := range q.Args {
		s, err := startOf(ctx, c, q.Namespace, arg)
		if err != nil {
			return nil, err
		}
		k.starts = append(k.starts, s)
	}
	for _, list := range lists() {
		if q.Brief && len(k.objects) > 0 && !slices.ContainsFunc(k.certificates(), troubled) {
			break
		}
		err := c.List(ctx, list, client.InNamespace(q.namespaceOf(list)))
		switch _, needed := list.(*certmanagerv1.CertificateList); {
		case apierrors.IsForbidden(err) && !needed:
			k.unread[kindOf(list)] = true
			continue
		case err != nil:
			return nil, fmt.Errorf("read the %s list: %w", kindOf(list), err)
		}
		k.lists = append(k.lists, list)
		_ = meta.EachListItem(list, func(o runtime.Object) error { // the function gives no error
			k.put(o)
			return nil
		})
	}
	return k, nil
}

func (k *knowledge) put(o runtime.Object) {
	if object, is := o.(metav1.Object); is {
		k.objects[object.GetUID()] = object
	}
}

// certificates are those that the selector takes, by namespace and name.
func (k *knowledge) certificates() (all []*certmanagerv1.Certificate) {
	for _, o := range k.objects {
		if crt, is := o.(*certmanagerv1.Certificate); is && k.query.Selector.Matches(labels.Set(crt.Labels)) {
			all = append(all, crt)
		}
	}
	slices.SortFunc(all, func(x, y *certmanagerv1.Certificate) int {
		return cmp.Or(strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name))
	})
	return all
}

// reports explains what the Query asks for.
func (k *knowledge) reports(ctx context.Context, now time.Time) (reports []explain.Report, err error) {
	w := explain.NewWorld(slices.Collect(maps.Values(k.objects)), k.unread, now)
	all := k.certificates()
	if len(k.query.Args) == 0 {
		for _, crt := range all {
			reports = append(reports, w.Certificate(crt))
		}
	}
	for _, s := range k.starts {
		if s.signingRequest != "" {
			csr := &certificatesv1.CertificateSigningRequest{}
			if err := k.client.Get(ctx, client.ObjectKey{Name: s.signingRequest}, csr); err != nil {
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

// namespaceOf is where the objects of a list are looked for. The Order for a CertificateSigningRequest is in the
// controller's namespace, which nobody knows here.
func (q Query) namespaceOf(list client.ObjectList) string {
	switch list.(type) {
	case *certmanagerv1.ClusterIssuerList:
		return ""
	case *acmev1.OrderList, *acmev1.ChallengeList:
		if slices.ContainsFunc(q.Args, asksForSigningRequest) {
			return ""
		}
	}
	return q.Namespace
}

// troubled reports whether there is more to say of a Certificate than that it is good.
func troubled(crt *certmanagerv1.Certificate) bool { return explain.Describe(crt).State != "ready" }

func lists() []client.ObjectList {
	return []client.ObjectList{
		&certmanagerv1.CertificateList{}, &certmanagerv1.CertificateRequestList{}, &acmev1.OrderList{}, &acmev1.ChallengeList{},
		&certmanagerv1.IssuerList{}, &certmanagerv1.ClusterIssuerList{},
	}
}

// kindOf is the kind of a list's items.
func kindOf(list client.ObjectList) string {
	return strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%T", list), "*v1."), "List")
}
