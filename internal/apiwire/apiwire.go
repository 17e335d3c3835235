// Package apiwire carries objects of our own kinds between the API server and this
// process, and reads each of them once.
//
// client-go goes over an object five times: to find the end of an event, to take the
// event apart, to learn the kind, to check the syntax, and to decode it, with managed
// fields that nobody here looks at and that are a third of it. That was a fifth of the
// CPU time of a certificate. Here what is expected is known, so that an object is checked
// and decoded only, without its managed fields. Kinds that are not ours go the usual way.
//
// It is neither a cache nor a client: those of controller-runtime are given what this
// package reads.
package apiwire

import (
	"fmt"
	"net/http"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
)

// kind is what has to be known of a kind to ask for it.
type kind struct {
	schema.GroupVersionKind

	resource   string
	namespaced bool
}

// kindOf returns the kind of obj; false if it is none of ours.
func kindOf(obj runtime.Object) (kind, bool) {
	group := certmanagerv1.SchemeGroupVersion()
	switch obj.(type) {
	case *certmanagerv1.Certificate:
		return kind{group.WithKind("Certificate"), "certificates", true}, true
	case *certmanagerv1.CertificateRequest:
		return kind{group.WithKind("CertificateRequest"), "certificaterequests", true}, true
	case *certmanagerv1.Issuer:
		return kind{group.WithKind("Issuer"), "issuers", true}, true
	case *certmanagerv1.ClusterIssuer:
		return kind{group.WithKind("ClusterIssuer"), "clusterissuers", false}, true
	case *acmev1.Order:
		return kind{acmev1.SchemeGroupVersion().WithKind("Order"), "orders", true}, true
	case *acmev1.Challenge:
		return kind{acmev1.SchemeGroupVersion().WithKind("Challenge"), "challenges", true}, true
	default:
		return kind{}, false
	}
}

// connection makes the REST clients of our kinds, which share one HTTP client.
type connection struct {
	config *rest.Config
	http   *http.Client
	codecs serializer.CodecFactory
	params runtime.ParameterCodec

	mu    sync.Mutex
	rests map[schema.GroupVersion]rest.Interface
}

func newConnection(config *rest.Config, http *http.Client, scheme *runtime.Scheme) *connection {
	return &connection{
		config: config, http: http, codecs: serializer.NewCodecFactory(scheme), params: runtime.NewParameterCodec(scheme),
		rests: map[schema.GroupVersion]rest.Interface{},
	}
}

// of returns the REST client for a kind.
func (c *connection) of(k kind) (rest.Interface, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	group := k.GroupVersion()
	if known := c.rests[group]; known != nil {
		return known, nil
	}
	made, err := apiutil.RESTClientForGVK(k.GroupVersionKind, true, false, c.config, c.codecs, c.http)
	if err != nil {
		return nil, fmt.Errorf("set up the client for %s: %w", group, err)
	}
	c.rests[group] = made
	return made, nil
}

// answer returns the body of the answer.
func answer(result rest.Result) ([]byte, error) {
	if err := result.Error(); err != nil {
		return nil, err // with what the Status in the body says
	}
	return result.Raw()
}

// newOf returns an empty object of the type of like.
func newOf(like runtime.Object) client.Object {
	return reflect.New(reflect.TypeOf(like).Elem()).Interface().(client.Object) //nolint:forcetypeassert // kindOf has seen it
}
