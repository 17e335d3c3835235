package broken_test

import (
	"context"
	"crypto/x509"
	"maps"
	"os"
	"os/exec"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/rig"
)

// rows are the rows by their names.
func rows() map[string]row {
	all := map[string]row{}
	for _, some := range []map[string]row{issuerRows(), solverRows(), dnsRows(), caRows(), writeRows(), quotaRows(), secretRows(), specRows(), serverRows(), placeRows()} {
		maps.Copy(all, some)
	}
	return all
}

func byCA(secret string) certmanagerv1.IssuerSpec {
	return certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: secret}}
}

func good(t *testing.T, name string) *corev1.Secret {
	t.Helper()
	return authority(t, name, time.Now().Add(300*24*time.Hour), true)
}

// certificate makes the Certificate of the scene for a host, by an issuer that has its name, or another one.
func (s *scene) certificate(host string, change func(*certmanagerv1.Certificate)) {
	s.t.Helper()
	crt := &certmanagerv1.Certificate{
		ObjectMeta: metav1.ObjectMeta{Name: s.name, Labels: map[string]string{story: s.Namespace}},
		Spec: certmanagerv1.CertificateSpec{
			SecretName: s.name + "-tls", DNSNames: []string{host}, IssuerRef: cmmeta.IssuerReference{Name: s.name},
			PrivateKey: &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm},
		},
	}
	if change != nil {
		change(crt)
	}
	s.create(crt)
}

// byGood has a Certificate of the scene's namespace by the issuer that is in order.
func byGood(crt *certmanagerv1.Certificate) { crt.Spec.IssuerRef.Name = "good" }

// issuer makes the Issuer of the scene.
func (s *scene) issuer(spec certmanagerv1.IssuerSpec) {
	s.t.Helper()
	if spec.ACME != nil {
		spec.ACME.PrivateKey.Name = s.name + "-account"
	}
	s.create(&certmanagerv1.Issuer{ObjectMeta: named(s.name), Spec: spec})
}

// amendIssuer changes the Issuer of the scene.
func (s *scene) amendIssuer(change func(*certmanagerv1.IssuerSpec)) {
	s.t.Helper()
	amend(s, &certmanagerv1.Issuer{}, s.name, func(i *certmanagerv1.Issuer) { change(&i.Spec) })
}

// amendCertificate changes the Certificate of the scene.
func (s *scene) amendCertificate(change func(*certmanagerv1.Certificate)) {
	s.t.Helper()
	amend(s, &certmanagerv1.Certificate{}, s.name, change)
}

// ofACME is a set-up of a Certificate for a host by an issuer with solvers.
func ofACME(host string, solvers func(s *scene) []acmev1.ACMEChallengeSolver) func(s *scene) {
	return func(s *scene) {
		s.issuer(s.acme(solvers(s)...))
		s.certificate(host, nil)
	}
}

func solver(one acmev1.ACMEChallengeSolver) func(*scene) []acmev1.ACMEChallengeSolver {
	return func(*scene) []acmev1.ACMEChallengeSolver { return []acmev1.ACMEChallengeSolver{one} }
}

func byTSIG(s *scene) []acmev1.ACMEChallengeSolver {
	return []acmev1.ACMEChallengeSolver{s.byDNS("tsig")}
}

// byOwnTSIG names a Secret of the scene's own.
func byOwnTSIG(s *scene) []acmev1.ACMEChallengeSolver {
	return []acmev1.ACMEChallengeSolver{s.byDNS(s.name)}
}

