package secrets

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// unknowing is an API server without Secrets. It counts how often it is asked.
type unknowing struct {
	client.Reader

	asked int
}

func (u *unknowing) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	u.asked++
	return apierrors.NewNotFound(corev1.Resource("secrets"), key.Name)
}

// cached is what the watch of the Secrets with our label knows.
type cached struct {
	Client

	known map[string]string
}

func (c cached) Get(_ context.Context, key client.ObjectKey, obj client.Object) error {
	version, is := c.known[key.Name]
	if !is {
		return apierrors.NewNotFound(corev1.Resource("secrets"), key.Name)
	}
	obj.SetResourceVersion(version)
	return nil
}

// TestAVersionCostsNoRead: the version of a Secret that a watch has, or that no watch ever had, is told without a
// question to the API server. That of one that a watch has just lost is asked for.
func TestAVersionCostsNoRead(t *testing.T) {
	s, live := newSecrets(nil), &unknowing{}
	s.client, s.live = cached{known: map[string]string{"ours": "5"}}, live
	other := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "other", ResourceVersion: "7"}}
	if err := s.others[0].Update(other); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"ours": "5", "other": "7", "none": ""} {
		if got, err := s.Version(t.Context(), "ns", name); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
	}
	if live.asked > 0 {
		t.Errorf("the API server was asked %d times", live.asked)
	}
	s.keep(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "other", ResourceVersion: "8"}})
	if got, err := s.Version(t.Context(), "ns", "other"); err != nil || got != "8" {
		t.Errorf("after our own write: %q, %v", got, err)
	}
	if err := s.others[0].Delete(other); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Version(t.Context(), "ns", "other"); err != nil || got != "" || live.asked != 1 {
		t.Errorf("gone: %q, %v, after %d questions", got, err, live.asked)
	}
}
