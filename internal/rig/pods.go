package rig

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Node is the node of requests of Pods.
const Node = "node-1"

// Kubelet gives the controllers the rights to requests of Pods, and returns a client of the kubelet of Node. The group
// people-NAMESPACE may make such requests, too, as far as rights go.
func (w *World) Kubelet(t testing.TB) client.Client {
	t.Helper()
	pods := func(resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{certificatesv1.GroupName}, Resources: []string{resource}, Verbs: verbs}
	}
	people := "people-" + w.Namespace
	w.Allow(t, "controller", ToController(), pods("podcertificaterequests", "get", "list", "watch"), pods("podcertificaterequests/status", "patch"))
	w.Allow(t, "people", rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "Group", Name: people}, pods("podcertificaterequests", "create"))
	kubelet, err := client.New(As(w.Admin, "system:node:"+Node, "system:nodes", people), client.Options{Scheme: w.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return kubelet
}

// PodRequest is the request of a kubelet for a Pod of a ServiceAccount, of which the names are the UIDs, too, with the
// key. Stub is what the PKCS#10 request says.
func (w *World) PodRequest(t testing.TB, pod, account, signerName string, stub x509.CertificateRequest) (*certificatesv1.PodCertificateRequest, crypto.Signer) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &stub, key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: pod},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: signerName, PodName: pod, PodUID: types.UID(pod), ServiceAccountName: account, ServiceAccountUID: types.UID(account),
			NodeName: Node, NodeUID: Node, StubPKCS10Request: der,
		},
	}, key
}
