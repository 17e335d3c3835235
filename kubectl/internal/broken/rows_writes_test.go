package broken_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
)

// writeRows are what the API server refuses to have written.
func writeRows() map[string]row {
	return map[string]row{
		"secret-immutable": {class: cause.Immutable, says: "immutable", cure: "kubectl delete -n", quick: true,
			make: func(s *scene) {
				s.create(&corev1.Secret{ObjectMeta: named(s.name + "-tls"), Type: corev1.SecretTypeOpaque, Immutable: new(true)})
				s.certificate("immutable.example.com", byGood)
			},
			mend: func(s *scene) {
				secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.space, Name: s.name + "-tls"}}
				if err := s.Client.Delete(s.t.Context(), secret); err != nil {
					s.t.Fatal(err)
				}
			}},
		"secret-policy": {class: cause.Admission, says: "Secrets need the label team", cure: "Have the policy allow the write", alone: true, quick: true,
			make: func(s *scene) {
				s.policy("object.type != 'kubernetes.io/tls' || 'team' in object.metadata.?labels.orValue({})", "Secrets need the label team")
				s.certificate("policy.example.com", byGood)
			},
			mend: func(s *scene) {
				s.amendCertificate(func(crt *certmanagerv1.Certificate) {
					crt.Spec.SecretTemplate = &certmanagerv1.CertificateSecretTemplate{Labels: map[string]string{"team": "web"}}
				})
			}},
		"secret-webhook": {class: cause.Webhook, says: `failed calling webhook "policy.example.com"`, cure: "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations", alone: true, quick: true,
			make: func(s *scene) {
				s.webhook()
				s.certificate("webhook.example.com", byGood)
			},
			mend: func(s *scene) {
				if err := s.Client.Delete(s.t.Context(), &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: named(s.ClusterName(s.name))}); err != nil {
					s.t.Fatal(err)
				}
			}},
		"secret-rights": {class: cause.Rights, says: `cannot create resource "secrets"`, cure: "Give the controller's service account the right", alone: true, quick: true,
			make: func(s *scene) { s.certificate("rights.example.com", byGood) },
			mend: func(s *scene) { s.mayWrite(s.t, s.space) }},
		"secret-label": {class: cause.Invalid, says: `Invalid value: "web & shop": a valid label must be`, cure: "those of spec.secretTemplate", quick: true,
			make: func(s *scene) {
				s.certificate("label.example.com", func(crt *certmanagerv1.Certificate) {
					byGood(crt)
					crt.Spec.SecretTemplate = &certmanagerv1.CertificateSecretTemplate{Labels: map[string]string{"team": "web & shop"}}
				})
			},
			mend: func(s *scene) {
				s.amendCertificate(func(crt *certmanagerv1.Certificate) { crt.Spec.SecretTemplate.Labels["team"] = "web-shop" })
			}},
		"namespace-terminating": {class: cause.NamespaceTerminating, says: "is being deleted", cure: "make the Certificate in another one", alone: true, quick: true,
			make: func(s *scene) {
				s.certificate("going.example.com", func(crt *certmanagerv1.Certificate) {
					byGood(crt)
					crt.Annotations = map[string]string{cmmeta.PausedAnnotation: ""}
				})
				space := &corev1.Namespace{}
				amend(s, space, s.space, func(n *corev1.Namespace) { n.Finalizers = append(n.Finalizers, "story.example.com/stays") })
				space.Spec.Finalizers = nil // so that nobody empties it
				if err := s.Client.SubResource("finalize").Update(s.t.Context(), space); err != nil {
					s.t.Fatal(err)
				}
				if err := s.Client.Delete(s.t.Context(), space); err != nil {
					s.t.Fatal(err)
				}
			},
			then: func(s *scene) {
				s.amendCertificate(func(crt *certmanagerv1.Certificate) { delete(crt.Annotations, cmmeta.PausedAnnotation) })
			}},
	}
}

