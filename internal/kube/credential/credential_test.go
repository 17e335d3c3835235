package credential_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"chancery.dev/internal/kube/credential"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/bounds"
)

type secrets map[string][]byte

func (s secrets) Secret(context.Context, string, string) (*corev1.Secret, error) {
	return &corev1.Secret{Data: s}, nil
}

// TestCredentialEntriesAreBounded: a credential has 64 KiB at most, and the error names where it is, and not what.
func TestCredentialEntriesAreBounded(t *testing.T) {
	const mark = "hunter2"
	bounds.Holds(t, "credential", func(n int) limits.Outcome {
		value := strings.Repeat("x", n-len(mark)) + mark
		got, err := credential.Value(t.Context(), secrets{"token": []byte(value)}, "team", "key", "token")
		if err == nil && got != value || err != nil && strings.Contains(err.Error(), mark) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		return bounds.Refusal(t, err, `the entry "token" of Secret team/key has more than 65536 bytes`)
	})
}
