package main

import (
	"fmt"
	mathrand "math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
)

// trait makes a Certificate special in one way; it may add objects that are there before the Certificate.
type trait func(in *input, crt *certmanagerv1.Certificate, before *[]client.Object)

// addCertificate adds Certificate number i. Each trait comes in turn, with one more by chance in half of them.
func (in *input) addCertificate(i int, random *mathrand.Rand) {
	crt := &certmanagerv1.Certificate{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name("crt", i)},
		Spec: certmanagerv1.CertificateSpec{
			SecretName: name("tls", i), DNSNames: []string{name("crt", i) + "." + zone},
			PrivateKey: &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm},
			IssuerRef: []cmmeta.IssuerReference{
				{Name: "ca"}, {Name: "own"}, {Name: "acme"}, {Name: "intermediate", Kind: "Issuer"}, {Name: "ca", Kind: "ClusterIssuer"},
				{Name: "own", Kind: "ClusterIssuer", Group: "cert-manager.io"}, {Name: "acme", Kind: "ClusterIssuer"}, {Name: "no-root"}, {Name: "urls"},
			}[random.IntN(9)],
		},
	}
	all := traits()
	var before []client.Object
	all[i%len(all)](in, crt, &before)
	if random.IntN(2) == 0 {
		all[random.IntN(len(all))](in, crt, &before)
	}
	switch crt.Spec.IssuerRef.Name { // of several names without a solver, the CA chooses which is told of first
	case "acme":
		crt.Spec.IPAddresses = crt.Spec.IPAddresses[:min(len(crt.Spec.IPAddresses), 1)]
	case "no-solver":
		crt.Spec.IPAddresses, crt.Spec.DNSNames = nil, []string{crt.Name + "." + zone}
	}
	in.objects = append(append(in.objects, before...), crt)
}

func traits() []trait {
	var all []trait
	for _, some := range [][]trait{nameTraits(), useTraits(), keyTraits(), timeTraits(), secretTraits(), issuerTraits()} {
		all = append(all, some...)
	}
	return all
}

// set makes a trait of a change of the spec.
func set(change func(*certmanagerv1.CertificateSpec)) trait {
	return func(_ *input, crt *certmanagerv1.Certificate, _ *[]client.Object) { change(&crt.Spec) }
}

func literal(subject string) trait {
	return set(func(s *certmanagerv1.CertificateSpec) { s.LiteralSubject, s.CommonName, s.Subject = subject, "", nil })
}

func subject(x certmanagerv1.X509Subject) trait {
	return set(func(s *certmanagerv1.CertificateSpec) { s.Subject, s.LiteralSubject = &x, "" })
}

func nameTraits() []trait {
	return []trait{
		set(func(*certmanagerv1.CertificateSpec) {}),
		set(func(s *certmanagerv1.CertificateSpec) {
			s.DNSNames = append(s.DNSNames, "b."+s.DNSNames[0], "*."+s.DNSNames[0], "a."+s.DNSNames[0])
		}),
		set(func(s *certmanagerv1.CertificateSpec) { s.DNSNames = append(s.DNSNames, s.DNSNames[0]) }),
		set(func(s *certmanagerv1.CertificateSpec) { s.DNSNames = append(s.DNSNames, "UPPER."+s.DNSNames[0]) }),
		set(func(s *certmanagerv1.CertificateSpec) { s.CommonName = s.DNSNames[0] }),
		set(func(s *certmanagerv1.CertificateSpec) { s.CommonName = "Some Common Name" }),
		set(func(s *certmanagerv1.CertificateSpec) { s.CommonName, s.DNSNames = "only.example.com", nil }),
		set(func(s *certmanagerv1.CertificateSpec) { s.IPAddresses = []string{"192.0.2.7", "2001:db8::7"} }),
		set(func(s *certmanagerv1.CertificateSpec) { s.IPAddresses, s.DNSNames = []string{"2001:DB8:0::8"}, nil }),
		set(func(s *certmanagerv1.CertificateSpec) {
			s.URIs = []string{"spiffe://example.com/ns/a/sa/b", "https://example.com/x?y=z"}
		}),
		set(func(s *certmanagerv1.CertificateSpec) {
			s.EmailAddresses = []string{"a@example.com", "b.c@example.com"}
		}),
		set(func(s *certmanagerv1.CertificateSpec) {
			s.OtherNames = []certmanagerv1.OtherName{{OID: "1.3.6.1.4.1.311.20.2.3", UTF8Value: "user@example.com"}}
		}),
		subject(certmanagerv1.X509Subject{Organizations: []string{"Org B", "Org A"}, OrganizationalUnits: []string{"Unit"}}),
		subject(certmanagerv1.X509Subject{
			Countries: []string{"DE"}, Localities: []string{"Ort"}, Provinces: []string{"Land, im Süden"}, StreetAddresses: []string{"Straße 1"},
			PostalCodes: []string{"01234"}, SerialNumber: "S-1",
		}),
		literal("CN=literal.example.com,OU=Unit,O=Org,C=DE"),
		literal("CN=uid,UID=jdoe,DC=corp,DC=example,DC=com"),
		literal(`CN=a\, b+O=multi,STREET=Way 1,ST=State,L=Town,SERIALNUMBER=7`),
	}
}

