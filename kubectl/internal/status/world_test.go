package status

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig"
	"chancery.dev/kubectl/internal/plugin"
)

// stage is a namespace with controllers, and a user who may view it.
type stage struct {
	*rig.World

	kubeconfig string
	viewer     string
}

func newStage(t *testing.T) *stage {
	t.Helper()
	w := &stage{World: rig.NewWorld(t)}
	w.kubeconfig, w.viewer = rig.Kubeconfig(t, w.Admin, w.Namespace), "viewer-of-"+w.Namespace
	w.Create(t, &rbacv1.RoleBinding{
		ObjectMeta: named("viewer"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: w.viewer}},
	})
	rig.Eventually(t, "the viewer has the rights of view", func(ctx context.Context) string {
		if _, code, _, err := w.status(ctx); err != nil || code != 0 {
			return fmt.Sprint(code, err)
		}
		return ""
	})
	return w
}

// status runs the command as the viewer, and returns what it prints, its exit status and the requests that it makes.
// The error is what is printed after an exit status of 1.
func (w *stage) status(ctx context.Context, args ...string) (said string, code int, requests []string, err error) {
	var out bytes.Buffer
	streams := plugin.Streams{In: strings.NewReader(""), Out: &out, ErrOut: &out}
	flags := genericclioptions.NewConfigFlags(true).WithWrapConfigFn(func(rc *rest.Config) *rest.Config {
		rc.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				requests = append(requests, r.Method+" "+r.URL.Path)
				return next.RoundTrip(r)
			})
		})
		return rc
	})
	cmd := newCommand(streams, flags)
	cmd.SetArgs(append([]string{"--kubeconfig", w.kubeconfig, "--as", w.viewer}, args...))
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err = cmd.ExecuteContext(ctx)
	switch exit := (plugin.ExitError{}); {
	case errors.As(err, &exit):
		code, err = exit.Code, exit.Err
	case err != nil:
		code = 1
	}
	return out.String(), code, requests, err
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// issue adds a Certificate for a name by an Issuer that does not exist.
func (w *stage) issue(t *testing.T, name, host string) {
	t.Helper()
	w.Create(t, &certmanagerv1.Certificate{ObjectMeta: named(name), Spec: certmanagerv1.CertificateSpec{
		SecretName: name + "-tls", DNSNames: []string{host}, IssuerRef: cmmeta.IssuerReference{Name: name, Kind: cmmeta.DefaultIssuerKind},
		PrivateKey: &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm},
	}})
}
