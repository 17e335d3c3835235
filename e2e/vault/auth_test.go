package vault_test

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/e2e/vault"
)

// Vault knows a client by its certificate, shown in the TLS handshake.
func TestClientCertificate(t *testing.T) {
	s := newScene(t)
	clients := vault.NewAuthority(t, "clients")
	s.vault.Put("sys/auth/cert", map[string]any{"type": "cert"})
	s.vault.Put("auth/cert/certs/web", map[string]any{"certificate": string(clients.PEM()), "allowed_common_names": "chancery", "token_policies": "sign"})
	pair := func(name, commonName string) {
		cert, key := clients.Pair(t, commonName)
		s.secret(name, map[string]string{"tls.crt": string(cert), "tls.key": string(key)})
	}
	pair("good", "chancery")
	pair("stranger", "stranger")
	secure := func(change func(*certmanagerv1.VaultIssuer)) certmanagerv1.IssuerSpec {
		return s.spec(func(v *certmanagerv1.VaultIssuer) {
			v.Server, v.CABundle, v.Auth.ClientCertificate = s.vault.TLSAddress, s.vault.CA, &certmanagerv1.VaultClientCertificateAuth{}
			change(v)
		})
	}
	own := secure(func(v *certmanagerv1.VaultIssuer) {
		v.Auth.ClientCertificate.SecretName, v.Auth.ClientCertificate.Name = "good", "web"
	})
	s.issued(s.ask("own", s.issuer("own", own)))
	s.issued(s.ask("connection", s.issuer("connection", secure(func(v *certmanagerv1.VaultIssuer) {
		v.ClientCertSecretRef, v.ClientKeySecretRef = &cmmeta.SecretKeySelector{Name: "good"}, &cmmeta.SecretKeySelector{Name: "good"}
		v.Auth.ClientCertificate.Path = "/v1/auth/cert"
	}))))
	stranger := &certmanagerv1.Issuer{ObjectMeta: named("stranger"), Spec: secure(func(v *certmanagerv1.VaultIssuer) { v.Auth.ClientCertificate.SecretName = "stranger" })}
	s.Create(t, stranger)
	s.awaitIssuer(stranger, cmmeta.ConditionFalse, "refused to log in by clientCertificate")
}

// token asks the API server for a token of a service account, as its administrator.
func (s *scene) token(account string) string {
	s.t.Helper()
	seconds := int64(3600)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: account}}
	if err := s.Client.SubResource("token").Create(s.t.Context(), sa, request); err != nil {
		s.t.Fatal(err)
	}
	return request.Status.Token
}

// reviewed makes Vault ask our API server who a token is of, and trust a service account.
func (s *scene) reviewed() {
	s.t.Helper()
	s.Create(s.t,
		&corev1.ServiceAccount{ObjectMeta: named("reviewer")},
		&corev1.ServiceAccount{ObjectMeta: named("signer")},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: named(s.ClusterName("reviewer")),
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:auth-delegator"},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: s.Namespace, Name: "reviewer"}},
		})
	s.vault.Put("sys/auth/kubernetes", map[string]any{"type": "vault-plugin-auth-kubernetes"})
	s.vault.Put("auth/kubernetes/config", map[string]any{
		"kubernetes_host": s.Admin.Host, "kubernetes_ca_cert": string(s.Admin.CAData), "token_reviewer_jwt": s.token("reviewer"), "disable_local_ca_jwt": true,
	})
}

func (s *scene) trust(role, audience string) {
	s.t.Helper()
	s.vault.Put("auth/kubernetes/role/"+role, map[string]any{
		"bound_service_account_names": "signer", "bound_service_account_namespaces": s.Namespace, "audience": audience, "token_policies": "sign",
	})
}

// Vault knows a service account by its token, which it has our API server review. A
// bound token is good for this issuer and this server alone.
func TestKubernetes(t *testing.T) {
	s := newScene(t)
	s.reviewed()
	s.trust("bound", "vault://"+s.Namespace+"/bound")
	s.trust("cluster", "vault://"+s.ClusterName("bound"))
	s.trust("kept", "")
	by := func(auth certmanagerv1.VaultKubernetesAuth) certmanagerv1.IssuerSpec {
		return s.spec(func(v *certmanagerv1.VaultIssuer) { v.Auth.Kubernetes = &auth })
	}
	s.secret("jwt", map[string]string{"token": s.token("signer")})
	s.issued(s.ask("kept", s.issuer("kept", by(certmanagerv1.VaultKubernetesAuth{Role: "kept", SecretRef: cmmeta.SecretKeySelector{Name: "jwt"}}))))

	ref := &acmev1.ServiceAccountRef{Name: "signer"}
	bound := &certmanagerv1.Issuer{ObjectMeta: named("bound"), Spec: by(certmanagerv1.VaultKubernetesAuth{Role: "bound", ServiceAccountRef: ref})}
	s.Create(t, bound)
	s.awaitIssuer(bound, cmmeta.ConditionFalse, "grant the controller's service account create on serviceaccounts/token")
	s.grantTokens("signer")
	s.update(bound, func(v *certmanagerv1.VaultIssuer) {
		v.Auth.Kubernetes.ServiceAccountRef.TokenAudiences = []string{"extra"}
	})
	s.awaitIssuer(bound, cmmeta.ConditionTrue, "Vault verified")
	s.issued(s.ask("bound", bound))
	s.sign("csr", s.clusterIssuer("bound", by(certmanagerv1.VaultKubernetesAuth{Role: "cluster", ServiceAccountRef: ref})))

	thief := &certmanagerv1.Issuer{ObjectMeta: named("thief"), Spec: by(certmanagerv1.VaultKubernetesAuth{Role: "bound", ServiceAccountRef: ref})}
	s.Create(t, thief)
	s.awaitIssuer(thief, cmmeta.ConditionFalse, "refused to log in by kubernetes (403)")
}

// grantTokens lets the controller ask for tokens of a service account.
func (s *scene) grantTokens(account string) {
	s.t.Helper()
	s.Create(s.t,
		&rbacv1.Role{ObjectMeta: named("tokens"), Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, ResourceNames: []string{account}, Verbs: []string{"create"},
		}}},
		&rbacv1.RoleBinding{
			ObjectMeta: named("tokens"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "tokens"},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "cert-manager", Name: "cert-manager"}},
		})
}

// This edition of Vault has no namespace but its root, and does not mind whoever names
// another: as far as it allows, the header is no obstacle. What is sent is checked by
// the signer's own tests.
func TestNamespace(t *testing.T) {
	s := newScene(t)
	token := s.byToken("sign")
	issuer := &certmanagerv1.Issuer{ObjectMeta: named("v"), Spec: s.spec(func(v *certmanagerv1.VaultIssuer) { token(v); v.Namespace = "team" })}
	s.Create(t, issuer)
	s.issued(s.ask("cr", issuer))
}
