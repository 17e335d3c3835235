package vault_test

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/e2e/vault"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/signer/conformance"
)

const ready = certmanagerv1.CertificateRequestConditionReady

// scene is a Vault with a PKI engine, and controllers on the shared API server.
type scene struct {
	*rig.World

	t     *testing.T
	vault *vault.Server
	root  []byte
}

func newScene(t *testing.T) *scene {
	t.Helper()
	t.Parallel()
	s := &scene{World: rig.NewWorld(t), t: t, vault: vault.Start(t)}
	s.root = s.vault.MountPKI()
	s.Run(t, s.Config())
	return s
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// spec returns a Vault issuer that signs by the role web, and logs in as change says.
func (s *scene) spec(change func(*certmanagerv1.VaultIssuer)) certmanagerv1.IssuerSpec {
	v := &certmanagerv1.VaultIssuer{Server: s.vault.Address, Path: "pki_int/sign/web"}
	change(v)
	return certmanagerv1.IssuerSpec{Vault: v}
}

// secret makes a Secret, or changes it.
func (s *scene) secret(name string, data map[string]string) {
	s.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.Namespace}, StringData: data}
	err := s.Client.Create(s.t.Context(), secret)
	if client.IgnoreAlreadyExists(err) != nil {
		s.t.Fatal(err)
	}
	if err != nil {
		if err := s.Client.Patch(s.t.Context(), secret, client.Merge); err != nil {
			s.t.Fatal(err)
		}
	}
}

// byToken logs in with a token of these policies, from a Secret.
func (s *scene) byToken(policies ...string) func(*certmanagerv1.VaultIssuer) {
	s.t.Helper()
	s.secret("token", map[string]string{"token": s.vault.Token(policies...)})
	return func(v *certmanagerv1.VaultIssuer) { v.Auth.TokenSecretRef = &cmmeta.SecretKeySelector{Name: "token"} }
}

// awaitIssuer waits until the condition Ready of an issuer is status, with a message
// that contains says.
func (s *scene) awaitIssuer(issuer certmanagerv1.GenericIssuer, status cmmeta.ConditionStatus, says string) {
	s.t.Helper()
	into := issuer.DeepCopyObject().(certmanagerv1.GenericIssuer)
	rig.Eventually(s.t, fmt.Sprintf("issuer %s is ready: %s, saying %q", issuer.GetName(), status, says), func(ctx context.Context) string {
		if err := s.Get(ctx, issuer.GetName(), into.(client.Object)); err != nil {
			return err.Error()
		}
		c := certmanagerv1.FindIssuerCondition(into.GetStatus().Conditions, certmanagerv1.IssuerConditionReady)
		if c == nil || c.ObservedGeneration != into.GetGeneration() || c.Status != status || !strings.Contains(c.Message, says) {
			return fmt.Sprintf("%+v", c)
		}
		want := certmanagerv1.IssuerReasonVaultVerified
		if status != cmmeta.ConditionTrue {
			want = certmanagerv1.IssuerReasonVaultError
		}
		if c.Reason != want {
			s.t.Fatalf("reason %s, want %s", c.Reason, want)
		}
		return ""
	})
}

func template(name string) pki.CSRTemplate {
	return pki.CSRTemplate{
		Subject: pkix.Name{CommonName: name + ".example.com"},
		AltNames: pki.AltNames{
			DNSNames: []string{name + ".example.com", "alt.example.com"}, IPAddresses: []string{"10.1.2.3"}, URIs: []string{"spiffe://cluster/" + name},
		},
	}
}

