package app_test

import (
	"context"
	"crypto/x509/pkix"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"chancery.dev/api"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/install"
	"chancery.dev/internal/machine/request"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
)

// clientOf returns the client of a user who has the rights of a role that is installed, but one:
// the rule at index without; -1 leaves none out.
func clientOf(t *testing.T, w *rig.World, user, role string, without int) client.Client {
	t.Helper()
	installed := &rbacv1.ClusterRole{}
	if err := w.Client.Get(t.Context(), client.ObjectKey{Name: role}, installed); err != nil {
		t.Fatal(err)
	}
	rules := slices.Clone(installed.Rules)
	if without >= 0 {
		rules = slices.Delete(rules, without, without+1)
	}
	user = user + "-" + w.Namespace
	grant(t, w, user, rules...)
	c, err := client.New(rig.As(w.Admin, user), client.Options{Scheme: w.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// eventuallyFails waits until doing something fails with the words, or works if there are none: the
// API server needs a moment to notice new rights.
func eventuallyFails(t *testing.T, words string, do func(ctx context.Context) error) {
	t.Helper()
	rig.Eventually(t, "it ends with "+words, func(ctx context.Context) string {
		err := do(ctx)
		if words == "" && err == nil || words != "" && err != nil && strings.Contains(err.Error(), words) {
			return ""
		}
		return fmt.Sprint(err)
	})
}

// TestApproverRoles: with the roles that are installed approvers can approve, and without each of their
// rules they are told which right is missing.
func TestApproverRoles(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	csr := newCSR(t, w, "nobody")
	cr := &certmanagerv1.CertificateRequest{ObjectMeta: metav1.ObjectMeta{Name: "cr"}, Spec: certmanagerv1.CertificateRequestSpec{
		Request: csr.Spec.Request, IssuerRef: cmmeta.IssuerReference{Name: "ca"},
	}}
	w.Create(t, csr, cr)
	approveCSR := func(c client.Client) func(context.Context) error {
		return func(ctx context.Context) error {
			seen := &certificatesv1.CertificateSigningRequest{}
			if err := c.Get(ctx, client.ObjectKeyFromObject(csr), seen); err != nil {
				return err
			}
			seen.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"}}
			return c.SubResource("approval").Update(ctx, seen, client.DryRunAll)
		}
	}
	approveCR := func(c client.Client) func(context.Context) error {
		return func(ctx context.Context) error {
			seen := &certmanagerv1.CertificateRequest{}
			if err := c.Get(ctx, client.ObjectKeyFromObject(cr), seen); err != nil {
				return err
			}
			approved := certmanagerv1.CertificateRequestCondition{Type: certmanagerv1.CertificateRequestConditionApproved, Status: cmmeta.ConditionTrue, Reason: "Test"}
			certmanagerv1.SetCertificateRequestCondition(seen, approved, time.Now())
			return c.Status().Update(ctx, seen, client.DryRunAll)
		}
	}
	for _, c := range []struct {
		role string
		do   func(client.Client) func(context.Context) error
		// words without each rule of the role.
		words []string
	}{
		{"chancery-csr-approver", approveCSR, []string{
			`cannot get resource "certificatesigningrequests" in API group "certificates.k8s.io"`,
			`cannot update resource "certificatesigningrequests/approval" in API group "certificates.k8s.io"`,
			`user not permitted to approve requests with signerName "cert-manager.io/`,
		}},
		{"chancery-certificaterequest-approver", approveCR, []string{
			`cannot get resource "certificaterequests" in API group "cert-manager.io"`,
			`cannot update resource "certificaterequests/status" in API group "cert-manager.io"`,
			"does not have permissions to set approved/denied conditions for issuer {ca Issuer cert-manager.io}",
		}},
	} {
		for i, words := range append([]string{""}, c.words...) {
			eventuallyFails(t, words, c.do(clientOf(t, w, fmt.Sprint(c.role, i), c.role, i-1)))
		}
	}
}

// TestRequesterRoles: who asks by CertificateSigningRequest for a namespaced Issuer needs the verb reference
// there, and for a CA certificate of a ClusterIssuer in the cluster; the failure names it.
func TestRequesterRoles(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	cfg := w.Config()
	cfg.CSRApprovers = map[request.Form]request.Approver{request.FormCSR: request.ApproveAuto, request.FormCSRIssuer: request.ApproveAuthorized}
	w.RunAs(t, cfg, rig.As(w.Admin, rig.Controller, "system:serviceaccounts", "system:serviceaccounts:cert-manager"))
	w.Create(t, selfSigner(w), &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "self"}, Spec: certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}})
	ask := clientOf(t, w, "requester", "chancery-csr-requester", -1)
	template := newCSR(t, w, "self")
	leaf := template.Spec.Request
	create := func(name, signerName string, ca bool) *certificatesv1.CertificateSigningRequest {
		csr := template.DeepCopy()
		csr.Name, csr.Spec.SignerName = w.ClusterName(name), signerName
		if ca {
			csr.Annotations[certmanagerv1.CSRIsCAAnnotation] = "true"
		}
		eventuallyFails(t, "", func(ctx context.Context) error { return ask.Create(ctx, csr) })
		return csr
	}
	clustered, namespaced := "cert-manager.io/"+w.ClusterName("self"), "issuers.cert-manager.io/"+w.Namespace+".self"
	ends := func(csr *certificatesv1.CertificateSigningRequest, failure string) {
		t.Helper()
		rig.Eventually(t, csr.Name+" ends with "+failure, func(ctx context.Context) string {
			if err := ask.Get(ctx, client.ObjectKeyFromObject(csr), csr); err != nil {
				return err.Error()
			}
			failed := slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
				return c.Type == certificatesv1.CertificateFailed && failure != "" && strings.Contains(c.Reason+" "+c.Message, failure)
			})
			if failed || failure == "" && len(csr.Status.Certificate) > 0 {
				return ""
			}
			return fmt.Sprintf("%+v", csr.Status)
		})
	}
	const denied = "DeniedReference The requester may not reference"
	ends(create("leaf", clustered, false), "")
	ends(create("ca", clustered, true), denied)
	template.Spec.Request = caCSR(t) // which says so nowhere else, and issuers may go by
	ends(create("ca-by-pem", clustered, false), "the request contradicts its encoded certificate request: isCA is false")
	template.Spec.Request = leaf
	ends(create("namespaced", namespaced, false), denied)
	user := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "requester-" + w.Namespace}}
	reference := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "chancery-signer-reference"}
	w.Create(t, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "reference"}, RoleRef: reference, Subjects: user})
	awaitAccess(t, w, user[0].Name, w.Namespace)
	ends(create("namespaced-again", namespaced, false), "")
	ends(create("ca-again", clustered, true), denied)
	w.Create(t, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: w.ClusterName("reference")}, RoleRef: reference, Subjects: user})
	awaitAccess(t, w, user[0].Name, "")
	ends(create("ca-at-last", clustered, true), "")
}

