package dashboard

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig"
	"chancery.dev/kubectl/internal/plugin"
)

// TestDashboard: the command prints an address that shows the namespace's certificates, until it is interrupted.
func TestDashboard(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	w.Create(t, &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: certmanagerv1.CertificateSpec{
		SecretName: "web-tls", DNSNames: []string{"www.example.com"}, IssuerRef: cmmeta.IssuerReference{Name: "none"},
	}})
	path := rig.Kubeconfig(t, w.Admin, w.Namespace)
	for want, args := range map[string][]string{
		"loopback address": {"--address", "0.0.0.0:0"}, "unknown command": {"web"}, "is forbidden": {"--as", "nobody"},
		"leave -A out": {"-A", "--as", "nobody"},
	} {
		cmd := New(plugin.Streams{Out: io.Discard, ErrOut: io.Discard})
		cmd.SetArgs(append(args, "--kubeconfig", path))
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", args, err, want)
		}
	}
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	from, to := io.Pipe()
	cmd := New(plugin.Streams{Out: to, ErrOut: io.Discard})
	cmd.SetArgs([]string{"--kubeconfig", path})
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	said := make([]byte, 1000)
	n, err := from.Read(said)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(said[:n]), "\n")
	var cookie *http.Cookie
	get := func(url string) string {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if cookie != nil {
			request.AddCookie(cookie)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = answer.Body.Close() }()
		if all := answer.Cookies(); len(all) > 0 {
			cookie = all[0]
		}
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	get(lines[1])
	origin, _, _ := strings.Cut(lines[1], "/open/")
	if text := get(origin + "/"); !strings.Contains(text, ">"+w.Namespace+"/web</a>") || !strings.Contains(text, "<strong>x</strong>") {
		t.Errorf("%s\n%s", said, text)
	}
	interrupt()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