// ask makes a CertificateRequest for an issuer.
func (s *scene) ask(name string, issuer certmanagerv1.GenericIssuer) *certmanagerv1.CertificateRequest {
	s.t.Helper()
	kind := certmanagerv1.IssuerKind
	if _, ok := issuer.(*certmanagerv1.ClusterIssuer); ok {
		kind = certmanagerv1.ClusterIssuerKind
	}
	_, csr := vault.NewRequest(s.t, pki.ECDSA, template(name))
	cr := &certmanagerv1.CertificateRequest{ObjectMeta: named(name), Spec: certmanagerv1.CertificateRequestSpec{
		Request: csr, Duration: &metav1.Duration{Duration: 36 * time.Hour},
		IssuerRef: cmmeta.IssuerReference{Name: issuer.GetName(), Kind: kind},
	}}
	s.Create(s.t, cr)
	return cr
}

// awaitRequest waits until a CertificateRequest is Ready for a reason, with a message
// that contains says.
func (s *scene) awaitRequest(cr *certmanagerv1.CertificateRequest, reason, says string) {
	s.t.Helper()
	rig.Eventually(s.t, fmt.Sprintf("CertificateRequest %s is %s, saying %q", cr.Name, reason, says), func(ctx context.Context) string {
		if err := s.Get(ctx, cr.Name, cr); err != nil {
			return err.Error()
		}
		c := certmanagerv1.FindCertificateRequestCondition(cr.Status.Conditions, ready)
		if c == nil || c.Reason != reason || !strings.Contains(c.Message, says) {
			return fmt.Sprintf("%+v", cr.Status.Conditions)
		}
		return ""
	})
}

// issued waits for a CertificateRequest's certificate and verifies it.
func (s *scene) issued(cr *certmanagerv1.CertificateRequest) {
	s.t.Helper()
	s.awaitRequest(cr, certmanagerv1.CertificateRequestReasonIssued, "")
	s.verify(cr.Name, cr.Spec.Request, cr.Status.Certificate)
	if string(cr.Status.CA) != string(s.root) {
		s.t.Errorf("CertificateRequest %s: CA\n%swant the root\n%s", cr.Name, cr.Status.CA, s.root)
	}
}

// verify checks a chain: the leaf is for the request, and leads to the root by the
// intermediate CA.
func (s *scene) verify(name string, request, chain []byte) {
	s.t.Helper()
	certs, err := pki.DecodeChain(chain)
	if err != nil {
		s.t.Fatal(err)
	}
	csr, err := pki.DecodeCSR(request)
	if err != nil {
		s.t.Fatal(err)
	}
	leaf := certs[0]
	if len(certs) != 2 || certs[1].Subject.CommonName != "e2e intermediate" || !pki.PublicKeysEqual(leaf.PublicKey, csr.PublicKey) {
		s.t.Fatalf("chain of %d, first for %s: want leaf and intermediate, for the request's key", len(certs), leaf.Subject)
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(s.root)
	between.AddCert(certs[1])
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, DNSName: name + ".example.com", KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err != nil {
		s.t.Error(err)
	}
	slices.Sort(leaf.DNSNames) // Vault has an order of its own
	slices.Sort(csr.DNSNames)
	if got, want := fmt.Sprint(leaf.Subject.CommonName, leaf.DNSNames, leaf.IPAddresses, leaf.URIs), fmt.Sprint(csr.Subject.CommonName, csr.DNSNames, csr.IPAddresses, csr.URIs); got != want {
		s.t.Errorf("issued for %s, asked for %s", got, want)
	}
	if life := leaf.NotAfter.Sub(leaf.NotBefore); life < 36*time.Hour || life > 37*time.Hour {
		s.t.Errorf("valid for %s, asked for 36h", life)
	}
}

// sign makes a CertificateSigningRequest in the form of mission rule 8 and verifies what comes.
func (s *scene) sign(name string, issuer *certmanagerv1.ClusterIssuer) {
	s.t.Helper()
	_, request := vault.NewRequest(s.t, pki.RSA, template(name))
	seconds := int32(36 * 60 * 60)
	csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: named(s.ClusterName(name)), Spec: certificatesv1.CertificateSigningRequestSpec{
		Request: request, SignerName: "cert-manager.io/" + issuer.Name, ExpirationSeconds: &seconds,
		Usages: []certificatesv1.KeyUsage{certificatesv1.UsageServerAuth, certificatesv1.UsageDigitalSignature},
	}}
	s.Create(s.t, csr)
	rig.Eventually(s.t, "CertificateSigningRequest "+csr.Name+" is signed", func(ctx context.Context) string {
		if err := s.Get(ctx, csr.Name, csr); err != nil {
			return err.Error()
		}
		if len(csr.Status.Certificate) == 0 {
			return fmt.Sprintf("%+v", csr.Status.Conditions)
		}
		return ""
	})
	s.verify(name, request, csr.Status.Certificate)
}

