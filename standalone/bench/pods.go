package bench

import (
	"context"
	"errors"
	"strconv"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/pki"
	"chancery.dev/standalone/controlplane"
)

// preparePods makes a certificate authority for Pods, the rights that are needed, and the requests of a kubelet for
// Pods of one ServiceAccount: their keys are not what is measured.
func preparePods(ctx context.Context, r *run) (*workload, error) {
	stubs := make([][]byte, r.Certificates)
	for i := range stubs {
		var err error
		if stubs[i], err = newRequest(""); err != nil {
			return nil, err
		}
	}
	issuer := &certmanagerv1.ClusterIssuer{}
	if err := errors.Join(createCA(ctx, r.plane.client, pki.ECDSA), r.plane.client.Get(ctx, client.ObjectKey{Name: caIssuer}, issuer)); err != nil {
		return nil, err
	}
	issuer.Annotations = map[string]string{certmanagerv1.PodCertificatesAnnotation: zone}
	user, _ := controlplane.ServiceAccount(controllerNamespace, controllerNamespace)
	const signerName = certmanagerv1.GroupName + "/" + caIssuer
	rule := func(resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{certificatesv1.GroupName}, Resources: []string{resource}, Verbs: verbs}
	}
	request := rule("signers", "request")
	request.ResourceNames = []string{signerName}
	err := errors.Join(
		r.plane.client.Update(ctx, issuer),
		allow(ctx, r.plane.client, "bench-signer", rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: user},
			rule("podcertificaterequests", "list", "watch"), rule("podcertificaterequests/status", "patch")),
		allow(ctx, r.plane.client, "bench-pods", rbacv1.Subject{Kind: "ServiceAccount", Namespace: namespace, Name: "web"}, request))
	return &workload{
		issuer: caIssuer, arguments: []string{"--pod-certificates"},
		list: &certificatesv1.PodCertificateRequestList{},
		object: func(i int) client.Object {
			pod := "web-" + strconv.Itoa(i)
			return &certificatesv1.PodCertificateRequest{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod},
				Spec: certificatesv1.PodCertificateRequestSpec{
					SignerName: signerName, PodName: pod, PodUID: types.UID(pod), ServiceAccountName: "web", ServiceAccountUID: "web",
					NodeName: "node", NodeUID: "node", StubPKCS10Request: stubs[i],
				},
			}
		},
		state: func(o client.Object) (done bool, said string) {
			pcr := o.(*certificatesv1.PodCertificateRequest) //nolint:forcetypeassert // it is
			for _, condition := range pcr.Status.Conditions {
				said = condition.Type + ": " + condition.Message
			}
			return pcr.Status.CertificateChain != "", said
		},
	}, err
}

// allow gives rights in the whole cluster.
func allow(ctx context.Context, c client.Client, name string, to rbacv1.Subject, rules ...rbacv1.PolicyRule) error {
	return errors.Join(
		c.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}),
		c.Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{to},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		}))
}
