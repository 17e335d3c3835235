package broken_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/rig"
)

// serverRows are about issuers whose server, account or controller is elsewhere.
func serverRows() map[string]row {
	return map[string]row{
		"issuer-trust": {class: cause.IssuerNotReady, says: "by an unknown CA: put the certificate of that CA into spec.acme.caBundle", cure: "caBundle",
			make: func(s *scene) {
				spec := s.acme(byHTTP(false))
				spec.ACME.CABundle = nil
				s.issuer(spec)
				s.certificate("trust.example.com", nil)
			},
			mend: func(s *scene) {
				s.amendIssuer(func(spec *certmanagerv1.IssuerSpec) { spec.ACME.CABundle = s.ca.TLSBundle })
			}},
		"issuer-page": {class: cause.IssuerNotReady, says: "is this the URL of an ACME v2 directory?", cure: "server",
			make: func(s *scene) {
				spec := s.acme(byHTTP(false))
				spec.ACME.Server = s.front()
				s.issuer(spec)
				s.certificate("front.example.com", nil)
			},
			mend: func(s *scene) {
				s.amendIssuer(func(spec *certmanagerv1.IssuerSpec) { spec.ACME.Server = s.ca.DirectoryURL })
			}},
		"issuer-binding-wrong": {class: cause.IssuerNotReady, says: "does not take the external account binding: store the key that the CA gave for the key ID", cure: "externalAccountBinding",
			make: func(s *scene) {
				s.create(&corev1.Secret{ObjectMeta: named(s.name), StringData: map[string]string{"key": strings.Repeat("d3Jvbmct", 8)}})
				spec := s.acme(byHTTP(false))
				spec.ACME.Server, spec.ACME.CABundle = s.bound.DirectoryURL, s.bound.TLSBundle
				spec.ACME.ExternalAccountBinding = &acmev1.ACMEExternalAccountBinding{KeyID: "kid", KeySecretRef: cmmeta.SecretKeySelector{Name: s.name, Key: "key"}}
				s.issuer(spec)
				s.certificate("wrong.example.com", nil)
			},
			mend: func(s *scene) {
				amend(s, &corev1.Secret{}, s.name, func(secret *corev1.Secret) { secret.Data = map[string][]byte{"key": []byte(bindingKey)} })
			}},
		"account-deactivated": {class: cause.IssuerNotReady, says: "the account of this key is closed at the ACME server: delete the Secret", cure: "account-deactivated-account", quick: true,
			make: func(s *scene) { s.issuer(s.acme(s.byDNS("tsig"))) },
			then: func(s *scene) {
				if err := s.ca.Deactivate(s.account()); err != nil {
					s.t.Fatal(err)
				}
				s.certificate("deactivated.example.com", nil)
			},
			mend: func(s *scene) {
				secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.space, Name: s.name + "-account"}}
				if err := s.Client.Delete(s.t.Context(), secret); err != nil {
					s.t.Fatal(err)
				}
			}},
		"vault-role": {class: cause.Class(fault.ClassNotFound), says: "unknown role: wed: correct spec.vault.path, or create the role", cure: "Correct the path", quick: true,
			make: func(s *scene) {
				s.create(&corev1.Secret{ObjectMeta: named(s.name), StringData: map[string]string{"token": "hvs.story"}})
				s.issuer(certmanagerv1.IssuerSpec{Vault: &certmanagerv1.VaultIssuer{Server: s.vault(), Path: "pki/sign/wed", Auth: certmanagerv1.VaultAuth{
					TokenSecretRef: &cmmeta.SecretKeySelector{Name: s.name, Key: "token"},
				}}})
				s.certificate("vault.example.com", nil)
			},
			mend: func(s *scene) {
				s.amendIssuer(func(spec *certmanagerv1.IssuerSpec) { spec.Vault.Path = "pki/sign/web" })
			}},
		"external-silent": {class: cause.NoController, says: `of the group "awspca.cert-manager.io", another controller's`, cure: `the controller of the group "awspca.cert-manager.io"`, quick: true,
			make: func(s *scene) {
				s.installKind("AWSPCAClusterIssuer.awspca.cert-manager.io", "awspcaclusterissuers Cluster")
				s.certificate("external.example.com", func(crt *certmanagerv1.Certificate) {
					crt.Spec.IssuerRef = cmmeta.IssuerReference{Name: "root", Kind: "AWSPCAClusterIssuer", Group: "awspca.cert-manager.io"}
				})
			},
			then: func(s *scene) { s.verdict("approve") },
			mend: func(s *scene) { s.answer() }},
	}
}

// account waits until the issuer of the scene has an account, and returns its address.
func (s *scene) account() (address string) {
	s.t.Helper()
	issuer := &certmanagerv1.Issuer{}
	rig.Eventually(s.t, "the issuer has an account", func(ctx context.Context) string {
		if err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.space, Name: s.name}, issuer); err != nil {
			return err.Error()
		}
		if !certmanagerv1.HasIssuerCondition(issuer.Status.Conditions, certmanagerv1.IssuerConditionReady, cmmeta.ConditionTrue) {
			return "it is not ready"
		}
		return ""
	})
	return issuer.Status.ACME.URI
}