func usages(all ...certmanagerv1.KeyUsage) trait {
	return set(func(s *certmanagerv1.CertificateSpec) { s.Usages = all })
}

func useTraits() []trait {
	no := false
	authority := func(more func(*certmanagerv1.CertificateSpec)) trait {
		return set(func(s *certmanagerv1.CertificateSpec) {
			s.IsCA, s.CommonName, s.LiteralSubject = true, "an authority", ""
			more(s)
		})
	}
	return []trait{
		usages(certmanagerv1.UsageServerAuth, certmanagerv1.UsageClientAuth),
		usages(certmanagerv1.UsageDigitalSignature, certmanagerv1.UsageKeyEncipherment, certmanagerv1.UsageServerAuth),
		usages(certmanagerv1.UsageAny), usages(certmanagerv1.UsageSigning, certmanagerv1.UsageSMIME, certmanagerv1.UsageEmailProtection),
		usages(certmanagerv1.UsageCertSign, certmanagerv1.UsageCRLSign), // contradicts what is no CA
		usages(certmanagerv1.UsageContentCommitment, certmanagerv1.UsageKeyAgreement, certmanagerv1.UsageDataEncipherment, certmanagerv1.UsageEncipherOnly, certmanagerv1.UsageDecipherOnly),
		usages(certmanagerv1.UsageCodeSigning, certmanagerv1.UsageTimestamping, certmanagerv1.UsageOCSPSigning, certmanagerv1.UsageMicrosoftSGC, certmanagerv1.UsageNetscapeSGC,
			certmanagerv1.UsageIPsecEndSystem, certmanagerv1.UsageIPsecTunnel, certmanagerv1.UsageIPsecUser),
		set(func(s *certmanagerv1.CertificateSpec) { s.EncodeUsagesInRequest = &no }),
		authority(func(*certmanagerv1.CertificateSpec) {}),
		authority(func(s *certmanagerv1.CertificateSpec) {
			s.Usages = []certmanagerv1.KeyUsage{certmanagerv1.UsageServerAuth}
		}),
		authority(func(s *certmanagerv1.CertificateSpec) {
			s.NameConstraints = &certmanagerv1.NameConstraints{
				Critical:  true,
				Permitted: &certmanagerv1.NameConstraintItem{DNSDomains: []string{"example.com", ".example.org"}, IPRanges: []string{"192.0.2.0/24"}},
				Excluded:  &certmanagerv1.NameConstraintItem{EmailAddresses: []string{"example.net"}, URIDomains: []string{"example.net"}},
			}
		}),
	}
}

// key makes a trait of the key's kind.
func key(k certmanagerv1.CertificatePrivateKey) trait {
	return set(func(s *certmanagerv1.CertificateSpec) { s.PrivateKey = &k })
}

func signature(k certmanagerv1.PrivateKeyAlgorithm, a certmanagerv1.SignatureAlgorithm) trait {
	return set(func(s *certmanagerv1.CertificateSpec) {
		s.PrivateKey, s.SignatureAlgorithm = &certmanagerv1.CertificatePrivateKey{Algorithm: k}, a
	})
}

