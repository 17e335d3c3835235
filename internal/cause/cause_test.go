package cause

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/fault"
)

// TestTable: each class has a row of its own, and something that helps.
func TestTable(t *testing.T) {
	t.Parallel()
	seen := map[Class]bool{}
	for _, r := range Table() {
		if seen[r.Class] || r.Helps == "" {
			t.Errorf("%+v", r)
		}
		seen[r.Class] = true
	}
	for _, class := range []fault.Class{
		fault.ClassPermanent, fault.ClassPolicy, fault.ClassRefused, fault.ClassValidation, fault.ClassSelfCheck, fault.ClassSolver,
		fault.ClassRateLimited, fault.ClassPaused, fault.ClassUnavailable, fault.ClassCredential, fault.ClassConfiguration,
	} {
		if !seen[Class(class)] {
			t.Errorf("%s has no row", class)
		}
	}
}

// TestOfWrite: what the API server refuses is told by its class.
func TestOfWrite(t *testing.T) {
	t.Parallel()
	secrets := schema.GroupResource{Resource: "secrets"}
	kind := schema.GroupKind{Kind: "Secret"}
	going := apierrors.NewForbidden(secrets, "web", errors.New("unable to create new content in namespace shop because it is being terminated"))
	going.ErrStatus.Details.Causes = append(going.ErrStatus.Details.Causes, metav1.StatusCause{Type: corev1.NamespaceTerminatingCause})
	immutable := apierrors.NewInvalid(kind, "web", field.ErrorList{field.Forbidden(field.NewPath("data"), "field is immutable when `immutable` is set")})
	for want, err := range map[Class]error{
		"":                   errors.New("connection refused"),
		Immutable:            immutable,
		Quota:                apierrors.NewForbidden(secrets, "web", errors.New("exceeded quota: few, requested: count/secrets=1, used: count/secrets=1, limited: count/secrets=1")),
		Admission:            apierrors.NewForbidden(secrets, "web", errors.New("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no")),
		Rights:               apierrors.NewForbidden(secrets, "web", errors.New(`User "system:serviceaccount:cert-manager:cert-manager" cannot patch resource "secrets"`)),
		NamespaceTerminating: going,
		TooLarge:             apierrors.NewRequestEntityTooLargeError("3 MiB"),
		Webhook:              apierrors.NewInternalError(errors.New(`failed calling webhook "x": no`)),
		ServerError:          apierrors.NewInternalError(errors.New("rpc error")),
		Invalid:              apierrors.NewInvalid(kind, "web", field.ErrorList{field.Required(field.NewPath("type"), "")}),
	} {
		c := OfWrite(err, "Secret web")
		switch {
		case want == "" && c != nil, want != "" && (c == nil || c.Class != string(want) || !IsWrite(c)):
			t.Errorf("%q: %+v", want, c)
		case c != nil && !strings.HasPrefix(Sentence(c), "Secret web: the API server "):
			t.Errorf("%q: %s", want, Sentence(c))
		}
	}
}