// issuerRows are about issuers.
func issuerRows() map[string]row {
	return map[string]row{
		"issuer-missing": {class: cause.IssuerMissing, says: "does not exist", cure: "Create the issuer, or correct spec.issuerRef", quick: true,
			make: func(s *scene) { s.certificate("missing.example.com", nil) },
			mend: func(s *scene) { s.issuer(byCA("good-ca")) }},
		"issuer-kind": {class: cause.IssuerMissing, says: "a ClusterIssuer has that name", cure: `"kind":"ClusterIssuer"`,
			make: func(s *scene) {
				s.create(&certmanagerv1.ClusterIssuer{ObjectMeta: named(s.ClusterName("kind")), Spec: byCA("good-ca")})
				s.certificate("kind.example.com", func(crt *certmanagerv1.Certificate) { crt.Spec.IssuerRef.Name = s.ClusterName("kind") })
			},
			mend: func(s *scene) {
				s.amendCertificate(func(crt *certmanagerv1.Certificate) { crt.Spec.IssuerRef.Kind = cmmeta.ClusterIssuerKind })
			}},
		"issuer-secret": {class: cause.IssuerNotReady, says: "issuer-secret-ca", cure: "issuer-secret-ca",
			make: func(s *scene) {
				s.issuer(byCA("issuer-secret-ca"))
				s.certificate("secret.example.com", nil)
			},
			mend: func(s *scene) { s.create(good(s.t, "issuer-secret-ca")) }},
		"issuer-pair": {class: cause.IssuerNotReady, says: "is not ready", cure: "the private key that belongs to it", quick: true,
			make: func(s *scene) {
				s.create(authority(s.t, "issuer-pair-ca", time.Now().Add(300*24*time.Hour), false))
				s.issuer(byCA("issuer-pair-ca"))
				s.certificate("pair.example.com", nil)
			},
			mend: func(s *scene) {
				amend(s, &corev1.Secret{}, "issuer-pair-ca", func(secret *corev1.Secret) { secret.Data = good(s.t, "issuer-pair-ca").Data })
			}},
		"issuer-expired": {class: cause.CAExpired, says: "expired on", cure: "Put a CA certificate that is good", quick: true,
			make: func(s *scene) {
				s.create(authority(s.t, "issuer-expired-ca", time.Now().Add(-time.Hour), true))
				s.issuer(byCA("issuer-expired-ca"))
				s.certificate("expired.example.com", nil)
			},
			mend: func(s *scene) {
				amend(s, &corev1.Secret{}, "issuer-expired-ca", func(secret *corev1.Secret) { secret.Data = good(s.t, "issuer-expired-ca").Data })
				s.renew()
			}},
		"issuer-early": {class: cause.IssuerNotReady, says: "is not valid before", cure: "Put the CA's certificate",
			make: func(s *scene) {
				s.create(authority(s.t, "issuer-early-ca", time.Now().Add(400*24*time.Hour), true))
				s.issuer(byCA("issuer-early-ca"))
				s.certificate("early.example.com", nil)
			},
			mend: func(s *scene) {
				amend(s, &corev1.Secret{}, "issuer-early-ca", func(secret *corev1.Secret) { secret.Data = good(s.t, "issuer-early-ca").Data })
			}},
		"issuer-group": {class: cause.NotApproved, says: `of the group "cert-manager.oi"`, cure: "correct spec.issuerRef.group",
			make: func(s *scene) {
				s.certificate("group.example.com", func(crt *certmanagerv1.Certificate) {
					crt.Spec.IssuerRef = cmmeta.IssuerReference{Name: "good", Kind: cmmeta.DefaultIssuerKind, Group: "cert-manager.oi"}
				})
			},
			mend: func(s *scene) {
				s.amendCertificate(func(crt *certmanagerv1.Certificate) { crt.Spec.IssuerRef.Group = "" })
			}},
		"issuer-own-secret": {class: cause.SecretShared, says: "is the issuer's", cure: "another spec.secretName", quick: true,
			make: func(s *scene) {
				s.create(good(s.t, "issuer-own-secret-tls"))
				s.issuer(byCA("issuer-own-secret-tls"))
				s.certificate("own.example.com", nil)
			},
			mend: func(s *scene) {
				s.amendCertificate(func(crt *certmanagerv1.Certificate) { crt.Spec.SecretName = "own" })
			}},
		"issuer-connection": {class: cause.IssuerNotReady, says: "connection refused", cure: "Check spec.acme",
			make: func(s *scene) {
				spec := s.acme(byHTTP(false))
				spec.ACME.Server = "https://" + rig.FreeAddress(s.t).String() + "/dir"
				s.issuer(spec)
				s.certificate("connection.example.com", nil)
			},
			mend: func(s *scene) {
				s.amendIssuer(func(spec *certmanagerv1.IssuerSpec) { spec.ACME.Server = s.ca.DirectoryURL })
			}},
		"issuer-account-binding": {class: cause.IssuerNotReady, says: "xternal", cure: "externalAccountBinding",
			make: func(s *scene) {
				spec := s.acme(byHTTP(false))
				spec.ACME.Server, spec.ACME.CABundle = s.bound.DirectoryURL, s.bound.TLSBundle
				s.issuer(spec)
				s.certificate("binding.example.com", nil)
			},
			mend: func(s *scene) {
				s.create(&corev1.Secret{ObjectMeta: named("binding"), StringData: map[string]string{"key": bindingKey}})
				s.amendIssuer(func(spec *certmanagerv1.IssuerSpec) {
					spec.ACME.ExternalAccountBinding = &acmev1.ACMEExternalAccountBinding{KeyID: "kid", KeySecretRef: cmmeta.SecretKeySelector{Name: "binding", Key: "key"}}
				})
			}},
	}
}

