// Package inventory reads Certificates, their issuers and the objects made for them, once or by watching. It reads
// with the rights of the user who asks, and writes nothing.
package inventory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/clientside/explain"
)

// Scope says where to look.
type Scope struct {
	// Namespace to look in; empty for all.
	Namespace string
	// AllOrders looks for Orders and Challenges in all namespaces: the Order for a CertificateSigningRequest is in the
	// controller's namespace, which a user does not know.
	AllOrders bool
	// OnlyIssuers reads Issuers and ClusterIssuers, and nothing else.
	OnlyIssuers bool
}

func (s Scope) namespaceOf(list client.ObjectList) string {
	switch list.(type) {
	case *certmanagerv1.ClusterIssuerList:
		return ""
	case *acmev1.OrderList, *acmev1.ChallengeList:
		if s.AllOrders {
			return ""
		}
	}
	return s.Namespace
}

// Inventory is what was read. One goroutine uses it at a time.
type Inventory struct {
	scope   Scope
	objects map[types.UID]metav1.Object
	// read are the lists that were read, without their items; unread are the kinds that the user may not read.
	read   []client.ObjectList
	unread map[string]bool
}

// Read reads everything in six requests, or issuers in two. The role view gives the rights to read everything but
// ClusterIssuers.
func Read(ctx context.Context, c client.Reader, s Scope) (*Inventory, error) {
	i := &Inventory{scope: s, objects: map[types.UID]metav1.Object{}, unread: map[string]bool{}}
	for _, list := range s.lists() {
		err := c.List(ctx, list, client.InNamespace(s.namespaceOf(list)))
		switch _, needed := list.(*certmanagerv1.CertificateList); {
		case apierrors.IsForbidden(err) && !needed:
			i.unread[kindOf(list)] = true
			continue
		case err != nil:
			return nil, fmt.Errorf("read the %s list: %w", kindOf(list), err)
		}
		_ = meta.EachListItemWithAlloc(list, func(o runtime.Object) error { // the function gives no error
			i.put(o)
			return nil
		})
		_ = meta.SetList(list, nil) // an empty list is always taken
		i.read = append(i.read, list)
	}
	return i, nil
}

// Include reads one more object, by its name, from outside of the scope. It leaves out an object that does not exist.
func (i *Inventory) Include(ctx context.Context, c client.Reader, o client.Object) error {
	err := c.Get(ctx, client.ObjectKeyFromObject(o), o)
	switch {
	case err == nil:
		i.put(o)
	case apierrors.IsForbidden(err):
		i.unread[explain.KindOf(o)] = true
	default:
		return client.IgnoreNotFound(err)
	}
	return nil
}

func (i *Inventory) put(o runtime.Object) {
	if object, is := o.(metav1.Object); is {
		object.SetManagedFields(nil)
		i.objects[object.GetUID()] = object
	}
}

// Objects are all that were read, in no order.
func (i *Inventory) Objects() []metav1.Object { return slices.Collect(maps.Values(i.objects)) }

// Unread are the kinds that the user may not read.
func (i *Inventory) Unread() map[string]bool { return i.unread }

// Cluster returns an explain.Cluster of the objects.
func (i *Inventory) Cluster(now time.Time) *explain.Cluster {
	return explain.NewCluster(i.Objects(), i.unread, now)
}

// Certificates are those that the selector takes, by namespace and name.
func (i *Inventory) Certificates(selector labels.Selector) (all []*certmanagerv1.Certificate) {
	for _, o := range i.objects {
		if crt, is := o.(*certmanagerv1.Certificate); is && selector.Matches(labels.Set(crt.Labels)) {
			all = append(all, crt)
		}
	}
	slices.SortFunc(all, func(x, y *certmanagerv1.Certificate) int {
		return cmp.Or(strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name))
	})
	return all
}

func (s Scope) lists() []client.ObjectList {
	issuers := []client.ObjectList{&certmanagerv1.IssuerList{}, &certmanagerv1.ClusterIssuerList{}}
	if s.OnlyIssuers {
		return issuers
	}
	return append([]client.ObjectList{
		&certmanagerv1.CertificateList{}, &certmanagerv1.CertificateRequestList{}, &acmev1.OrderList{}, &acmev1.ChallengeList{},
	}, issuers...)
}

// kindOf is the kind of a list's items.
func kindOf(list client.ObjectList) string {
	return strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%T", list), "*v1."), "List")
}