// policy has the API server refuse Secrets of the scene's namespace, and waits until it does.
func (s *scene) policy(expression, message string) {
	s.t.Helper()
	name := s.ClusterName(s.name)
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: named(name), Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.space}},
			ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"}},
			}}},
		},
		Validations: []admissionv1.Validation{{Expression: expression, Message: message}},
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: named(name), Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
	}}
	s.create(policy, binding)
	s.t.Cleanup(func() {
		_, _ = s.Client.Delete(context.Background(), binding), s.Client.Delete(context.Background(), policy)
	})
	s.refuses()
}

// webhook makes the API server ask a webhook about Secrets of the scene's namespace, behind whose Service nobody is.
func (s *scene) webhook() {
	s.t.Helper()
	configuration := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: named(s.ClusterName(s.name)), Webhooks: []admissionv1.ValidatingWebhook{{
		Name: "policy.example.com", FailurePolicy: new(admissionv1.Fail), SideEffects: new(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		ClientConfig:      admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: s.space, Name: "policy"}},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.space}},
		Rules: []admissionv1.RuleWithOperations{{
			Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"}},
		}},
	}}}
	s.create(configuration)
	s.t.Cleanup(func() { _ = s.Client.Delete(context.Background(), configuration) })
	s.refuses()
}

// refuses waits until the API server refuses Secrets of the scene's namespace.
func (s *scene) refuses() {
	s.t.Helper()
	rig.Eventually(s.t, "the API server refuses", func(ctx context.Context) string {
		probe := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.space, Name: "probe"},
			Type:       corev1.SecretTypeTLS, Data: map[string][]byte{"tls.crt": {}, "tls.key": {}},
		}
		if err := s.Client.Create(ctx, probe, client.DryRunAll); err == nil {
			return "it does not"
		}
		return ""
	})
}

// quotaRows are about quotas, each of one kind of object.
func quotaRows() map[string]row {
	of := func(name corev1.ResourceName, used int64, says string, change func(s *scene)) row {
		return row{class: cause.Quota, says: says, cure: "kubectl describe resourcequota -n", alone: true, quick: true,
			make: func(s *scene) {
				change(s)
				s.quota(name, used)
			},
			mend: func(s *scene) { s.quota(name, used+10) }}
	}
	byIssuer := func(s *scene) { s.certificate("quota.example.com", byGood) }
	byOrder := func(s *scene) { ofACME(s.name+".example.com", byTSIG)(s) }
	return map[string]row{
		"secret-quota":    of("count/secrets", 0, "exceeded quota", byIssuer),
		"request-quota":   of("count/certificaterequests.cert-manager.io", 0, "exceeded quota", byIssuer),
		"order-quota":     of("count/orders.acme.cert-manager.io", 0, "exceeded quota", byOrder),
		"challenge-quota": of("count/challenges.acme.cert-manager.io", 0, "exceeded quota", byOrder),
	}
}

// quota sets the quota of a kind of object. Its status is the test's, since nothing counts here but the admission.
func (s *scene) quota(name corev1.ResourceName, limit int64) {
	s.t.Helper()
	hard := corev1.ResourceList{name: *resource.NewQuantity(limit, resource.DecimalSI)}
	quota := &corev1.ResourceQuota{}
	key := client.ObjectKey{Namespace: s.space, Name: "few"}
	if err := s.Client.Get(s.t.Context(), key, quota); err != nil {
		quota = &corev1.ResourceQuota{ObjectMeta: named("few"), Spec: corev1.ResourceQuotaSpec{Hard: hard}}
		s.create(quota)
	}
	used := quota.Status.Used[name]
	quota.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: corev1.ResourceList{name: used}}
	if err := s.Client.Status().Update(s.t.Context(), quota); err != nil {
		s.t.Fatal(err)
	}
	rig.Eventually(s.t, "the quota holds", func(ctx context.Context) string {
		if limit > 0 || name != "count/secrets" {
			return "" // the probe is a Secret
		}
		probe := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.space, Name: "probe"}}
		if err := s.Client.Create(ctx, probe, client.DryRunAll); err == nil {
			return "it does not"
		}
		return ""
	})
}

