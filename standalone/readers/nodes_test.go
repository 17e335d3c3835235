package readers_test

import (
	"crypto/tls"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/slow"
)

// TestNodeRestriction: where the API server restricts nodes, as clusters do, a kubelet gets the certificate of a Pod of
// its node. Another node gets none for this Pod: it may name neither the node of the Pod nor itself.
func TestNodeRestriction(t *testing.T) {
	slow.Test(t, slow.Installs)
	t.Parallel()
	const flag = "--kube-apiserver-arg="
	w, signerName := podsWorld(t, rig.OwnCluster(t, flag+"--authorization-mode=Node", flag+"--enable-admission-plugins=NodeRestriction"))
	web := pod(t, w, "web", signerName)
	k := newNode(t, w, web)
	k.files(web, tls.Certificate{})
	all := &certificatesv1.PodCertificateRequestList{}
	if err := w.Client.List(t.Context(), all, client.InNamespace(w.Namespace)); err != nil || len(all.Items) != 1 {
		t.Fatal(err, len(all.Items))
	}
	genuine := all.Items[0].Spec
	other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.ClusterName("other")}}
	w.Create(t, other)
	user := "system:node:" + other.Name
	w.Allow(t, "other", rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}, certificates([]string{"podcertificaterequests"}, "create"))
	asOther, err := client.New(rig.As(w.Admin, user, "system:nodes"), client.Options{Scheme: w.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	for node, c := range map[types.NodeName]struct {
		uid types.UID
		say string
	}{
		genuine.NodeName:           {genuine.NodeUID, "which is not the requesting node"},
		types.NodeName(other.Name): {other.UID, "is not running on node"},
	} {
		forged := &certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, GenerateName: "forged-"}, Spec: genuine}
		forged.Spec.NodeName, forged.Spec.NodeUID = node, c.uid
		if err := asOther.Create(t.Context(), forged); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), c.say) {
			t.Errorf("the other node asks as %s: %v", node, err)
		}
	}
}
