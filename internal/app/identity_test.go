package app_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/install"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/slow"
)

// withoutV1 hides admissionregistration.k8s.io/v1 of MutatingAdmissionPolicies from a client. The admission plugin of
// the API server, which is of 1.37, reads that version also where it emulates 1.34, so it must be served.
func withoutV1(next http.RoundTripper) http.RoundTripper {
	const v1 = "/apis/admissionregistration.k8s.io/v1"
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.URL.Path == "/apis" || r.URL.Path == v1 { // or the answers are aggregated, or protocol buffers
			r = r.Clone(r.Context())
			r.Header.Set("Accept", "application/json")
		}
		answer, err := next.RoundTrip(r)
		if err != nil || !strings.HasPrefix(r.URL.Path+"/", v1+"/") {
			return answer, err
		}
		if strings.HasPrefix(r.URL.Path, v1+"/mutatingadmissionpolic") {
			answer.StatusCode = http.StatusNotFound
		}
		if r.URL.Path != v1 {
			return answer, nil
		}
		list := &metav1.APIResourceList{}
		if err := json.NewDecoder(answer.Body).Decode(list); err != nil {
			return nil, err
		}
		list.APIResources = slices.DeleteFunc(list.APIResources, func(r metav1.APIResource) bool {
			return strings.HasPrefix(r.Name, "mutatingadmissionpolic")
		})
		text, err := json.Marshal(list)
		answer.Body, answer.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
		answer.Header.Del("Content-Length")
		return answer, err
	})
}

// requestOf returns a CertificateRequest of the world, with a name of its own, that nothing signs.
func requestOf(t *testing.T, w *rig.World) *certmanagerv1.CertificateRequest {
	t.Helper()
	key, err := pki.GenerateKey(facts.KeySpecOf(&certmanagerv1.CertificateSpec{}))
	if err != nil {
		t.Fatal(err)
	}
	csr, err := pki.CreateCSR(pki.CSRTemplate{AltNames: pki.AltNames{DNSNames: []string{"identity.example.com"}}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &certmanagerv1.CertificateRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, GenerateName: "identity-"},
		Spec:       certmanagerv1.CertificateRequestSpec{IssuerRef: cmmeta.IssuerReference{Name: "none"}, Request: csr},
	}
}

// TestIdentityByTheBetaOfPolicies installs where MutatingAdmissionPolicies are served as a beta alone, as by Kubernetes
// 1.34 and 1.35 where the beta is switched on.
func TestIdentityByTheBetaOfPolicies(t *testing.T) {
	slow.Test(t, slow.Versions)
	t.Parallel()
	const group = "admissionregistration.k8s.io"
	w := rig.NewWorldOn(t, rig.BareCluster(t, "--kube-apiserver-arg=--emulated-version=1.34",
		"--kube-apiserver-arg=--runtime-config-emulation-forward-compatible", "--kube-apiserver-arg=--feature-gates=MutatingAdmissionPolicy=true",
		"--kube-apiserver-arg=--runtime-config="+group+"/v1beta1=true,"+group+"/v1/mutatingadmissionpolicies=true,"+group+"/v1/mutatingadmissionpolicybindings=true"))
	older := rest.CopyConfig(w.Admin)
	older.Wrap(withoutV1)
	var said []string
	if err := install.Install(t.Context(), older, func(what string) { said = append(said, what) }); err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(said, func(s string) bool { return strings.HasPrefix(s, "skipped") }); i >= 0 {
		t.Error(said[i])
	}
	policy := &unstructured.Unstructured{Object: map[string]any{"apiVersion": group + "/v1beta1", "kind": "MutatingAdmissionPolicy"}}
	if err := w.Client.Get(t.Context(), client.ObjectKey{Name: "certificaterequest-identity.chancery.dev"}, policy); err != nil {
		t.Fatal(err)
	}
	owner := policy.GetManagedFields()[0]
	if owner.APIVersion != group+"/v1beta1" {
		t.Errorf("the policy was applied by %s", owner.APIVersion)
	}
	cr := requestOf(t, w)
	cr.Spec.Username = "somebody else"
	w.Create(t, cr)
	if cr.Spec.Username != "kubernetes-admin" {
		t.Errorf("the request was made by %q", cr.Spec.Username)
	}
}