// secretRows are about who else has to do with the Secret.
func secretRows() map[string]row {
	return map[string]row{
		"secret-shared": {class: cause.SecretShared, says: "a-secret-shared", cure: "another spec.secretName", quick: true,
			make: func(s *scene) {
				first := *s
				first.name = "a-secret-shared" // the first by name of two that are as old
				first.certificate("shared.example.com", byGood)
				s.certificate("shared.example.com", func(crt *certmanagerv1.Certificate) {
					byGood(crt)
					crt.Spec.SecretName = "a-secret-shared-tls"
				})
			},
			mend: func(s *scene) {
				s.amendCertificate(func(crt *certmanagerv1.Certificate) { crt.Spec.SecretName = s.name + "-tls" })
			}},
		"ingress-shared": {says: "two.example.com", cure: "another Secret", start: "ingress/two", quick: true,
			make: func(s *scene) { s.ingress("ingress-shared", "one.example.com") },
			then: func(s *scene) {
				s.ready()
				s.ingress("two", "two.example.com")
			}},
		"secret-overwritten": {class: cause.IssuedTooOften, says: "was issued too often", cure: "leave it alone",
			make: func(s *scene) { s.certificate("overwritten.example.com", byGood) },
			then: func(s *scene) { s.overwrite() },
			mend: func(s *scene) {
				s.amendCertificate(func(crt *certmanagerv1.Certificate) { crt.Spec.SecretName = s.name + "-own" })
			}},
		"key-never": {class: cause.KeyNotReplaced, says: "rotationPolicy Never forbids a new one", cure: "Set spec.privateKey.rotationPolicy to Always",
			make: func(s *scene) {
				key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA, Size: 384})
				if err != nil {
					s.t.Fatal(err)
				}
				text, err := pki.EncodePKCS8(key)
				if err != nil {
					s.t.Fatal(err)
				}
				s.create(&corev1.Secret{ObjectMeta: named(s.name + "-tls"), Data: map[string][]byte{"tls.key": text}})
				s.certificate("never.example.com", func(crt *certmanagerv1.Certificate) {
					byGood(crt)
					crt.Spec.PrivateKey.RotationPolicy = certmanagerv1.RotationPolicyNever
				})
			},
			mend: func(s *scene) {
				s.amendCertificate(func(crt *certmanagerv1.Certificate) {
					crt.Spec.PrivateKey.RotationPolicy = certmanagerv1.RotationPolicyAlways
				})
			}},
		"key-in-the-way": {class: cause.InTheWay, says: "is in the way of the next private key", cure: "kubectl delete -n",
			make: func(s *scene) {
				s.issuer(certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}})
				s.certificate("way.example.com", func(crt *certmanagerv1.Certificate) {
					crt.Annotations = map[string]string{cmmeta.PausedAnnotation: ""}
				})
			},
			then: func(s *scene) {
				s.create(&corev1.Secret{ObjectMeta: named(s.keyName())})
				s.amendCertificate(func(crt *certmanagerv1.Certificate) { delete(crt.Annotations, cmmeta.PausedAnnotation) })
			},
			mend: func(s *scene) {
				if err := s.Client.Delete(s.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.space, Name: s.keyName()}}); err != nil {
					s.t.Fatal(err)
				}
			}},
		"password-missing": {class: cause.PasswordMissing, says: "password-missing-password", cure: "Create the Secret",
			make: func(s *scene) {
				s.certificate("password.example.com", func(crt *certmanagerv1.Certificate) {
					byGood(crt)
					crt.Spec.Keystores = &certmanagerv1.CertificateKeystores{PKCS12: &certmanagerv1.PKCS12Keystore{
						Create: true, PasswordSecretRef: cmmeta.SecretKeySelector{Name: s.name + "-password", Key: "password"},
					}}
				})
			},
			mend: func(s *scene) {
				s.create(&corev1.Secret{ObjectMeta: named(s.name + "-password"), StringData: map[string]string{"password": "secret"}})
			}},
	}
}