// solverRows are about solvers of issuers.
func solverRows() map[string]row {
	return map[string]row{
		"solver-none": {class: cause.NoSolver, says: "none.example.com", cure: "Change the selectors of spec.acme.solvers", quick: true,
			make: ofACME("none.example.com", func(s *scene) []acmev1.ACMEChallengeSolver {
				one := byHTTP(true)
				one.Selector = &acmev1.CertificateDNSNameSelector{DNSZones: []string{"example.org"}}
				return []acmev1.ACMEChallengeSolver{one}
			}),
			mend: func(s *scene) {
				s.amendIssuer(func(spec *certmanagerv1.IssuerSpec) { spec.ACME.Solvers[0].Selector = nil })
			}},
		"solver-no-solvers": {class: cause.NoSolver, says: "the issuer has no solvers", cure: "Add a solver to spec.acme.solvers of the issuer",
			make: ofACME("none-at-all.example.com", func(*scene) []acmev1.ACMEChallengeSolver { return nil }),
			mend: func(s *scene) {
				s.amendIssuer(func(spec *certmanagerv1.IssuerSpec) { spec.ACME.Solvers = []acmev1.ACMEChallengeSolver{byHTTP(true)} })
			}},
		"solver-wildcard": {class: cause.NoSolver, says: "*.wild.example.com", cure: "Add a solver of the type dns01",
			make: ofACME("*.wild.example.com", solver(byHTTP(true))),
			mend: func(s *scene) {
				s.amendIssuer(func(spec *certmanagerv1.IssuerSpec) { spec.ACME.Solvers = append(spec.ACME.Solvers, s.byDNS("tsig")) })
			}},
		"solver-secret": {class: cause.IssuerNotReady, says: "solver-secret", cure: "solver-secret",
			make: ofACME("credential.example.com", byOwnTSIG),
			mend: func(s *scene) {
				s.create(&corev1.Secret{ObjectMeta: named(s.name), StringData: map[string]string{"key": tsigSecret}})
			}},
		"solver-exec": {class: cause.Class(fault.ClassConfiguration), says: "--dns01-exec-in-issuers", cure: "Move the solver to a ClusterIssuer",
			make: ofACME("exec.example.com", func(s *scene) []acmev1.ACMEChallengeSolver { return s.byProgram("program") }),
			mend: func(s *scene) { s.moveToClusterIssuer() }},
		"solver-program": {class: cause.Class(fault.ClassUnavailable), says: "dns.sock", cure: "chancery-dns",
			make: func(s *scene) {
				spec := s.acme(s.byProgram("dnsupdate")...)
				spec.ACME.PrivateKey.Name = "program-account"
				s.create(&corev1.Secret{ObjectMeta: named("dnsupdate"), StringData: map[string]string{"DNSUPDATE_NAMESERVER": s.dns.Addr()}})
				s.create(&certmanagerv1.ClusterIssuer{ObjectMeta: named(s.ClusterName("program")), Spec: spec})
				s.certificate("program.example.com", func(crt *certmanagerv1.Certificate) {
					crt.Spec.IssuerRef = cmmeta.IssuerReference{Name: s.ClusterName("program"), Kind: cmmeta.ClusterIssuerKind}
				})
			},
			mend: func(s *scene) { s.install() }},
		"solver-webhook-rights": {class: cause.Class(fault.ClassCredential), says: "may not create", cure: "right to create mine",
			make: func(s *scene) {
				s.installWebhook(s.Namespace + ".rights.example.com")
				ofACME("rights.example.com", func(s *scene) []acmev1.ACMEChallengeSolver { return byWebhook(s.Namespace + ".rights.example.com") })(s)
			},
			mend: func(s *scene) { s.allowWebhook(s.Namespace + ".rights.example.com") }},
		"solver-webhook-missing": {class: cause.Class(fault.ClassUnavailable), says: "the API server does not serve it", cure: "Check that the webhook is installed",
			make: func(s *scene) {
				s.allowWebhook(s.Namespace + ".missing.example.com")
				ofACME("webhook.example.com", func(s *scene) []acmev1.ACMEChallengeSolver { return byWebhook(s.Namespace + ".missing.example.com") })(s)
			},
			mend: func(s *scene) { s.installWebhook(s.Namespace + ".missing.example.com") }},
	}
}

