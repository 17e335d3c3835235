package change

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig"
	"chancery.dev/kubectl/internal/plugin"
)

// stage is a namespace with controllers that approve nothing.
type stage struct {
	*rig.World

	kubeconfig string
}

func newStage(t *testing.T) *stage {
	t.Helper()
	w := &stage{World: rig.NewWorld(t)}
	w.kubeconfig = rig.Kubeconfig(t, w.Admin, w.Namespace)
	w.Create(t, &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "self"}, Spec: certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}})
	for _, name := range []string{"web", "shop"} {
		w.Create(t, &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}}, Spec: certmanagerv1.CertificateSpec{
			SecretName: name, DNSNames: []string{name + ".example.com"}, IssuerRef: cmmeta.IssuerReference{Name: "self"},
			PrivateKey: &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm},
		}})
	}
	cfg := w.Config()
	cfg.AutoApprove = false
	w.Run(t, cfg)
	return w
}

func (w *stage) run(ctx context.Context, command string) (string, error) {
	var out bytes.Buffer
	root := plugin.New(plugin.Streams{Out: &out, ErrOut: &out})
	root.AddCommand(New(plugin.Streams{Out: &out, ErrOut: &out})...)
	root.SetArgs(append(strings.Fields(command), "--kubeconfig", w.kubeconfig))
	err := root.ExecuteContext(ctx)
	return out.String(), err
}

// eventually runs a command until it succeeds: it needs an object that the controller makes.
func (w *stage) eventually(t *testing.T, command string) {
	t.Helper()
	rig.Eventually(t, command, func(ctx context.Context) string {
		if said, err := w.run(ctx, command); err != nil {
			return said + err.Error()
		}
		return ""
	})
}

func (w *stage) awaitRevision(t *testing.T, name string, revision int) {
	t.Helper()
	rig.Eventually(t, fmt.Sprintf("%s has the revision %d", name, revision), func(ctx context.Context) string {
		crt := &certmanagerv1.Certificate{}
		if err := w.Get(ctx, name, crt); err != nil || crt.Status.Revision == nil || *crt.Status.Revision != revision {
			return fmt.Sprintf("%v %+v", err, crt.Status)
		}
		if certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionIssuing) != nil {
			return fmt.Sprintf("%+v", crt.Status)
		}
		return ""
	})
}

// TestVerdictAndRenewal: approve lets the controller sign, deny does not, and renew has both make another request, with
// the rights of edit.
func TestVerdictAndRenewal(t *testing.T) {
	t.Parallel()
	w := newStage(t)
	w.eventually(t, "approve web-1 --message seen")
	w.awaitRevision(t, "web", 1)
	w.eventually(t, "deny shop-1")
	cr := &certmanagerv1.CertificateRequest{}
	if err := w.Get(t.Context(), "web-1", cr); err != nil {
		t.Fatal(err)
	}
	if c := certmanagerv1.FindCertificateRequestCondition(cr.Status.Conditions, certmanagerv1.CertificateRequestConditionApproved); c == nil || c.Reason != "KubectlCertManager" || c.Message != "seen" {
		t.Errorf("%+v", c)
	}
	for command, want := range map[string]string{
		"approve shop-1":     "is Denied already (KubectlCertManager: manually denied by kubectl chancery)",
		"deny web-1":         "is Approved already",
		"approve none":       "not found",
		"renew none":         "not found",
		"renew":              "one of the three",
		"renew web --all":    "one of the three",
		"renew -l a=b --all": "one of the three",
		"renew web -A":       "goes with --all",
		"renew -l a=b":       "no Certificates are found",
		"renew -l =":         "--selector",
	} {
		if said, err := w.run(t.Context(), command); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v %s", command, err, said)
		}
	}
	editor := "editor-of-" + w.Namespace
	w.Create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "editor"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: editor}},
	})
	w.eventually(t, "renew web --as "+editor)
	w.eventually(t, "approve web-2")
	w.awaitRevision(t, "web", 2)
	rig.Eventually(t, "the denial has become a failure", func(ctx context.Context) string {
		crt := &certmanagerv1.Certificate{}
		if err := w.Get(ctx, "shop", crt); err != nil || crt.Status.LastFailureTime == nil {
			return fmt.Sprintf("%v %+v", err, crt.Status)
		}
		return ""
	})
	w.eventually(t, "renew -l app=shop")
	w.eventually(t, "approve shop-1")
	w.awaitRevision(t, "shop", 1)
	w.eventually(t, "renew --all")
	if said, err := w.run(t.Context(), "renew --all"); err != nil || strings.Count(said, "is being issued already; see kubectl chancery status ") != 2 ||
		!strings.Contains(said, " -n "+w.Namespace) {
		t.Errorf("%v\n%s", err, said)
	}
}