// TestCures: the cure fits what is around the cause, and not only its class.
func TestCures(t *testing.T) {
	t.Parallel()
	by := func(kind string, dns *acmev1.DNS01Solver) *acmev1.Challenge {
		c := &acmev1.Challenge{}
		c.Spec.DNSName, c.Spec.Type, c.Spec.IssuerRef.Kind, c.Spec.Solver.DNS01 = "www.example.com", acmev1.ChallengeTypeDNS01, kind, dns
		return c
	}
	foreign := &certmanagerv1.CertificateRequest{}
	foreign.Spec.IssuerRef = cmmeta.IssuerReference{Name: "root", Kind: "AWSPCAIssuer", Group: "awspca.cert-manager.io"}
	forPods := &certmanagerv1.Issuer{Spec: certmanagerv1.IssuerSpec{Vault: &certmanagerv1.VaultIssuer{}}}
	forPods.Annotations = map[string]string{certmanagerv1.PodCertificatesAnnotation: "prod.example.com"}
	forPods.Status.Conditions = []certmanagerv1.IssuerCondition{{
		Type: certmanagerv1.IssuerConditionReady, Status: cmmeta.ConditionTrue, Reason: certmanagerv1.IssuerReasonVaultVerified,
	}}
	caa := New(Class(fault.ClassValidation), acme.CodeCAA.Type(), "www.example.com", "CAA record for example.com prevents issuance")
	for name, c := range map[string]struct {
		scene     Scene
		says, not string
	}{
		"another kind": {Scene{Cause: New(IssuerMissing, "", "Issuer shop/acme", ""), OtherKind: "ClusterIssuer", Namespace: "shop", Certificate: "web"},
			`kubectl patch certificate -n shop web --type merge -p '{"spec":{"issuerRef":{"kind":"ClusterIssuer"}}}'`, "Create"},
		"a program in an Issuer": {Scene{Cause: New(Class(fault.ClassConfiguration), "", "", "no"), Challenge: by("Issuer", &acmev1.DNS01Solver{Exec: &acmev1.ExecProvider{}})},
			"Move the solver to a ClusterIssuer", "dig"},
		"connection refused": {Scene{Cause: New(Class(fault.ClassUnavailable), "", "", "connection refused"), Challenge: by("Issuer", &acmev1.DNS01Solver{
			RFC2136: &acmev1.RFC2136Provider{Nameserver: "192.0.2.1:53"}})}, "Check nameserver 192.0.2.1:53", "credential"},
		"rights of a webhook": {Scene{Cause: New(Class(fault.ClassCredential), "", "", "no"), Challenge: by("Issuer", &acmev1.DNS01Solver{
			Webhook: &acmev1.WebhookProvider{GroupName: "acme.example.com", SolverName: "mine"}})}, "right to create mine in the API group acme.example.com", "credential"},
		"Vault for Pods": {Scene{Cause: New(IssuerNotReady, "", "Issuer shop/pods", ForPodsOnly), Issuer: forPods}, "Take another issuer", "Correct"},
		"a wildcard":     {Scene{Cause: New(NoSolver, "", "*.example.com", "no")}, "a wildcard cannot be proved otherwise", "selectors"},
		"selectors":      {Scene{Cause: New(NoSolver, "", "www.example.com", "no")}, "Change the selectors", "wildcard"},
		"no solvers": {Scene{Cause: New(NoSolver, "", "*.example.com", "no"), Issuer: &certmanagerv1.Issuer{Spec: certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{}}}},
			NoSolvers, "selectors"},
		"a quota":   {Scene{Cause: New(Quota, "", "Secret web", "exceeded quota"), Namespace: "shop"}, "kubectl describe resourcequota -n shop", "cause names"},
		"immutable": {Scene{Cause: New(Immutable, "", "Secret web", "no"), Namespace: "shop"}, "kubectl delete -n shop secret web", "cause names"},
		"CAA":       {Scene{Cause: caa}, "dig CAA www.example.com", "cause names"},
		"a refusal of the account": {Scene{Cause: New(Class(fault.ClassRefused), acme.CodeUnauthorized.Type(), "", "no"), Challenge: by("Issuer", &acmev1.DNS01Solver{})},
			correct, "TXT"},
		"an alias": {Scene{Cause: New(Class(fault.ClassSelfCheck), "", "", "no"), Challenge: by("Issuer", &acmev1.DNS01Solver{})},
			"If _acme-challenge.www.example.com is an alias (CNAME), remove it, or set cnameStrategy: Follow", "cause names"},
		"an alias that is followed": {Scene{Cause: New(Class(fault.ClassSelfCheck), "", "", "no"), Challenge: by("Issuer", &acmev1.DNS01Solver{CNAMEStrategy: acmev1.CNAMEStrategyFollow})},
			"dig +trace TXT _acme-challenge.www.example.com", "alias"},
		"an Ingress": {Scene{Cause: New(IssuerMissing, "", "Issuer shop/acme", ""), Namespace: "shop", Certificate: "web", Owner: "Ingress web"},
			"name the issuer in the annotation cert-manager.io/issuer of Ingress web", "patch"},
		"another kind for an Ingress": {Scene{Cause: New(IssuerMissing, "", "Issuer shop/acme", ""), OtherKind: "ClusterIssuer", Namespace: "shop", Certificate: "web", Owner: "Ingress web"},
			"kubectl annotate ingress -n shop web cert-manager.io/cluster-issuer=acme cert-manager.io/issuer-", "patch"},
		"an Ingress whose Certificate is refused": {Scene{Cause: New(Class(fault.ClassPermanent), "", "", "no"), Owner: "Ingress web"},
			"change by hosts and annotations of Ingress web", "cause names"},
		"an Ingress behind a firewall": {Scene{Cause: New(Class(fault.ClassUnavailable), "", "", "no"), Owner: "Ingress web"}, "Check the address", "Ingress web"},
		"a silent controller": {Scene{Cause: New(NoController, "", "", "no"), Request: foreign},
			`the controller of the group "awspca.cert-manager.io" is installed and runs`, "cert-manager -n"},
		"a webhook": {Scene{Cause: New(Webhook, "", "Secret web", "no")}, "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations", "quota"},
		"a pause": {Scene{Cause: New(Class(fault.ClassPaused), acme.CodeRateLimited.Type(), "", "https://ca.example/unpause")},
			"lift the pause", "Wait"},
	} {
		if got := c.scene.Cure(); !strings.Contains(got, c.says) || strings.Contains(got, c.not) {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := Sentence(caa); got != "www.example.com: the CA refused: CAA record for example.com prevents issuance" {
		t.Error(got)
	}
	for class, says := range map[fault.Class]string{
		fault.ClassValidation: "the CA does not find the answer: no", fault.ClassRefused: "the CA refused: no", fault.ClassUnavailable: "not reached, or out of order: no",
	} {
		if got := Sentence(New(Class(class), acme.CodeUnauthorized.Type(), "", "no")); got != says {
			t.Errorf("%s: %s", class, got)
		}
	}
	if got := (&Scene{Cause: caa}).Ready("Certificate is up to date and has not expired", true); !strings.HasPrefix(got, "Certificate is up to date and has not expired; www.") {
		t.Error(got)
	}
	var none *cmmeta.Cause
	if Sentence(none) != "" || IsWrite(none) || !none.SameAs(nil) || none.SameAs(caa) {
		t.Error("no cause is one")
	}
}

// TestCommands: what to run is what the cure says, and no name that a stranger has chosen ends up as a command.
func TestCommands(t *testing.T) {
	t.Parallel()
	at := func(how acmev1.ACMEChallengeType, host string) *acmev1.Challenge {
		c := &acmev1.Challenge{}
		c.Spec.DNSName, c.Spec.Type = host, how
		return c
	}
	missing, unseen := New(IssuerMissing, "", "Issuer shop/acme", ""), New(Class(fault.ClassSelfCheck), "", "www.example.com", "no")
	ca := &certmanagerv1.ClusterIssuer{}
	ca.Name = "internal"
	for want, scene := range map[string]Scene{
		"": {},
		`kubectl patch certificate -n shop web --type merge -p '{"spec":{"issuerRef":{"kind":"ClusterIssuer"}}}'`: {Cause: missing, OtherKind: "ClusterIssuer", Namespace: "shop", Certificate: "web"},
		"kubectl get clusterissuers,issuers -n shop":                                                              {Cause: missing, Namespace: "shop", Certificate: "web"},
		"kubectl edit clusterissuer internal":                                                                     {Cause: New(IssuerNotReady, "", "ClusterIssuer internal", ""), Issuer: ca},
		"dig CAA www.example.com":                                                                                 {Cause: New(Class(fault.ClassValidation), acme.CodeCAA.Type(), "www.example.com", "no")},
		"curl -v http://www.example.com/.well-known/acme-challenge/test":                                          {Cause: unseen, Challenge: at(acmev1.ChallengeTypeHTTP01, "www.example.com")},
		`dig +trace TXT '_acme-challenge.x;$(reboot)'\'''`:                                                        {Cause: unseen, Challenge: at(acmev1.ChallengeTypeDNS01, "x;$(reboot)'")},
		"kubectl delete -n shop secret web":                                                                       {Cause: New(Immutable, "", "Secret web", "no"), Namespace: "shop"},
		"kubectl describe resourcequota -n shop":                                                                  {Cause: New(Quota, "", "Secret web", "no"), Namespace: "shop"},
		"kubectl chancery renew -n shop web":                                                                      {Cause: New(CAExpired, "", "", ""), Namespace: "shop", Certificate: "web"},
		"kubectl annotate certificate -n shop web " + cmmeta.PausedAnnotation + "-":                               {Cause: New(Paused, "", "", ""), Namespace: "shop", Certificate: "web"},
	} {
		if got := scene.Command(); got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
}