func byWebhook(group string) []acmev1.ACMEChallengeSolver {
	return []acmev1.ACMEChallengeSolver{{DNS01: &acmev1.DNS01Solver{Webhook: &acmev1.WebhookProvider{GroupName: group, SolverName: "mine"}}}}
}

// byProgram is a solver that runs chancery-dns.
func (s *stage) byProgram(provider string) []acmev1.ACMEChallengeSolver {
	return []acmev1.ACMEChallengeSolver{{DNS01: &acmev1.DNS01Solver{Exec: &acmev1.ExecProvider{Name: provider, Config: map[string]string{
		"DNSUPDATE_TSIG_ALGORITHM": "hmac-sha256.", "DNSUPDATE_TSIG_KEY": "chancery.", "DNSUPDATE_TSIG_SECRET": tsigSecret,
	}, SecretRef: &cmmeta.LocalObjectReference{Name: "dnsupdate"}}}}}
}

// moveToClusterIssuer makes a ClusterIssuer of the scene's Issuer, and has the Certificate name it.
func (s *scene) moveToClusterIssuer() {
	s.t.Helper()
	spec := s.acme(s.byDNS("tsig"))
	spec.ACME.PrivateKey.Name = "moved-account"
	s.create(&certmanagerv1.ClusterIssuer{ObjectMeta: named(s.ClusterName("moved")), Spec: spec})
	s.amendCertificate(func(crt *certmanagerv1.Certificate) {
		crt.Spec.IssuerRef = cmmeta.IssuerReference{Name: s.ClusterName("moved"), Kind: cmmeta.ClusterIssuerKind}
	})
}

// install runs chancery-dns where the controllers look for it.
func (s *scene) install() {
	s.t.Helper()
	binary := os.Getenv("CHANCERY_DNS_BIN")
	if binary == "" {
		s.t.Skip("set CHANCERY_DNS_BIN to bin/chancery-dns")
	}
	cmd := exec.CommandContext(s.t.Context(), binary, "serve", s.program)
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = cmd.Wait() }) // the test's end has killed it
}

// allowWebhook gives the controllers the right to call a webhook.
func (s *scene) allowWebhook(group string) {
	s.t.Helper()
	name := s.ClusterName(s.name)
	role := &rbacv1.ClusterRole{ObjectMeta: named(name), Rules: []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: []string{"mine"}, Verbs: []string{"create"}}}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: named(name), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: s.user}},
	}
	s.create(role, binding)
	s.t.Cleanup(func() {
		_, _ = s.Client.Delete(context.Background(), binding), s.Client.Delete(context.Background(), role)
	})
}

