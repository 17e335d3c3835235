package solver_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"chancery.dev/internal/limits"
	"chancery.dev/internal/solver"
)

type secrets map[string][]byte

func (s secrets) Secret(context.Context, string, string) (*corev1.Secret, error) {
	return &corev1.Secret{Data: s}, nil
}

// TestCredentialEntriesAreBounded: a credential has 64 KiB at most, and the error names where it is, and not what.
func TestCredentialEntriesAreBounded(t *testing.T) {
	const mark = "hunter2"
	at := strings.Repeat("x", limits.CredentialBytes-len(mark)) + mark
	s := secrets{"fits": []byte(at), "long": []byte(at + "x")}
	if got, err := solver.SecretValue(t.Context(), s, "team", "key", "fits"); err != nil || got != at {
		t.Errorf("at the bound: %v", err)
	}
	_, err := solver.SecretValue(t.Context(), s, "team", "key", "long")
	if err == nil || !strings.Contains(err.Error(), `the entry "long" of Secret team/key has more than 65536 bytes`) || strings.Contains(err.Error(), mark) {
		t.Errorf("above the bound: %v", err)
	}
}