func keyTraits() []trait {
	const rsa, ecdsa, ed25519 = certmanagerv1.RSAKeyAlgorithm, certmanagerv1.ECDSAKeyAlgorithm, certmanagerv1.Ed25519KeyAlgorithm
	return []trait{
		set(func(s *certmanagerv1.CertificateSpec) { s.PrivateKey = nil }),
		key(certmanagerv1.CertificatePrivateKey{Algorithm: rsa, Encoding: certmanagerv1.PKCS8}),
		key(certmanagerv1.CertificatePrivateKey{Algorithm: rsa, Size: 3072}), key(certmanagerv1.CertificatePrivateKey{Algorithm: rsa, Size: 4096}),
		key(certmanagerv1.CertificatePrivateKey{Algorithm: ecdsa, Size: 384, Encoding: certmanagerv1.PKCS8}),
		key(certmanagerv1.CertificatePrivateKey{Algorithm: ecdsa, Size: 521, Encoding: certmanagerv1.PKCS1}),
		key(certmanagerv1.CertificatePrivateKey{Algorithm: ed25519}),
		key(certmanagerv1.CertificatePrivateKey{Algorithm: ed25519, Size: 1, Encoding: certmanagerv1.PKCS1}),
		key(certmanagerv1.CertificatePrivateKey{Algorithm: ecdsa, RotationPolicy: certmanagerv1.RotationPolicyNever}),
		signature(rsa, certmanagerv1.SHA512WithRSA), signature(ecdsa, certmanagerv1.ECDSAWithSHA384), signature(ecdsa, certmanagerv1.SHA256WithRSA),
		holding(certmanagerv1.RotationPolicyNever, rsa), holding(certmanagerv1.RotationPolicyAlways, rsa),
		holding(certmanagerv1.RotationPolicyNever, ecdsa), // the key that is held is another kind
	}
}

// holding puts a key into the Secret already, without a certificate.
func holding(policy certmanagerv1.PrivateKeyRotationPolicy, algorithm certmanagerv1.PrivateKeyAlgorithm) trait {
	return func(in *input, crt *certmanagerv1.Certificate, before *[]client.Object) {
		crt.Spec.PrivateKey = &certmanagerv1.CertificatePrivateKey{RotationPolicy: policy, Algorithm: algorithm}
		s, err := secret(namespace, crt.Spec.SecretName, in.held)
		if err != nil {
			panic(err) // it is a key that we have made
		}
		s.Type = corev1.SecretTypeOpaque
		*before = append(*before, s)
	}
}

func lasts(d time.Duration, change func(*certmanagerv1.CertificateSpec)) trait {
	return set(func(s *certmanagerv1.CertificateSpec) {
		s.Duration, s.RenewBefore, s.RenewBeforePercentage = &metav1.Duration{Duration: d}, nil, nil
		change(s)
	})
}

func timeTraits() []trait {
	plain := func(*certmanagerv1.CertificateSpec) {}
	percent, many := int32(25), int32(3)
	windows := func(timezone string) trait {
		return set(func(s *certmanagerv1.CertificateSpec) {
			s.Renewal = &certmanagerv1.CertificateRenewal{Policy: "RenewBefore", Windows: []certmanagerv1.CertificateRenewalWindow{
				{Cron: "0 2 * * *", WindowDuration: metav1.Duration{Duration: 2 * time.Hour}, Timezone: timezone},
			}}
		})
	}
	return []trait{
		lasts(time.Hour, plain), lasts(24*time.Hour, plain), lasts(10*365*24*time.Hour, plain), // the last one beyond the CA's
		lasts(time.Minute, plain), // too short
		lasts(48*time.Hour, func(s *certmanagerv1.CertificateSpec) { s.RenewBefore = &metav1.Duration{Duration: 7 * time.Hour} }),
		lasts(48*time.Hour, func(s *certmanagerv1.CertificateSpec) { s.RenewBeforePercentage = &percent }),
		set(func(s *certmanagerv1.CertificateSpec) { s.RenewBeforePercentage = &percent }),
		set(func(s *certmanagerv1.CertificateSpec) {
			s.Renewal = &certmanagerv1.CertificateRenewal{Policy: "Disabled"}
		}),
		windows("Europe/Berlin"), windows("Europe/Nowhere"),
		set(func(s *certmanagerv1.CertificateSpec) { s.RevisionHistoryLimit = &many }),
	}
}

func stores(k certmanagerv1.CertificateKeystores) trait {
	return set(func(s *certmanagerv1.CertificateSpec) { s.Keystores = k.DeepCopy() })
}