// dnsRows are about DNS, and the way to the host.
func dnsRows() map[string]row {
	const notHere = "lead to this cluster"
	return map[string]row{
		"dns-key": {class: cause.Class(fault.ClassCredential), says: "BADSIG", cure: "dns-key", quick: true,
			make: func(s *scene) {
				s.create(&corev1.Secret{ObjectMeta: named(s.name), StringData: map[string]string{"key": "YW5vdGhlciBzZWNyZXQ="}})
				ofACME("key-of.example.com", byOwnTSIG)(s)
			},
			mend: func(s *scene) {
				amend(s, &corev1.Secret{}, s.name, func(secret *corev1.Secret) { secret.Data = map[string][]byte{"key": []byte(tsigSecret)} })
			}},
		"dns-refused": {class: cause.Class(fault.ClassSolver), says: "REFUSED", cure: "credential may change it", quick: true,
			make: ofACME("www.example.net", byTSIG),
			mend: func(s *scene) { s.dns.Forbid(refusing, false) }},
		"dns-connection": {class: cause.Class(fault.ClassUnavailable), says: "connection refused", cure: "Check nameserver",
			make: ofACME("nameserver.example.com", func(s *scene) []acmev1.ACMEChallengeSolver {
				one := s.byDNS("tsig")
				one.DNS01.RFC2136.Nameserver = s.behind.String()
				return []acmev1.ACMEChallengeSolver{one}
			}),
			mend: func(s *scene) { s.letThrough() }},
		"dns-zone": {class: cause.Class(fault.ClassSolver), says: "does the domain exist?", cure: "dig +trace NS www.example.org",
			make: ofACME("www.example.org", byTSIG),
			mend: func(s *scene) {
				s.amendCertificate(func(crt *certmanagerv1.Certificate) { crt.Spec.DNSNames = []string{"zone.example.com"} })
			}},
		"check-port": {class: cause.Class(fault.ClassSelfCheck), says: "connection refused", cure: notHere, quick: true,
			make: ofACME("port.example.com", solver(byHTTP(true))),
			mend: func(s *scene) { s.lead(s.t, closedAt, nil) }},
		"check-page": {class: cause.Class(fault.ClassSelfCheck), says: "something else answers", cure: notHere,
			make: func(s *scene) {
				s.lead(s.t, anotherAt, &s.mended)
				ofACME("page.example.com", solver(byHTTP(true)))(s)
			},
			mend: func(s *scene) { s.mended.Store(true) }},
	}
}