// ingress makes an Ingress that asks for a Certificate in the Secret of the scene.
func (s *scene) ingress(name, host string) {
	s.t.Helper()
	rule := networkingv1.IngressRule{Host: host}
	s.create(&networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"cert-manager.io/issuer": "good"}},
		Spec: networkingv1.IngressSpec{
			DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}},
			Rules:          []networkingv1.IngressRule{rule}, TLS: []networkingv1.IngressTLS{{Hosts: []string{host}, SecretName: s.name}},
		},
	})
}

// keyName is the name of the scene's first private key.
func (s *scene) keyName() string {
	s.t.Helper()
	crt := &certmanagerv1.Certificate{}
	if err := s.Client.Get(s.t.Context(), client.ObjectKey{Namespace: s.space, Name: s.name}, crt); err != nil {
		s.t.Fatal(err)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", crt.UID, 1))
	return s.name + "-" + hex.EncodeToString(sum[:])[:5]
}

// overwrite empties the Secret of the scene until the Certificate says that this happens too often.
func (s *scene) overwrite() {
	s.t.Helper()
	rig.Eventually(s.t, "the Certificate has had enough", func(ctx context.Context) string {
		crt, secret := &certmanagerv1.Certificate{}, &corev1.Secret{}
		if err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.space, Name: s.name}, crt); err != nil {
			return err.Error()
		}
		if crt.Status.Cause != nil {
			return ""
		}
		if err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.space, Name: s.name + "-tls"}, secret); err != nil {
			return err.Error()
		}
		secret.Data["tls.crt"] = []byte("overwritten")
		_ = s.Client.Update(ctx, secret, client.FieldOwner("rival")) // one that comes second is made again
		return "not yet"
	})
}

// specRows are about the spec.
func specRows() map[string]row {
	return map[string]row{
		"window-never": {class: cause.RenewalWindows, says: "Mars/Olympus", cure: "windows", quick: true,
			make: func(s *scene) {
				s.certificate("window.example.com", func(crt *certmanagerv1.Certificate) {
					byGood(crt)
					crt.Spec.Renewal = &certmanagerv1.CertificateRenewal{Policy: certmanagerv1.RenewalPolicyRenewBefore, Windows: []certmanagerv1.CertificateRenewalWindow{
						{Cron: "@daily", WindowDuration: metav1.Duration{Duration: time.Hour}, Timezone: "Mars/Olympus"},
					}}
				})
			},
			mend: func(s *scene) {
				s.amendCertificate(func(crt *certmanagerv1.Certificate) { crt.Spec.Renewal.Windows[0].Timezone = "Europe/Paris" })
			}},
		"spec-impossible": {class: cause.NoRequest, says: "set commonName or dnsNames", cure: "spec",
			make: func(s *scene) {
				s.certificate("impossible.example.com", func(crt *certmanagerv1.Certificate) {
					byGood(crt)
					crt.Spec.DNSNames, crt.Spec.LiteralSubject = nil, "  "
				})
			},
			mend: func(s *scene) {
				s.amendCertificate(func(crt *certmanagerv1.Certificate) { crt.Spec.LiteralSubject = "CN=impossible" })
			}},
		"paused": {says: "the Certificate is paused", cure: "kubectl annotate certificate -n",
			make: func(s *scene) {
				s.certificate("paused.example.com", func(crt *certmanagerv1.Certificate) {
					byGood(crt)
					crt.Annotations = map[string]string{cmmeta.PausedAnnotation: ""}
				})
			},
			mend: func(s *scene) {
				s.amendCertificate(func(crt *certmanagerv1.Certificate) { delete(crt.Annotations, cmmeta.PausedAnnotation) })
			}},
	}
}
