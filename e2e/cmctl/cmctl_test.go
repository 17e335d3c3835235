package cmctl_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/e2e/beside"
	"chancery.dev/internal/rig"
)

// cmctl returns what runs cmctl as an administrator in the namespace of a world, and fails the test if a command fails.
func cmctl(t *testing.T, w *rig.World) func(args ...string) string {
	t.Helper()
	binary := os.Getenv("CHANCERY_CMCTL_BIN")
	if binary == "" {
		t.Fatal("CHANCERY_CMCTL_BIN names no program: run make nightly-cmctl")
	}
	kubeconfig := beside.Kubeconfig(t, t.TempDir(), w.Admin)
	return func(args ...string) string {
		t.Helper()
		args = append(args, "--namespace", w.Namespace)
		cmd := exec.CommandContext(t.Context(), binary, args...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("cmctl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
}

// TestCommands: the API is reported as ready, and a Certificate is shown, renewed, and approved by hand.
func TestCommands(t *testing.T) {
	w := rig.NewWorld(t)
	cfg := w.Config()
	cfg.AutoApprove = false
	w.Run(t, cfg)
	run := cmctl(t, w)

	if said := run("check", "api"); !strings.Contains(said, "is ready") {
		t.Errorf("cmctl check api says %q", said)
	}
	beside.Apply(t, w.Client, "testdata/certificate.yaml", w.Namespace, nil)
	for revision, command := range [][]string{{"status", "certificate", "www"}, {"renew", "www"}} {
		run(command...)
		request := fmt.Sprintf("www-%d", revision+1)
		rig.Eventually(t, request+" waits for approval", func(ctx context.Context) string {
			return errorText(w.Get(ctx, request, &certmanagerv1.CertificateRequest{}))
		})
		run("approve", request)
		rig.Eventually(t, "the Certificate is issued", func(ctx context.Context) string {
			crt := &certmanagerv1.Certificate{}
			if err := w.Get(ctx, "www", crt); err != nil {
				return err.Error()
			}
			issued := certmanagerv1.HasCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionReady, cmmeta.ConditionTrue)
			if !issued || crt.Status.Revision == nil || *crt.Status.Revision != revision+1 {
				return fmt.Sprintf("%+v", crt.Status)
			}
			return ""
		})
	}
	said := run("status", "certificate", "www")
	for _, part := range []string{"www.example.com", "Ready: True", "Issuer:", "Secret:", "Not After:"} {
		if !strings.Contains(said, part) {
			t.Errorf("cmctl status certificate does not say %q:\n%s", part, said)
		}
	}
	if said := run("inspect", "secret", "www"); !strings.Contains(said, "www.example.com") {
		t.Errorf("cmctl inspect secret says:\n%s", said)
	}

	run("renew", "www")
	rig.Eventually(t, "www-3 waits for approval", func(ctx context.Context) string {
		return errorText(w.Get(ctx, "www-3", &certmanagerv1.CertificateRequest{}))
	})
	run("deny", "www-3")
	rig.Eventually(t, "the denial is said on the Certificate", func(ctx context.Context) string {
		crt := &certmanagerv1.Certificate{}
		if err := w.Get(ctx, "www", crt); err != nil {
			return err.Error()
		}
		issuing := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionIssuing)
		if issuing == nil || issuing.Status != cmmeta.ConditionFalse {
			return fmt.Sprintf("%+v", crt.Status.Conditions)
		}
		return ""
	})
}

func errorText(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}
