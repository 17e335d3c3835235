package bench

import (
	"context"
	"errors"
	"fmt"
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

func preparePods(ctx context.Context, r *run) (*workload, error) {
	return podsOf(ctx, r, func(int) string { return "web" })
}

func preparePodsOfAccounts(ctx context.Context, r *run) (*workload, error) {
	return podsOf(ctx, r, func(i int) string { return "web-" + strconv.Itoa(i) })
}

// podsOf makes a certificate authority for Pods, the rights that are needed, and the requests of a kubelet for Pods of
// ServiceAccounts: their keys are not what is measured.
func podsOf(ctx context.Context, r *run, account func(i int) string) (*workload, error) {
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
			rule("podcertificaterequests", "get", "list", "watch"), rule("podcertificaterequests/status", "patch")),
		allow(ctx, r.plane.client, "bench-pods", rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:serviceaccounts:" + namespace}, request))
	return &workload{
		issuer: caIssuer, arguments: []string{"--pod-certificates"},
		list:   &certificatesv1.PodCertificateRequestList{},
		object: func(i int) client.Object { return podRequest("web", i, signerName, account(i), stubs[i]) },
		bare:   bareStatus, barely: "a bare client writes a status",
		state: func(o client.Object) (done bool, said string) {
			pcr := o.(*certificatesv1.PodCertificateRequest) //nolint:forcetypeassert // it is
			for _, condition := range pcr.Status.Conditions {
				said = condition.Type + ": " + condition.Message
			}
			return pcr.Status.CertificateChain != "", said
		},
	}, err
}

// podRequest is request number i of a kubelet.
func podRequest(prefix string, i int, signerName, account string, stub []byte) *certificatesv1.PodCertificateRequest {
	pod := prefix + "-" + strconv.Itoa(i)
	return &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: signerName, PodName: pod, PodUID: types.UID(pod), ServiceAccountName: account, ServiceAccountUID: types.UID(account),
			NodeName: "node", NodeUID: "node", StubPKCS10Request: stub,
		},
	}
}

// bareStatus measures how fast this API server takes a verdict about a request of a kubelet, for a signer of somebody
// else.
func bareStatus(ctx context.Context, r *run) (pace, error) {
	stub, err := newRequest("")
	if err != nil {
		return pace{}, err
	}
	made := make([]*certificatesv1.PodCertificateRequest, min(r.Certificates, 500))
	for i := range made {
		made[i] = podRequest("bare", i, "example.com/bare", "bare", stub)
		if err := r.plane.client.Create(ctx, made[i]); err != nil {
			return pace{}, err
		}
	}
	verdict := client.RawPatch(types.JSONPatchType, []byte(`[{"op":"add","path":"/status","value":{"conditions":[`+
		`{"type":"Denied","status":"True","reason":"Bare","message":"measured","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}]`))
	result, err := loop(ctx, len(made), r.Concurrency, func(ctx context.Context, i int) error {
		return r.plane.client.Status().Patch(ctx, made[i], verdict)
	})
	if err != nil {
		return pace{}, fmt.Errorf("measure the rate of writing a status: %w", err)
	}
	return result.pace(), nil
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
