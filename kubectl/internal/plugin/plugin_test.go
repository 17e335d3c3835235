package plugin

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	root := New(Streams{In: strings.NewReader(""), Out: &out, ErrOut: &out})
	root.SetArgs([]string{"--version"})
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out.String(), "kubectl chancery version ") {
		t.Errorf("version says %q", out.String())
	}
}

// TestKnown: the resources have the names that API servers have for them.
func TestKnown(t *testing.T) {
	t.Parallel()
	for kind, want := range map[schema.GroupVersionKind]string{
		{Group: "cert-manager.io", Version: "v1", Kind: "CertificateRequest"}:            "certificaterequests",
		{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"}:                     "ingresses",
		{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "Gateway"}:             "gateways",
		{Group: "certificates.k8s.io", Version: "v1", Kind: "CertificateSigningRequest"}: "certificatesigningrequests",
		{Group: "acme.cert-manager.io", Version: "v1", Kind: "Challenge"}:                "challenges",
	} {
		if m, err := known().RESTMapping(kind.GroupKind(), kind.Version); err != nil || m.Resource.Resource != want {
			t.Errorf("%v: %+v, %v", kind, m, err)
		}
	}
}

// TestCut: a column that is too narrow for anything, as on a narrow terminal, has a mark.
func TestCut(t *testing.T) {
	t.Parallel()
	for width, want := range map[int]string{-3: "…", 0: "…", 1: "…", 2: "ä…", 5: "äöüßé", 6: "äöüßé"} {
		if got := Cut("äöüßé", width); got != want {
			t.Errorf("%d: %q, want %q", width, got, want)
		}
	}
	if got := Cut("", -1); got != "" {
		t.Errorf("of nothing, %q is left", got)
	}
}
