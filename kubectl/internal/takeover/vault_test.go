package takeover

import (
	"strings"
	"testing"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/cli"
	"chancery.dev/internal/rig/slow"
)

// TestOwnTokens: issuers that log in to Vault with tokens of the controller's own service account keep the right to
// them, and check says for which audience they are. Without such issuers the right goes.
func TestOwnTokens(t *testing.T) {
	t.Parallel()
	slow.Test(t, slow.Takeover)
	o := newOriginal(t)
	run := &runner{cluster: cluster{o.client}, record: &record{Image: ourImage}, in: &installation{switches: cli.SwitchesOf(false, []string{"--cluster-resource-namespace=" + home}, nil)}}
	keeps := func(want bool) {
		t.Helper()
		if i, err := run.installation(t.Context()); err != nil || i.OwnTokens != want {
			t.Errorf("the right is kept: %t, %v", i.OwnTokens, err)
		}
	}
	by := func(name string, auth certmanagerv1.VaultAuth) certmanagerv1.IssuerSpec {
		return certmanagerv1.IssuerSpec{Vault: &certmanagerv1.VaultIssuer{Server: "https://vault.example.com", Path: "pki/sign/" + name, Auth: auth}}
	}
	kubernetes := func(ref *acmev1.ServiceAccountRef) certmanagerv1.VaultAuth {
		return certmanagerv1.VaultAuth{Kubernetes: &certmanagerv1.VaultKubernetesAuth{Role: "r", ServiceAccountRef: ref}}
	}
	o.create(&certmanagerv1.Issuer{ObjectMeta: objectMeta("default", "own-name-elsewhere"), Spec: by("a", kubernetes(&acmev1.ServiceAccountRef{Name: controllerName}))})
	o.create(&certmanagerv1.ClusterIssuer{ObjectMeta: objectMeta("", "other"), Spec: by("b", kubernetes(&acmev1.ServiceAccountRef{Name: "vault"}))})
	keeps(false)
	if said := o.reported(0, "--image="+ourImage).about(aboutVault); said != "" {
		t.Error(said)
	}
	o.create(&certmanagerv1.ClusterIssuer{ObjectMeta: objectMeta("", "own"), Spec: by("c", kubernetes(&acmev1.ServiceAccountRef{Name: controllerName}))})
	keeps(true)
	o.create(&certmanagerv1.Issuer{ObjectMeta: objectMeta(home, "asks"), Spec: by("d", kubernetes(&acmev1.ServiceAccountRef{Name: controllerName, TokenAudiences: []string{"vault"}}))})
	said := o.reported(2, "--image="+ourImage).about(aboutVault)
	for _, want := range []string{"note issuers have tokens", "Issuer " + home + "/asks", "red issuers ask for further audiences"} {
		if !strings.Contains(said, want) {
			t.Errorf("check does not say %q, but:\n%s", want, said)
		}
	}
	o.reported(0, "--image="+ourImage, "--accept=vault")
}
