package app_test

import (
	"crypto"
	"crypto/x509"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/app"
	"chancery.dev/internal/machine/podrequest"
	"chancery.dev/internal/rig"
)

// replicaWrites are the writes of a replica, but for its lease.
type replicaWrites struct {
	mu    sync.Mutex
	held  bool // refuses them
	paths []string
}

// Wrap is a transport.WrapperFunc.
func (w *replicaWrites) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/leases") {
			w.mu.Lock()
			held := w.held
			w.paths = append(w.paths, r.Method+" "+r.URL.Path)
			w.mu.Unlock()
			if held {
				if r.Body != nil {
					_ = r.Body.Close()
				}
				return nil, errors.New("this replica is held")
			}
		}
		return next.RoundTrip(r)
	})
}

func (w *replicaWrites) set(held bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = held
}

func (w *replicaWrites) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.paths)
}

// TestReplicasSignForPods: if the replica that leads does not sign for Pods, another one does. The other one denies no
// request and tells nobody what a request waits for, until it leads.
func TestReplicasSignForPods(t *testing.T) {
	t.Parallel()
	leader, other := &replicaWrites{}, &replicaWrites{}
	var config app.Config
	run := func(w *rig.World, as *replicaWrites) (stop func()) {
		rc := rig.As(w.Admin, rig.Controller, "system:serviceaccounts", "system:serviceaccounts:cert-manager")
		rc.Wrap(as.Wrap)
		return w.RunAs(t, config, rc)
	}
	var stop func()
	w := newPodWorldRun(t, rig.NewWorld(t), func(w *rig.World, cfg app.Config) {
		cfg.LeaderElect, cfg.LeaderElectionNamespace = true, w.Namespace
		config, config.MetricsAddress = cfg, "0"
		w.Allow(t, "lease", rig.ToController(), rbacv1.PolicyRule{
			APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update", "list", "watch"},
		})
		stop = run(w, leader)
	})
	own := "issuers.cert-manager.io/" + w.Namespace + "."
	w.Create(t, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"signers"}, ResourceNames: []string{own + "pods"}, Verbs: []string{"request"},
	}}}, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: w.Namespace, Name: "web"}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "web"},
	})
	ask := func(pod, signerName string) (*certificatesv1.PodCertificateRequest, crypto.Signer) {
		t.Helper()
		pcr, key := w.PodRequest(t, pod, "web", signerName, x509.CertificateRequest{})
		if err := w.kubelet.Create(t.Context(), pcr); err != nil {
			t.Fatal(err)
		}
		return pcr, key
	}
	first, key := ask("first", own+"pods")
	w.issued(t, first, key)
	run(w.World, other)
	leader.set(true)
	denied, _ := ask("denied", "issuers.cert-manager.io/kube-system.pods")
	ask("waits", own+"absent")
	second, key := ask("second", own+"pods")
	w.issued(t, second, key)
	for _, write := range other.all() {
		if !strings.HasSuffix(write, "/second/status") && !strings.HasSuffix(write, "/subjectaccessreviews") {
			t.Errorf("a replica that does not lead: %s", write)
		}
	}
	if err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(denied), denied); err != nil || len(denied.Status.Conditions) > 0 {
		t.Errorf("%v %+v", err, denied.Status)
	}
	stop()
	w.finished(t, denied, certificatesv1.PodCertificateRequestConditionTypeDenied)
	w.told(t, "waits", podrequest.ReasonIssuerMissing)
}
