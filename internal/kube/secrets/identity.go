package secrets

import (
	"context"
	"errors"
	"fmt"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
)

// Identity is the user that the API server takes the controller for. Without a policy that does so, the API server does
// not fill in who makes a CertificateRequest, so the controller does. Identity asks the API server once, and again when
// the API server has refused a request as invalid: the service account may have been deleted and made again.
type Identity struct {
	mu   sync.Mutex
	user *authenticationv1.UserInfo // nil until the API server has been asked
}

// Fill writes the user into a request. It leaves out the extra fields of the user, which change with each token. If the
// API server does not tell who the user is, the request names nobody.
func (i *Identity) Fill(ctx context.Context, api client.Client, spec *certmanagerv1.CertificateRequestSpec) error {
	user, err := i.ask(ctx, api)
	if err != nil {
		return err
	}
	spec.Username, spec.UID, spec.Groups = user.Username, user.UID, user.Groups
	return nil
}

// IsServiceAccount reports whether the controller runs as a service account. It is an error if the API server does not
// tell who the user is.
func (i *Identity) IsServiceAccount(ctx context.Context, api client.Client, account types.NamespacedName) (bool, error) {
	user, err := i.ask(ctx, api)
	if err == nil && user.Username == "" {
		err = errors.New("the API server does not tell who the controller is: let it create selfsubjectreviews in authentication.k8s.io/v1")
	}
	if err != nil {
		return false, err
	}
	return user.Username == "system:serviceaccount:"+account.Namespace+":"+account.Name, nil
}

// ask returns the user, which is empty where the API server does not tell.
func (i *Identity) ask(ctx context.Context, api client.Client) (*authenticationv1.UserInfo, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.user != nil {
		return i.user, nil
	}
	review := &authenticationv1.SelfSubjectReview{}
	err := api.Create(ctx, review)
	silent := apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || meta.IsNoMatchError(err)
	if err != nil && !silent {
		return nil, fmt.Errorf("ask the API server who the controller is: %w", err)
	}
	i.user = &review.Status.UserInfo
	return i.user, nil
}

// Forget makes the next use ask the API server again.
func (i *Identity) Forget() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.user = nil
}