// TestIdentityWithoutPolicies runs on an API server that serves no MutatingAdmissionPolicies, as those before
// Kubernetes 1.34, and those of 1.34 and 1.35 unless the beta is switched on. 1.34 is the oldest version that 1.37
// emulates.
func TestIdentityWithoutPolicies(t *testing.T) {
	slow.Test(t, slow.Versions)
	t.Parallel()
	rc := rig.OwnCluster(t, "--kube-apiserver-arg=--emulated-version=1.34")
	t.Run("own", func(t *testing.T) { ownIdentity(t, rig.NewWorldOn(t, rc)) })
	t.Run("false", func(t *testing.T) { falseIdentity(t, rig.NewWorldOn(t, rc)) })
	t.Run("webhook", func(t *testing.T) { webhookIdentity(t, rig.NewWorldOn(t, rc)) })
}

// ownIdentity: the controller fills in who makes its requests, and asks the API server once in the life of its process.
func ownIdentity(t *testing.T, w *rig.World) {
	t.Helper()
	reviews := &atomic.Int32{}
	as := rig.As(w.Admin, rig.Controller, "system:serviceaccounts", "system:serviceaccounts:cert-manager")
	as.Impersonate.UID = "uid-of-the-controller"
	as.Impersonate.Extra = map[string][]string{"authentication.kubernetes.io/credential-id": {"JTI=of-this-token"}}
	as.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/selfsubjectreviews") {
				reviews.Add(1)
			}
			return next.RoundTrip(r)
		})
	})
	stop := w.RunAs(t, w.Config(), as)
	smallCA(t, w)
	certificateReady(t, w, "web")
	if n := reviews.Load(); n != 1 {
		t.Errorf("the controller asked %d times who it is", n)
	}
	stop()
	w.RunAs(t, w.Config(), as)
	w.Create(t, &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: "later"}, Spec: certmanagerv1.CertificateSpec{
		SecretName: "later", DNSNames: []string{"later.example.com"}, IssuerRef: cmmeta.IssuerReference{Name: "ca"},
	}})
	certificateReady(t, w, "later")
	if n := reviews.Load(); n != 2 {
		t.Errorf("the controller asked %d times who it is, with one restart", n)
	}
	list := &certmanagerv1.CertificateRequestList{}
	if err := w.Client.List(t.Context(), list, client.InNamespace(w.Namespace)); err != nil {
		t.Fatal(err)
	}
	for _, cr := range list.Items {
		got := certmanagerv1.CertificateRequestSpec{Username: cr.Spec.Username, UID: cr.Spec.UID, Groups: cr.Spec.Groups, Extra: cr.Spec.Extra}
		want := certmanagerv1.CertificateRequestSpec{
			Username: rig.Controller, UID: "uid-of-the-controller",
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:cert-manager", "system:authenticated"},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", cr.Name, diff)
		}
	}
	if len(list.Items) != 3 {
		t.Errorf("%d requests were made", len(list.Items))
	}
}

// falseIdentity: a request that names somebody else is refused, and one that names its maker or nobody is not.
func falseIdentity(t *testing.T, w *rig.World) {
	t.Helper()
	for name, want := range map[string]string{"": "", "kubernetes-admin": "", "bob": "spec.username: must be your own"} {
		cr := requestOf(t, w)
		cr.Spec.Username = name
		err := w.Client.Create(t.Context(), cr)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v", name, err)
		}
		if err == nil && cr.Spec.Username != name {
			t.Errorf("%q became %q", name, cr.Spec.Username)
		}
	}
}
