package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig"
	"chancery.dev/kubectl/internal/plugin"
)

// TestExitStatus: the commands that look for trouble end with 2 if there is any, with 0 if there is none, and with 1
// if they could not look.
func TestExitStatus(t *testing.T) {
	t.Parallel()
	bad, good := chain(), chain()
	crt, is := good["certificates"].(*certmanagerv1.Certificate)
	if !is {
		t.Fatalf("%T", good["certificates"])
	}
	crt.Status.Conditions = []certmanagerv1.CertificateCondition{{Type: certmanagerv1.CertificateConditionReady, Status: cmmeta.ConditionTrue}}
	crt.Status.NotAfter = &metav1.Time{Time: time.Now().Add(90 * 24 * time.Hour)}
	troubled, fine := rig.Kubeconfig(t, serve(t, bad), "shop"), rig.Kubeconfig(t, serve(t, good), "shop")
	away := rig.Kubeconfig(t, serve(t, nil), "shop") // may read nothing
	for _, c := range []struct {
		command, cluster string
		want             int
		says             string
	}{
		{"status", troubled, 2, "Certificate shop/web"},
		{"status web", troubled, 2, "not ready"},
		{"status -o name", troubled, 2, "certificate/web"},
		{"status --not-ready -A", troubled, 2, "1 Certificate of Issuer/shop/ca"},
		{"status -o name --not-ready", troubled, 2, "certificate/web"},
		{"list --not-ready", troubled, 2, "web"},
		{"list", troubled, 0, "web"},
		{"status", fine, 0, "ready"},
		{"status --not-ready", fine, 0, "no Certificate is in trouble"},
		{"list --not-ready", fine, 0, "no Certificates"},
		{"list --expiring 100d", fine, 2, "web"},
		{"issuers -o name", fine, 0, "issuer/ca"},
		{"status none", fine, 1, "no Certificate is found for none"},
		{"status", away, 1, "error: "},
		{"list --not-ready", away, 1, "error: "},
		{"issuers", away, 1, "error: "},
	} {
		var out bytes.Buffer
		streams := plugin.Streams{In: strings.NewReader(""), Out: &out, ErrOut: &out}
		if got := run(t.Context(), streams, append(strings.Fields(c.command), "--kubeconfig", c.cluster)); got != c.want || !strings.Contains(out.String(), c.says) {
			t.Errorf("%s: exit status %d, want %d and %q:\n%s", c.command, got, c.want, c.says, &out)
		}
	}
}