// clusterIssuer makes a ClusterIssuer and waits until it is ready.
func (s *scene) clusterIssuer(name string, spec certmanagerv1.IssuerSpec) *certmanagerv1.ClusterIssuer {
	s.t.Helper()
	issuer := &certmanagerv1.ClusterIssuer{ObjectMeta: named(s.ClusterName(name)), Spec: spec}
	s.Create(s.t, issuer)
	s.awaitIssuer(issuer, cmmeta.ConditionTrue, "Vault verified")
	return issuer
}

// issuer makes an Issuer and waits until it is ready.
func (s *scene) issuer(name string, spec certmanagerv1.IssuerSpec) *certmanagerv1.Issuer {
	s.t.Helper()
	issuer := &certmanagerv1.Issuer{ObjectMeta: named(name), Spec: spec}
	s.Create(s.t, issuer)
	s.awaitIssuer(issuer, cmmeta.ConditionTrue, "Vault verified")
	return issuer
}

// update changes an issuer's spec.
func (s *scene) update(issuer *certmanagerv1.Issuer, change func(*certmanagerv1.VaultIssuer)) {
	s.t.Helper()
	before := issuer.DeepCopy()
	change(issuer.Spec.Vault)
	if err := s.Client.Patch(s.t.Context(), issuer, client.MergeFrom(before)); err != nil {
		s.t.Fatal(err)
	}
}

func TestBothKindsOfRequestByToken(t *testing.T) {
	s := newScene(t)
	spec := s.spec(s.byToken("sign"))
	s.issued(s.ask("cr", s.issuer("v", spec)))
	s.sign("csr", s.clusterIssuer("v", spec))
}

// The table that every type of issuer is held to. Vault's role decides on usages and
// validity, and it signs leaves.
func TestConformance(t *testing.T) {
	s := newScene(t)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.root)
	conformance.Run(t, s.World, "v", conformance.Subject{Spec: s.spec(s.byToken("sign")), Keys: []string{pki.RSA, pki.ECDSA, pki.Ed25519}, Roots: roots, Decides: true, NoCA: true})
}

// Another path of the engine signs CAs.
func TestSignsCA(t *testing.T) {
	s := newScene(t)
	s.vault.Put("sys/policies/acl/ca", map[string]any{"policy": `path "pki/root/sign-intermediate" { capabilities = ["update", "sudo"] }`})
	spec := s.spec(s.byToken("ca"))
	spec.Vault.Path = "pki/root/sign-intermediate"
	issuer := s.issuer("v", spec)
	_, csr := vault.NewRequest(t, pki.ECDSA, pki.CSRTemplate{Subject: pkix.Name{CommonName: "team CA"}, IsCA: true})
	cr := &certmanagerv1.CertificateRequest{ObjectMeta: named("ca"), Spec: certmanagerv1.CertificateRequestSpec{
		Request: csr, IsCA: true, IssuerRef: cmmeta.IssuerReference{Name: issuer.Name},
	}}
	s.Create(t, cr)
	s.awaitRequest(cr, certmanagerv1.CertificateRequestReasonIssued, "")
	chain, err := pki.DecodeChain(cr.Status.Certificate)
	if err != nil || len(chain) != 1 || !chain[0].IsCA || chain[0].Subject.CommonName != "team CA" || string(cr.Status.CA) != string(s.root) {
		t.Errorf("%v: chain of %d, first %+v, CA\n%s", err, len(chain), chain[0].Subject, cr.Status.CA)
	}
}

