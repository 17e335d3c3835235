package status

import (
	"context"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/rig"
	"chancery.dev/kubectl/internal/plugin"
)

// shared is a buffer that is written and read at the same time.
type shared struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *shared) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// TestWatch: each change is shown as it comes, a deletion too, until an interrupt.
func TestWatch(t *testing.T) {
	t.Parallel()
	w := newStage(t)
	w.issue(t, "web", "www.example.com")
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out := &shared{}
	cmd := newCommand(plugin.Streams{Out: out, ErrOut: out}, genericclioptions.NewConfigFlags(true))
	cmd.SetArgs([]string{"--kubeconfig", w.kubeconfig, "--as", w.viewer, "--watch", "www.example.com"})
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	says := func(text string, times int) {
		t.Helper()
		rig.Eventually(t, "it says "+text, func(context.Context) string {
			if said := out.String(); strings.Count(said, text) < times {
				return said
			}
			return ""
		})
	}
	says("/web: new", 1)
	w.Run(t, w.Config())
	says("web does not exist\nwhat to do:", 1)
	issuer := &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}}
	w.Create(t, issuer)
	says("/web: ready\nexpires:", 1)
	says("└─ CertificateRequest", 1)
	if err := w.Client.Delete(t.Context(), issuer); err != nil {
		t.Fatal(err)
	}
	says("Issuer "+w.Namespace+"/web: does not exist", 2)
	interrupt()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if said, code, _, err := w.status(t.Context(), "web", "--watch", "-o", "json"); err == nil || code != 1 {
		t.Error(code, said)
	}
}