// caCSR returns a PKCS#10 request that asks for a CA certificate itself.
func caCSR(t *testing.T) []byte {
	t.Helper()
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	csr, err := pki.CreateCSR(pki.CSRTemplate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true, EncodeBasicConstraints: true}, key)
	if err != nil {
		t.Fatal(err)
	}
	return csr
}

// TestInstallKeepsAddedKinds: a kind of external issuer that an operator has added to the controller's table stays when
// Chancery is installed again.
func TestInstallKeepsAddedKinds(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	table := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: api.ExternalIssuersNamespace, Name: api.ExternalIssuersName}}
	key := "Added." + w.Namespace + ".example.com"
	set := func(value string) {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"data":{"`+key+`":`+value+`}}`))
		if err := w.Client.Patch(context.WithoutCancel(t.Context()), table, patch, client.FieldOwner("an operator")); err != nil {
			t.Fatal(err)
		}
	}
	w.Run(t, w.Config())
	rig.Eventually(t, "the controller makes the table", func(ctx context.Context) string {
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(table), &corev1.ConfigMap{}); err != nil {
			return err.Error()
		}
		return ""
	})
	set(`"addeds Cluster"`)
	t.Cleanup(func() { set("null") })
	if err := install.Install(t.Context(), w.Admin, func(string) {}); err != nil {
		t.Fatal(err)
	}
	if err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(table), table); err != nil || table.Data[key] != "addeds Cluster" {
		t.Errorf("%v, %v", table.Data, err)
	}
}

// TestDocumentedManifests: the manifests in the documentation are what the API server takes.
func TestDocumentedManifests(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	w.InstallGatewayAPI(t, "gateways", "tlsroutes", "referencegrants")
	seen := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
			seen++
			block, _, _ = strings.Cut(block, "\n```")
			for document := range strings.SplitSeq(block, "\n---\n") {
				takesManifest(t, w, filepath.Base(file), document)
			}
		}
	}
	if seen < 8 {
		t.Errorf("there are %d blocks of yaml only: do they begin otherwise?", seen)
	}
}

// takesManifest lets the API server look at a manifest, in the world's namespace unless it is for that of the
// controller.
func takesManifest(t *testing.T, w *rig.World, file, document string) {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
		t.Fatalf("%s: %v:\n%s", file, err, document)
	}
	namespaced, err := w.Client.IsObjectNamespaced(o)
	if err != nil {
		t.Fatalf("%s: %v:\n%s", file, err, document)
	}
	if namespaced && o.GetNamespace() != "cert-manager" {
		o.SetNamespace(w.Namespace)
	}
	err = w.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.DryRunAll, client.FieldOwner("test"), client.ForceOwnership)
	if err != nil {
		t.Errorf("%s: %v:\n%s", file, err, document)
	}
}

// awaitAccess waits until the API server grants a user the verb reference on signers.
func awaitAccess(t *testing.T, w *rig.World, user, namespace string) {
	t.Helper()
	rig.Eventually(t, "the right is granted", func(ctx context.Context) string {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: certmanagerv1.GroupName, Resource: "signers", Verb: "reference", Namespace: namespace, Name: "self",
		}}}
		if err := w.Client.Create(ctx, review); err != nil || !review.Status.Allowed {
			return fmt.Sprint(err, review.Status)
		}
		return ""
	})
}