// A Certificate goes all the way to its Secret.
func TestCertificate(t *testing.T) {
	s := newScene(t)
	s.issuer("v", s.spec(s.byToken("sign")))
	crt := &certmanagerv1.Certificate{ObjectMeta: named("web"), Spec: certmanagerv1.CertificateSpec{
		SecretName: "web", DNSNames: []string{"web.example.com"}, IssuerRef: cmmeta.IssuerReference{Name: "v"},
	}}
	s.Create(t, crt)
	secret := &corev1.Secret{}
	rig.Eventually(t, "the Secret holds a certificate", func(ctx context.Context) string {
		if err := s.Get(ctx, "web", secret); err != nil {
			return err.Error()
		}
		if len(secret.Data["tls.crt"]) == 0 {
			return "no certificate"
		}
		return ""
	})
	if string(secret.Data["ca.crt"]) != string(s.root) {
		t.Errorf("ca.crt is\n%s", secret.Data["ca.crt"])
	}
	if chain, err := pki.DecodeChain(secret.Data["tls.crt"]); err != nil || len(chain) != 2 {
		t.Errorf("chain of %d: %v", len(chain), err)
	}
}

func (s *scene) byAppRole(role map[string]any) func(*certmanagerv1.VaultIssuer) {
	s.t.Helper()
	s.vault.Put("sys/auth/approle", map[string]any{"type": "approle"})
	s.vault.Put("auth/approle/role/web", role)
	id, _ := s.vault.Do(http.MethodGet, "auth/approle/role/web/role-id", nil)["role_id"].(string)
	secret, _ := s.vault.Put("auth/approle/role/web/secret-id", nil)["secret_id"].(string)
	s.secret("approle", map[string]string{"id": secret})
	return func(v *certmanagerv1.VaultIssuer) {
		v.Auth.AppRole = &certmanagerv1.VaultAppRole{Path: "approle", RoleID: id, SecretRef: cmmeta.SecretKeySelector{Name: "approle", Key: "id"}}
	}
}

func TestAppRole(t *testing.T) {
	s := newScene(t)
	issuer := s.issuer("v", s.spec(s.byAppRole(map[string]any{"token_policies": "sign"})))
	s.issued(s.ask("cr", issuer))
	wrong := &certmanagerv1.Issuer{ObjectMeta: named("wrong"), Spec: *issuer.Spec.DeepCopy()}
	wrong.Spec.Vault.Auth.AppRole.RoleID = "nobody"
	s.Create(t, wrong)
	s.awaitIssuer(wrong, cmmeta.ConditionFalse, "refused to log in by appRole (400): invalid role or secret ID")
}

// A token whose lease has ended, or that was revoked, is replaced by another login.
func TestLeaseEnds(t *testing.T) {
	s := newScene(t)
	issuer := s.issuer("v", s.spec(s.byAppRole(map[string]any{"token_policies": "sign", "token_ttl": "2s", "token_max_ttl": "2s"})))
	s.issued(s.ask("first", issuer))
	rig.Eventually(t, "the lease has ended", func(ctx context.Context) string {
		if n, err := s.vault.Accessors(ctx); err != nil || n > 1 {
			return fmt.Sprintf("%d tokens are good: %v", n, err)
		}
		return ""
	})
	s.issued(s.ask("after", issuer))
	s.vault.Put("auth/approle/role/web", map[string]any{"token_policies": "sign", "token_ttl": "1h", "token_max_ttl": "1h"})
	s.vault.Put("sys/leases/revoke-prefix/auth/approle/login", nil)
	s.issued(s.ask("long", issuer))
	s.vault.Put("sys/leases/revoke-prefix/auth/approle/login", nil)
	s.issued(s.ask("revoked", issuer))
}
