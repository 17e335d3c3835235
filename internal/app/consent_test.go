package app_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/machine/request"
	"chancery.dev/internal/rig"
)

// TestMachinesGetNoNamesByThemselves: a node and the holder of a bootstrap token ask for a name, with the rights that
// Kubernetes itself gives to them. Their requests wait until somebody has consented, and never fail; what is not theirs
// is signed meanwhile.
func TestMachinesGetNoNamesByThemselves(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	cfg := w.Config()
	cfg.CSRMachineGroups = []string{"system:bootstrappers:trusted"}
	w.Run(t, cfg)
	w.Create(t, selfSigner(w))
	template := newCSR(t, w, "self")
	ask := func(name string, groups ...string) *certificatesv1.CertificateSigningRequest {
		user := name + "-" + w.Namespace
		w.Create(t, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: user},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-bootstrapper"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
		})
		c, err := client.New(rig.As(w.Admin, user, groups...), client.Options{Scheme: w.Client.Scheme()})
		if err != nil {
			t.Fatal(err)
		}
		csr := template.DeepCopy()
		csr.Name = w.ClusterName(name)
		eventuallyFails(t, "", func(ctx context.Context) error { return c.Create(ctx, csr) })
		return csr
	}
	read := func(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) string {
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(csr), csr); err != nil {
			return err.Error()
		}
		return ""
	}
	signed := func(csr *certificatesv1.CertificateSigningRequest) {
		t.Helper()
		rig.Eventually(t, csr.Name+" is signed", func(ctx context.Context) string {
			if err := read(ctx, csr); err != "" || len(csr.Status.Certificate) > 0 {
				return err
			}
			return fmt.Sprintf("%+v", csr.Status)
		})
	}
	waiting := map[string]*certificatesv1.CertificateSigningRequest{
		request.GroupNodes:         ask("node", request.GroupNodes),
		request.GroupBootstrappers: ask("token", request.GroupBootstrappers, request.GroupBootstrappers+":kubeadm:default-node-token"),
	}
	signed(ask("person"))
	signed(ask("trusted", request.GroupBootstrappers, request.GroupBootstrappers+":trusted"))
	for group, csr := range waiting {
		awaitConsentEvent(t, w, csr, group)
		if err := read(t.Context(), csr); err != "" || len(csr.Status.Conditions)+len(csr.Status.Certificate) > 0 {
			t.Fatalf("%s: %s %+v", group, err, csr.Status)
		}
		csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Person"}}
		if err := w.Client.SubResource("approval").Update(t.Context(), csr); err != nil {
			t.Fatal(err)
		}
		signed(csr)
	}
}

// awaitConsentEvent waits until an event says of a request why it waits.
func awaitConsentEvent(t *testing.T, w *rig.World, csr *certificatesv1.CertificateSigningRequest, group string) {
	t.Helper()
	rig.Eventually(t, "an event says what "+csr.Name+" waits for", func(ctx context.Context) string {
		events := &corev1.EventList{}
		if err := w.Client.List(ctx, events, client.InNamespace(corev1.NamespaceDefault)); err != nil {
			return err.Error()
		}
		if !slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.InvolvedObject.Name == csr.Name && e.Reason == request.ReasonWaitingForConsent && strings.Contains(e.Message, group+":")
		}) {
			return "there is none"
		}
		return ""
	})
}