func secretTraits() []trait {
	alias, word, fromSecret := "Alias", password, cmmeta.SecretKeySelector{Name: "password", Key: "password"}
	jks := func(j certmanagerv1.JKSKeystore) trait {
		j.Create = true
		return stores(certmanagerv1.CertificateKeystores{JKS: &j})
	}
	all := []trait{
		jks(certmanagerv1.JKSKeystore{PasswordSecretRef: fromSecret}), jks(certmanagerv1.JKSKeystore{Password: &word, Alias: &alias}),
		jks(certmanagerv1.JKSKeystore{PasswordSecretRef: cmmeta.SecretKeySelector{Name: "nowhere", Key: "password"}}),
		jks(certmanagerv1.JKSKeystore{PasswordSecretRef: cmmeta.SecretKeySelector{Name: "no-password", Key: "password"}}),
	}
	for _, profile := range []certmanagerv1.PKCS12Profile{"", certmanagerv1.PKCS12LegacyDES, certmanagerv1.PKCS12Modern2023, certmanagerv1.PKCS12Modern2026} {
		all = append(all, stores(certmanagerv1.CertificateKeystores{PKCS12: &certmanagerv1.PKCS12Keystore{Create: true, Profile: profile, PasswordSecretRef: fromSecret}}))
	}
	formats := func(f ...certmanagerv1.CertificateOutputFormatType) trait {
		return set(func(s *certmanagerv1.CertificateSpec) {
			s.AdditionalOutputFormats = nil
			for _, t := range f {
				s.AdditionalOutputFormats = append(s.AdditionalOutputFormats, certmanagerv1.CertificateAdditionalOutputFormat{Type: t})
			}
		})
	}
	template := func(annotations, labels map[string]string) trait {
		return set(func(s *certmanagerv1.CertificateSpec) {
			s.SecretTemplate = &certmanagerv1.CertificateSecretTemplate{Annotations: annotations, Labels: labels}
		})
	}
	there := func(change func(*corev1.Secret)) trait {
		return func(_ *input, crt *certmanagerv1.Certificate, before *[]client.Object) {
			s := opaque(crt.Spec.SecretName, "others", "data")
			change(s)
			*before = append(*before, s)
		}
	}
	yes := true
	return append(all,
		formats(certmanagerv1.OutputFormatDER), formats(certmanagerv1.OutputFormatCombinedPEM), formats(certmanagerv1.OutputFormatDER, certmanagerv1.OutputFormatCombinedPEM),
		template(map[string]string{"a": "b"}, map[string]string{"c": "d"}),
		template(map[string]string{certmanagerv1.AllowDirectInjectionAnnotation: "true"}, nil),
		there(func(s *corev1.Secret) {
			s.Labels, s.Annotations = map[string]string{"of": "others"}, map[string]string{"of": "others"}
		}),
		there(func(s *corev1.Secret) {
			s.Data[cmmeta.TLSCertKey], s.Data[cmmeta.TLSPrivateKeyKey] = []byte("no certificate"), []byte("no key")
		}),
		there(func(s *corev1.Secret) { s.Immutable = &yes }),
	)
}

func issuerTraits() []trait {
	issuer := func(ref cmmeta.IssuerReference) trait {
		return set(func(s *certmanagerv1.CertificateSpec) { s.IssuerRef = ref })
	}
	described := func(annotations, labels map[string]string) trait {
		return func(_ *input, crt *certmanagerv1.Certificate, _ *[]client.Object) {
			crt.Annotations, crt.Labels = annotations, labels
		}
	}
	all := []trait{
		issuer(cmmeta.IssuerReference{Name: "nowhere"}), issuer(cmmeta.IssuerReference{Name: "nowhere", Kind: cmmeta.ClusterIssuerKind}),
		issuer(cmmeta.IssuerReference{Name: "external", Kind: "Thing", Group: "issuers.example.com"}), issuer(cmmeta.IssuerReference{Name: "ca", Kind: "Thing"}),
		described(map[string]string{certmanagerv1.IssueTemporaryAnnotation: "true"}, nil),
		described(map[string]string{"own": "a", "kubectl.kubernetes.io/x": "b", "argocd.argoproj.io/x": "c", "fluxcd.io/x": "d"}, map[string]string{"own": "a", "app": "b"}),
		func(_ *input, crt *certmanagerv1.Certificate, _ *[]client.Object) { // the Secret of another Certificate
			var i int
			if _, err := fmt.Sscanf(crt.Name, "crt-%d", &i); err == nil && i > 0 {
				crt.Spec.SecretName = name("tls", i-1)
			}
		},
	}
	for _, name := range []string{"no-solver", "expired", "mismatch", "missing", "acme", "acme", "acme"} {
		all = append(all, issuer(cmmeta.IssuerReference{Name: name}))
	}
	return all
}
