package v1_test

import (
	"testing"

	cmmeta "chancery.dev/api/meta/v1"
)

func TestIssuerReferenceDefaults(t *testing.T) {
	full := cmmeta.IssuerReference{Name: "ca", Kind: "Issuer", Group: "cert-manager.io"}
	for _, c := range []struct {
		ref        cmmeta.IssuerReference
		equivalent bool
		external   bool
	}{
		{cmmeta.IssuerReference{Name: "ca"}, true, false},
		{cmmeta.IssuerReference{Name: "ca", Kind: "Issuer"}, true, false},
		{cmmeta.IssuerReference{Name: "ca", Group: "cert-manager.io"}, true, false},
		{cmmeta.IssuerReference{Name: "other"}, false, false},
		{cmmeta.IssuerReference{Name: "ca", Kind: "ClusterIssuer"}, false, false},
		{cmmeta.IssuerReference{Name: "ca", Group: "example.com"}, false, true},
	} {
		if got := c.ref.Equivalent(full); got != c.equivalent || full.Equivalent(c.ref) != c.equivalent {
			t.Errorf("%+v is equivalent: %t, want %t", c.ref, got, c.equivalent)
		}
		if got := c.ref.IsExternal(); got != c.external {
			t.Errorf("%+v is external: %t, want %t", c.ref, got, c.external)
		}
	}
}

func TestNamespaceFrom(t *testing.T) {
	for kind, want := range map[string]string{"": "shop", "Issuer": "shop", "ClusterIssuer": ""} {
		if got := (cmmeta.IssuerReference{Name: "ca", Kind: kind}).NamespaceFrom("shop"); got != want {
			t.Errorf("kind %q: namespace %q, want %q", kind, got, want)
		}
	}
}

func TestKeyOr(t *testing.T) {
	if got := (cmmeta.SecretKeySelector{Name: "s"}).KeyOr("tls.key"); got != "tls.key" {
		t.Errorf("empty key: %q", got)
	}
	if got := (cmmeta.SecretKeySelector{Name: "s", Key: "k"}).KeyOr("tls.key"); got != "k" {
		t.Errorf("set key: %q", got)
	}
}
