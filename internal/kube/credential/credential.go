// Package credential reads the credentials of signers and solvers from Secrets. The package stores no credential, and
// does not know the purpose of a credential.
package credential

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"chancery.dev/internal/limits"
)

// Reader reads Secrets.
type Reader interface {
	// Secret returns a Secret that the caller MUST NOT change. A Secret that is not there is an error for which
	// apierrors.IsNotFound is true.
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
}

// Value reads an entry of a Secret with a credential. Its errors name the Secret and the entry, never a value.
func Value(ctx context.Context, r Reader, namespace, name, key string) (string, error) {
	return Text(ctx, r, namespace, name, key, limits.CredentialBytes)
}

// Text reads an entry of a Secret that has so many bytes at most. Its errors name the Secret and the entry, never
// a value.
func Text(ctx context.Context, r Reader, namespace, name, key string, most int) (string, error) {
	s, err := r.Secret(ctx, namespace, name)
	if err != nil {
		return "", fmt.Errorf("reading Secret %s/%s: %w", namespace, name, err)
	}
	value, ok := s.Data[key]
	if !ok {
		return "", fmt.Errorf("the Secret %s/%s has no entry %q", namespace, name, key)
	}
	if len(value) > most {
		return "", fmt.Errorf("the entry %q of Secret %s/%s has more than %d bytes: store what is needed, and nothing else, in it", key, namespace, name, most)
	}
	return string(value), nil
}
