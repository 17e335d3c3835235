package secrets

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
)

// TestIdentityIsAskedForOnce: however many requests are made at once, the API server is asked once who makes them, and
// once more when it has to be.
func TestIdentityIsAskedForOnce(t *testing.T) {
	var answer error
	asked := 0
	api := interceptor.NewClient(nil, interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			asked++
			o.(*authenticationv1.SelfSubjectReview).Status.UserInfo = authenticationv1.UserInfo{
				Username: "me", UID: "1", Groups: []string{"us"}, Extra: map[string]authenticationv1.ExtraValue{"token": {"2"}},
			}
			return answer
		},
	})
	i := &Identity{}
	fill := func() (spec certmanagerv1.CertificateRequestSpec) {
		if err := i.Fill(t.Context(), api, &spec); err != nil {
			t.Error(err)
		}
		return spec
	}
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if spec := fill(); spec.Username != "me" || spec.UID != "1" || len(spec.Groups) != 1 || spec.Extra != nil {
				t.Errorf("%+v", spec)
			}
		})
	}
	all.Wait()
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	i.Forget()
	answer = apierrors.NewServiceUnavailable("soon")
	if err := i.Fill(t.Context(), api, &certmanagerv1.CertificateRequestSpec{}); !errors.Is(err, answer) {
		t.Errorf("an API server that is away: %v", err)
	}
	answer = nil
	if fill(); asked != 3 {
		t.Errorf("asked %d times", asked)
	}
}

// TestIsServiceAccount: the controller knows its own service account by namespace and name.
func TestIsServiceAccount(t *testing.T) {
	name := "system:serviceaccount:cert-manager:cert-manager"
	api := interceptor.NewClient(nil, interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			o.(*authenticationv1.SelfSubjectReview).Status.UserInfo.Username = name
			return nil
		},
	})
	for account, want := range map[types.NamespacedName]bool{
		{Namespace: "cert-manager", Name: "cert-manager"}: true, {Namespace: "cert-manager", Name: "vault"}: false, {Namespace: "team", Name: "cert-manager"}: false,
	} {
		if is, err := (&Identity{}).IsServiceAccount(t.Context(), api, account); is != want || err != nil {
			t.Errorf("%s: %t, %v", account, is, err)
		}
	}
	name = "" // nobody tells
	if _, err := (&Identity{}).IsServiceAccount(t.Context(), api, types.NamespacedName{}); err == nil || !strings.Contains(err.Error(), "selfsubjectreviews") {
		t.Error(err)
	}
}

// TestIdentityThatNobodyTells: an API server that has no such question, or does not let the controller ask, stops
// nothing.
func TestIdentityThatNobodyTells(t *testing.T) {
	kind := schema.GroupResource{Group: "authentication.k8s.io", Resource: "selfsubjectreviews"}
	for _, answer := range []error{
		apierrors.NewForbidden(kind, "", nil), apierrors.NewNotFound(kind, ""), apierrors.NewMethodNotSupported(kind, "create"),
	} {
		asked := 0
		api := interceptor.NewClient(nil, interceptor.Funcs{
			Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
				asked++
				return answer
			},
		})
		i, spec := &Identity{}, certmanagerv1.CertificateRequestSpec{}
		for range 2 {
			if err := i.Fill(t.Context(), api, &spec); err != nil || spec.Username != "" || asked != 1 {
				t.Errorf("%v: %v, %+v, asked %d times", answer, err, spec, asked)
			}
		}
	}
}
