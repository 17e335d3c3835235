package signer

import (
	"slices"
	"testing"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
)

// A Secret that an issuer names and this list forgets would be read once and never again.
func TestVenafiSecretNames(t *testing.T) {
	credentials := cmmeta.LocalObjectReference{Name: "credentials"}
	for _, c := range []struct {
		spec certmanagerv1.VenafiIssuer
		want []string
	}{
		{certmanagerv1.VenafiIssuer{TPP: &certmanagerv1.VenafiTPP{CredentialsRef: credentials}}, []string{"credentials"}},
		{certmanagerv1.VenafiIssuer{TPP: &certmanagerv1.VenafiTPP{
			CredentialsRef: credentials, CABundleSecretRef: &cmmeta.SecretKeySelector{Name: "bundle"},
		}}, []string{"credentials", "bundle"}},
		{certmanagerv1.VenafiIssuer{Cloud: &certmanagerv1.VenafiCloud{APITokenSecretRef: cmmeta.SecretKeySelector{Name: "key"}}}, []string{"key"}},
		{certmanagerv1.VenafiIssuer{NGTS: &certmanagerv1.VenafiNGTS{CredentialsRef: credentials}}, []string{"credentials"}},
		{certmanagerv1.VenafiIssuer{}, nil},
	} {
		if got := SecretNames(&certmanagerv1.IssuerSpec{Venafi: &c.spec}); !slices.Equal(got, c.want) {
			t.Errorf("%+v names %v, want %v", c.spec, got, c.want)
		}
	}
}

func TestVaultSecretNames(t *testing.T) {
	ref := func(name string) *cmmeta.SecretKeySelector { return &cmmeta.SecretKeySelector{Name: name} }
	for _, c := range []struct {
		spec certmanagerv1.VaultIssuer
		want []string
	}{
		{certmanagerv1.VaultIssuer{}, nil},
		{certmanagerv1.VaultIssuer{
			CABundleSecretRef: ref("bundle"), ClientCertSecretRef: ref("cert"), ClientKeySecretRef: ref("key"),
			Auth: certmanagerv1.VaultAuth{TokenSecretRef: ref("token")},
		}, []string{"bundle", "cert", "key", "token"}},
		{certmanagerv1.VaultIssuer{Auth: certmanagerv1.VaultAuth{AppRole: &certmanagerv1.VaultAppRole{SecretRef: *ref("id")}}}, []string{"id"}},
		{certmanagerv1.VaultIssuer{Auth: certmanagerv1.VaultAuth{ClientCertificate: &certmanagerv1.VaultClientCertificateAuth{SecretName: "pair"}}}, []string{"pair"}},
		{certmanagerv1.VaultIssuer{Auth: certmanagerv1.VaultAuth{ClientCertificate: &certmanagerv1.VaultClientCertificateAuth{}}}, nil},
		{certmanagerv1.VaultIssuer{Auth: certmanagerv1.VaultAuth{Kubernetes: &certmanagerv1.VaultKubernetesAuth{SecretRef: *ref("jwt")}}}, []string{"jwt"}},
		{certmanagerv1.VaultIssuer{Auth: certmanagerv1.VaultAuth{Kubernetes: &certmanagerv1.VaultKubernetesAuth{}}}, nil},
	} {
		if got := SecretNames(&certmanagerv1.IssuerSpec{Vault: &c.spec}); !slices.Equal(got, c.want) {
			t.Errorf("%+v names %v, want %v", c.spec, got, c.want)
		}
	}
}
