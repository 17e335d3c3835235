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

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/clientside/explain"
	"chancery.dev/internal/kube/podapi"
	"chancery.dev/internal/machine/podrequest"
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
	// PodRequests reads the requests for certificates of Pods too, where the cluster has them, and the warnings about
	// these Pods: of each the newest.
	PodRequests bool
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
	// warned are the newest warnings, by what they are about: the volumes of a Pod for a signer.
	warned map[corev1.ObjectReference]types.UID
}

// Read reads everything in six requests, or issuers in two; requests for certificates of Pods, and warnings about them,
// take one more for each page. The role view has the rights to read everything but ClusterIssuers and requests of Pods.
func Read(ctx context.Context, c client.Reader, s Scope) (*Inventory, error) {
	i := &Inventory{scope: s, objects: map[types.UID]metav1.Object{}, unread: map[string]bool{}, warned: map[corev1.ObjectReference]types.UID{}}
	for _, list := range s.lists() {
		list, err := served(ctx, c, list, func(o runtime.Object) error {
			i.put(o)
			return nil
		}, s.options(list)...)
		_, needed := list.(*certmanagerv1.CertificateList)
		switch {
		case apierrors.IsForbidden(err) && !needed:
			i.unread[kindOf(list)] = true
		case kindOf(list) == podapi.RequestKind().Kind && Unserved(err): // Kubernetes has them since 1.35
		case err != nil:
			return nil, err
		default:
			i.read = append(i.read, list)
		}
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

// put keeps an object, and reports whether it does.
func (i *Inventory) put(o runtime.Object) bool {
	object, is := podapi.ToV1(o).(metav1.Object)
	if !is {
		return false
	}
	object.SetManagedFields(nil)
	switch o := object.(type) {
	case *certificatesv1.PodCertificateRequest:
		if !podrequest.IsOurs(o.Spec.SignerName) {
			return false
		}
		thinRequest(o)
	case *corev1.Event:
		e := thinEvent(o)
		last, is := i.objects[i.warned[e.InvolvedObject]].(*corev1.Event)
		if !slices.Contains(podrequest.Waits(), e.Reason) || is && e.LastTimestamp.Before(&last.LastTimestamp) {
			return false
		}
		delete(i.objects, i.warned[e.InvolvedObject])
		i.warned[e.InvolvedObject] = e.UID
		object = e
	}
	i.objects[object.GetUID()] = object
	return true
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
	all := []client.ObjectList{&certmanagerv1.IssuerList{}, &certmanagerv1.ClusterIssuerList{}}
	if !s.OnlyIssuers {
		all = append([]client.ObjectList{
			&certmanagerv1.CertificateList{}, &certmanagerv1.CertificateRequestList{}, &acmev1.OrderList{}, &acmev1.ChallengeList{},
		}, all...)
	}
	if s.PodRequests {
		all = append(all, &certificatesv1.PodCertificateRequestList{}, &corev1.EventList{})
	}
	return all
}

// options say which objects of a list to read, and how many of those for Pods at once.
func (s Scope) options(list client.ObjectList) []client.ListOption {
	in := client.InNamespace(s.namespaceOf(list))
	switch list.(type) {
	case *certificatesv1.PodCertificateRequestList, *certificatesv1beta1.PodCertificateRequestList:
		return []client.ListOption{in, client.Limit(PageSize)}
	case *corev1.EventList:
		return []client.ListOption{in, client.Limit(PageSize), client.MatchingFields{"source": podWarner}}
	default:
		return []client.ListOption{in}
	}
}

// kindOf is the kind of a list's items.
func kindOf(list client.ObjectList) string {
	if kind := list.GetObjectKind().GroupVersionKind().Kind; kind != "" { // an unstructured one
		return kind
	}
	_, kind, _ := strings.Cut(fmt.Sprintf("%T", list), ".")
	return strings.TrimSuffix(kind, "List")
}
