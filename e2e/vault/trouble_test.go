package vault_test

import (
	"testing"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
)

const (
	pending = certmanagerv1.CertificateRequestReasonPending
	failed  = certmanagerv1.CertificateRequestReasonFailed
)

// A sealed Vault fails nothing: issuers and requests wait, and go on once it is unsealed.
func TestSealedThenUnsealed(t *testing.T) {
	s := newScene(t)
	early := s.issuer("early", s.spec(s.byToken("sign")))
	s.vault.Seal()
	late := &certmanagerv1.Issuer{ObjectMeta: named("late"), Spec: early.Spec}
	s.Create(t, late)
	s.awaitIssuer(late, cmmeta.ConditionFalse, "is sealed: unseal it")
	one, two := s.ask("one", early), s.ask("two", late)
	s.awaitRequest(one, pending, "is sealed: unseal it")
	s.awaitRequest(two, pending, `Issuer "late" is not ready`)
	s.vault.Unseal()
	s.awaitIssuer(late, cmmeta.ConditionTrue, "Vault verified")
	s.issued(one)
	s.issued(two)
}

// A policy that is too narrow is said, and mended by another token in the same Secret.
func TestPermissionDenied(t *testing.T) {
	s := newScene(t)
	issuer := s.issuer("v", s.spec(s.byToken("default")))
	cr := s.ask("cr", issuer)
	s.awaitRequest(cr, pending, `does not let this issuer sign at "pki_int/sign/web" (403)`)
	s.awaitRequest(cr, pending, "permission denied")
	s.byToken("sign")
	s.issued(cr)
}

// A path that does not sign is said, and mended in the issuer.
func TestPathMissing(t *testing.T) {
	s := newScene(t)
	s.vault.Put("sys/policies/acl/wide", map[string]any{"policy": `path "*" { capabilities = ["update"] }`})
	for name, c := range map[string]struct{ path, says string }{
		"mount":  {"nowhere/sign/web", `does not sign at "nowhere/sign/web" (404)`},
		"role":   {"pki_int/sign/none", "unknown role: none"},
		"engine": {"pki_int/nonsense", `does not sign at "pki_int/nonsense" (40`},
	} {
		spec := s.spec(s.byToken("wide"))
		spec.Vault.Path = c.path
		issuer := s.issuer(name, spec)
		cr := s.ask(name, issuer)
		s.awaitRequest(cr, pending, c.says)
		s.update(issuer, func(v *certmanagerv1.VaultIssuer) { v.Path = "pki_int/sign/web" })
		s.issued(cr)
	}
}

// What a role does not allow fails for good, with Vault's own words.
func TestRejected(t *testing.T) {
	s := newScene(t)
	spec := s.spec(s.byToken("sign"))
	spec.Vault.Path = "pki_int/sign/narrow"
	cr := s.ask("cr", s.issuer("v", spec))
	s.awaitRequest(cr, failed, "will not sign this request: common name cr.example.com not allowed by this role")
	if cr.Status.FailureTime == nil {
		t.Error("no failureTime")
	}
}

// A Secret that is not there yet is waited for.
func TestSecretMissing(t *testing.T) {
	s := newScene(t)
	issuer := &certmanagerv1.Issuer{ObjectMeta: named("v"), Spec: s.spec(func(v *certmanagerv1.VaultIssuer) {
		v.Auth.TokenSecretRef = &cmmeta.SecretKeySelector{Name: "token"}
	})}
	s.Create(t, issuer)
	s.awaitIssuer(issuer, cmmeta.ConditionFalse, "/token does not exist: create it")
	cr := s.ask("cr", issuer)
	s.awaitRequest(cr, pending, "token does not exist")
	s.byToken("sign")
	s.issued(cr)
}

func TestSeveralAuthMethods(t *testing.T) {
	s := newScene(t)
	token, role := s.byToken("sign"), s.byAppRole(map[string]any{"token_policies": "sign"})
	issuer := &certmanagerv1.Issuer{ObjectMeta: named("v"), Spec: s.spec(func(v *certmanagerv1.VaultIssuer) { token(v); role(v) })}
	s.Create(t, issuer)
	s.awaitIssuer(issuer, cmmeta.ConditionFalse, "tokenSecretRef and appRole are set together: keep one of them")
	s.update(issuer, func(v *certmanagerv1.VaultIssuer) { v.Auth.TokenSecretRef = nil })
	s.awaitIssuer(issuer, cmmeta.ConditionTrue, "Vault verified")
}

// Vault's own certificate: without its CA nothing is said to it, and a changed Secret
// is noticed.
func TestCABundle(t *testing.T) {
	s := newScene(t)
	other := string(s.root)
	s.secret("bundle", map[string]string{"ca.crt": other})
	token := s.byToken("sign")
	issuer := &certmanagerv1.Issuer{ObjectMeta: named("v"), Spec: s.spec(func(v *certmanagerv1.VaultIssuer) {
		token(v)
		v.Server, v.CABundleSecretRef = s.vault.TLSAddress, &cmmeta.SecretKeySelector{Name: "bundle"}
	})}
	s.Create(t, issuer)
	s.awaitIssuer(issuer, cmmeta.ConditionFalse, "its certificate cannot be verified: x509: certificate signed by unknown authority")
	s.secret("bundle", map[string]string{"ca.crt": string(s.vault.CA)})
	s.awaitIssuer(issuer, cmmeta.ConditionTrue, "Vault verified")
	s.issued(s.ask("cr", issuer))
	s.update(issuer, func(v *certmanagerv1.VaultIssuer) { v.CABundleSecretRef, v.CABundle = nil, []byte(other) })
	s.awaitIssuer(issuer, cmmeta.ConditionFalse, "set spec.vault.caBundle or caBundleSecretRef to the CA of the server")
	s.update(issuer, func(v *certmanagerv1.VaultIssuer) { v.CABundle, v.ServerName = s.vault.CA, "elsewhere.example.com" })
	s.awaitIssuer(issuer, cmmeta.ConditionFalse, "not elsewhere.example.com")
	s.update(issuer, func(v *certmanagerv1.VaultIssuer) { v.ServerName = "vault.example.com" })
	s.awaitIssuer(issuer, cmmeta.ConditionTrue, "Vault verified")
}
