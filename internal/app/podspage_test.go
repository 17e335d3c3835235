package app_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"chancery.dev/internal/clientside/inventory"
	"chancery.dev/internal/machine/podrequest"
	"chancery.dev/internal/rig"
)

// TestPodsAreRead: what the dashboard reads of Pods has the controller's warning about a Pod that waits, which it finds
// by its source.
func TestPodsAreRead(t *testing.T) {
	t.Parallel()
	w := newPodWorld(t)
	pcr, _ := w.PodRequest(t, "web-0", "web", "cert-manager.io/"+w.ClusterName("pods"), x509.CertificateRequest{})
	if err := w.kubelet.Create(t.Context(), pcr); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the request and the warning are read", func(ctx context.Context) string {
		i, err := inventory.Read(ctx, w.Client, inventory.Scope{Namespace: w.Namespace, PodRequests: true})
		if err != nil {
			return err.Error()
		}
		all := i.Objects()
		warned := slices.ContainsFunc(all, func(o metav1.Object) bool {
			e, is := o.(*corev1.Event)
			return is && e.InvolvedObject.UID == pcr.Spec.PodUID && e.Reason == podrequest.ReasonForbidden
		})
		if !warned || !slices.ContainsFunc(all, func(o metav1.Object) bool { return o.GetUID() == pcr.UID }) {
			return fmt.Sprintf("%d objects", len(all))
		}
		return ""
	})
}