// caRows are about what the CA refuses.
func caRows() map[string]row {
	of := func(host string) func(s *scene) { return ofACME(host, byTSIG) }
	return map[string]row{
		"ca-caa": {class: cause.Class(fault.ClassValidation), says: "CAA record for example.com prevents issuance", cure: "dig CAA caa.example.com", quick: true,
			make: ofACME(caaForbids, solver(byHTTP(false))),
			mend: func(s *scene) {
				s.allows.Store(true)
				s.lead(s.t, forbiddenAt, nil)
				s.renew()
			}},
		"ca-name": {class: cause.Class(fault.ClassPermanent), says: "blocked.example.com", cure: "take the name out", quick: true,
			make: of("blocked.example.com"),
			mend: func(s *scene) {
				s.amendCertificate(func(crt *certmanagerv1.Certificate) { crt.Spec.DNSNames = []string{"allowed.example.com"} })
			}},
		"ca-limit": {class: cause.Class(fault.ClassRateLimited), says: "too many certificates already issued", cure: "Do not delete the Certificate",
			make: of("limited.example.com"),
			mend: func(s *scene) { s.amendCertificate(byGood) }},
		"ca-profile": {class: cause.Class(fault.ClassPermanent), says: "does not advertise a profile with name long", cure: `in place of "long"`,
			make: func(s *scene) {
				spec := s.acme(s.byDNS("tsig"))
				spec.ACME.Profile = "long"
				s.issuer(spec)
				s.certificate("profile.example.com", nil)
			},
			mend: func(s *scene) {
				s.amendIssuer(func(spec *certmanagerv1.IssuerSpec) { spec.ACME.Profile = "short" })
			}},
		"ca-unseen": {class: cause.Class(fault.ClassValidation), says: "the CA does not find the answer", cure: "Make http://unseen.example.com, port 80, lead",
			make: ofACME("unseen.example.com", solver(byHTTP(false))),
			mend: func(s *scene) {
				s.lead(s.t, unseenAt, nil)
				s.renew()
			}},
		"ca-policy": {class: cause.Class(fault.ClassPolicy), says: "not permitted by any constraint", cure: "Ask for what the CA's policy allows",
			make: func(s *scene) {
				s.create(authority(s.t, "ca-policy-ca", time.Now().Add(300*24*time.Hour), true, func(c *x509.Certificate) { c.PermittedDNSDomains = []string{"example.org"} }))
				s.issuer(byCA("ca-policy-ca"))
				s.certificate("policy.example.com", nil)
			},
			mend: func(s *scene) {
				amend(s, &corev1.Secret{}, "ca-policy-ca", func(secret *corev1.Secret) { secret.Data = good(s.t, "ca-policy-ca").Data })
			}},
		"ca-addresses": {class: cause.Class(fault.ClassPermanent), says: "proves DNS names and IP addresses only", cure: "Change the Certificate",
			make: func(s *scene) {
				s.issuer(s.acme(s.byDNS("tsig")))
				s.certificate("", func(crt *certmanagerv1.Certificate) {
					crt.Spec.DNSNames, crt.Spec.URIs = nil, []string{"spiffe://example.com/web"}
				})
			},
			mend: func(s *scene) {
				s.amendCertificate(func(crt *certmanagerv1.Certificate) {
					crt.Spec.DNSNames, crt.Spec.URIs = []string{"addresses.example.com"}, nil
				})
			}},
		"ca-key": {class: cause.Class(fault.ClassPermanent), says: "curve P-384 not allowed", cure: "change spec.privateKey",
			make: func(s *scene) {
				s.issuer(s.acme(s.byDNS("tsig")))
				s.certificate("key.example.com", func(crt *certmanagerv1.Certificate) { crt.Spec.PrivateKey.Size = 384 })
			},
			mend: func(s *scene) {
				s.amendCertificate(func(crt *certmanagerv1.Certificate) { crt.Spec.PrivateKey.Size = 256 })
			}},
		"denied": {class: cause.Denied, says: "manually denied", cure: "Ask the approver", quick: true,
			make: func(s *scene) { s.byHeld("denied.example.com") },
			then: func(s *scene) { s.verdict("deny") },
			mend: func(s *scene) {
				s.renew()
				s.verdict("approve")
			}},
		"not-approved": {class: cause.NotApproved, says: "nobody has approved", cure: "kubectl chancery approve",
			make: func(s *scene) { s.byHeld("waiting.example.com") },
			mend: func(s *scene) { s.verdict("approve") }},
	}
}

// byHeld makes a Certificate by an issuer whose requests are approved by hand.
func (s *scene) byHeld(host string) {
	s.t.Helper()
	issuer := s.ClusterName("held-" + s.name)
	s.create(&certmanagerv1.ClusterIssuer{ObjectMeta: named(issuer), Spec: byCA("good-ca")})
	s.certificate(host, func(crt *certmanagerv1.Certificate) {
		crt.Spec.IssuerRef = cmmeta.IssuerReference{Name: issuer, Kind: cmmeta.ClusterIssuerKind}
	})
}

// verdict approves or denies the request of the scene that nobody has judged.
func (s *scene) verdict(command string) {
	s.t.Helper()
	cr := &certmanagerv1.CertificateRequest{}
	rig.Eventually(s.t, "there is a request to judge", func(ctx context.Context) string {
		if err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.space, Name: s.name + "-1"}, cr); err != nil {
			return err.Error()
		}
		if certmanagerv1.FindCertificateRequestCondition(cr.Status.Conditions, certmanagerv1.CertificateRequestConditionDenied) != nil {
			return "it is denied"
		}
		return ""
	})
	s.do(command, cr.Name)
}