// installKind has requests to a kind of external issuer be approved, as the controller does once its definition is
// installed.
func (s *scene) installKind(kind, entry string) {
	s.t.Helper()
	table := func(ctx context.Context, entry any) error {
		patch, err := json.Marshal(map[string]any{"data": map[string]any{kind: entry}})
		if err != nil {
			return err
		}
		known := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "cert-manager", Name: "chancery-external-issuers"}}
		return s.Client.Patch(ctx, known, client.RawPatch(types.MergePatchType, patch))
	}
	if err := table(s.t.Context(), entry); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = table(context.Background(), nil) })
}

// answer does what the controller of the scene's issuer would do if it were there.
func (s *scene) answer() {
	s.t.Helper()
	cr := &certmanagerv1.CertificateRequest{}
	if err := s.Client.Get(s.t.Context(), client.ObjectKey{Namespace: s.space, Name: s.name + "-1"}, cr); err != nil {
		s.t.Fatal(err)
	}
	signed, err := sign(cr.Spec.Request, good(s.t, "external"))
	if err != nil {
		s.t.Fatal(err)
	}
	cr.Status.Certificate = signed
	certmanagerv1.SetCertificateRequestCondition(cr, certmanagerv1.CertificateRequestCondition{
		Type: certmanagerv1.CertificateRequestConditionReady, Status: cmmeta.ConditionTrue, Reason: certmanagerv1.CertificateRequestReasonIssued,
	}, time.Now())
	if err := s.Client.Status().Update(s.t.Context(), cr); err != nil {
		s.t.Fatal(err)
	}
}

// placeRows are about what is looked for in another place than where it is.
func placeRows() map[string]row {
	return map[string]row{
		"issuer-namespace": {class: cause.IssuerNotReady, says: "issuer-namespace-ca does not exist", cure: "in the cluster resource namespace", alone: true,
			make: func(s *scene) {
				s.create(good(s.t, "issuer-namespace-ca"), &certmanagerv1.ClusterIssuer{ObjectMeta: named(s.ClusterName("namespace")), Spec: byCA("issuer-namespace-ca")})
				s.certificate("namespace.example.com", func(crt *certmanagerv1.Certificate) {
					crt.Spec.IssuerRef = cmmeta.IssuerReference{Name: s.ClusterName("namespace"), Kind: cmmeta.ClusterIssuerKind}
				})
			},
			mend: func(s *scene) { s.Create(s.t, good(s.t, "issuer-namespace-ca")) }},
		"ingress-issuer": {class: cause.IssuerMissing, says: "does not exist", cure: "annotation cert-manager.io/issuer of Ingress ingress-issuer",
			make: func(s *scene) {
				s.create(&networkingv1.Ingress{
					ObjectMeta: metav1.ObjectMeta{
						Name: s.name, Annotations: map[string]string{"cert-manager.io/issuer": "god"}, Labels: map[string]string{story: s.Namespace},
					},
					Spec: networkingv1.IngressSpec{
						DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}},
						TLS:            []networkingv1.IngressTLS{{Hosts: []string{"ingress.example.com"}, SecretName: s.name}},
					},
				})
			},
			mend: func(s *scene) {
				amend(s, &networkingv1.Ingress{}, s.name, func(i *networkingv1.Ingress) { i.Annotations["cert-manager.io/issuer"] = "good" })
			}},
		"ca-depth": {class: cause.Class(fault.ClassPolicy), says: "the path length of the CA certificate", cure: "Ask for what the CA's policy allows",
			make: func(s *scene) {
				s.create(authority(s.t, "ca-depth-ca", time.Now().Add(300*24*time.Hour), true, func(c *x509.Certificate) { c.MaxPathLenZero = true }))
				s.issuer(byCA("ca-depth-ca"))
				s.certificate("depth.example.com", func(crt *certmanagerv1.Certificate) { crt.Spec.IsCA = true })
			},
			mend: func(s *scene) {
				amend(s, &corev1.Secret{}, "ca-depth-ca", func(secret *corev1.Secret) { secret.Data = good(s.t, "ca-depth-ca").Data })
			}},
		"dns-servfail": {class: cause.Class(fault.ClassSolver), says: "SERVFAIL", cure: "dig",
			make: ofACME("www."+strings.TrimSuffix(failing, "."), byTSIG),
			mend: func(s *scene) { s.dns.Fail(failing, false) }},
		"dns-alias": {class: cause.Class(fault.ClassSelfCheck), says: "_acme-challenge.alias.example.com. is an alias (CNAME) of alias.aliases.test.", cure: "cnameStrategy: Follow", quick: true,
			make: ofACME("alias.example.com", byTSIG),
			mend: func(s *scene) {
				s.amendIssuer(func(spec *certmanagerv1.IssuerSpec) {
					spec.ACME.Solvers[0].DNS01.CNAMEStrategy = acmev1.CNAMEStrategyFollow
				})
			}},
	}
}
