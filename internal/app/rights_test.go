package app_test

import (
	"context"
	"crypto/x509/pkix"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/machine/revocation"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/rig/pebble"
	"chancery.dev/internal/rig/tppserver"
	"chancery.dev/internal/solver/dns01/provider/rfc2136"
)

// The groups whose rights are looked at.
const (
	coreGroup = ""
	cmGroup   = "cert-manager.io"
	acmeGroup = "acme.cert-manager.io"
	csrGroup  = "certificates.k8s.io"
)

// right is one verb on one resource.
type right struct{ group, resource, verb string }

// says is how the API server names a right that is missing.
func (r right) says() string {
	switch r {
	case right{cmGroup, "signers", "approve"}:
		return "does not have permissions to set approved/denied conditions for issuer"
	case right{csrGroup, "signers", "approve"}:
		return "user not permitted to approve requests with signerName"
	case right{csrGroup, "signers", "sign"}:
		return "user not permitted to sign requests with signerName"
	default:
		return fmt.Sprintf("cannot %s resource %q in API group %q", r.verb, r.resource, r.group)
	}
}

// story is what has to happen for a right to be needed: it is told to controllers that lack it.
type story func(t *testing.T, w *rig.World, p peers)

// peers are the other sides, which all worlds share.
type peers struct {
	dns *dnsserver.Server
	ca  *pebble.Server
}

// tsigSecret is the key of updates to the DNS server.
const tsigSecret = "c2VjcmV0IG9mIHRoZSB0ZXN0"

func newPeers(t *testing.T) peers {
	t.Helper()
	key, err := rfc2136.NewKey("chancery.", "HMACSHA256", tsigSecret)
	if err != nil {
		t.Fatal(err)
	}
	dns, err := dnsserver.Start(t.Context(), dnsserver.Config{Zones: []dnsserver.Zone{{Name: "example.com.", Wildcard: netip.MustParseAddr("127.0.0.1")}}, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pebble.Start(t.Context(), pebble.Options{DNSServer: dns.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	return peers{dns, ca}
}

// stories says what each right is needed for. A right without a row fails the test, so does
// a row without a right.
func stories() map[right]story {
	all := map[right]story{
		{coreGroup, "events", "create"}:           issue,
		{coreGroup, "secrets", "get"}:             foreignSecret,
		{coreGroup, "secrets", "create"}:          issue,
		{coreGroup, "secrets", "patch"}:           issue,
		{coreGroup, "secrets", "delete"}:          issue,
		{cmGroup, "certificates/status", "patch"}: issue, {cmGroup, "issuers/status", "patch"}: issue,
		{cmGroup, "clusterissuers/status", "patch"}:                 signingRequest,
		{cmGroup, "certificaterequests", "create"}:                  issue,
		{cmGroup, "certificaterequests", "delete"}:                  amend,
		{cmGroup, "certificaterequests", "patch"}:                   venafi,
		{cmGroup, "certificaterequests/status", "patch"}:            issue,
		{cmGroup, "certificates", "patch"}:                          revoke,
		{cmGroup, "certificates", "create"}:                         annotate,
		{cmGroup, "certificates", "delete"}:                         annotateOtherwise,
		{cmGroup, "signers", "approve"}:                             issue,
		{cmGroup, "clusterissuers", "get"}:                          missingIssuer,
		{csrGroup, "certificatesigningrequests", "patch"}:           venafi,
		{csrGroup, "certificatesigningrequests/approval", "update"}: signingRequest,
		{csrGroup, "certificatesigningrequests/status", "patch"}:    signingRequest,
		{csrGroup, "signers", "approve"}:                            signingRequest,
		{csrGroup, "signers", "sign"}:                               signingRequest,
		{"authorization.k8s.io", "subjectaccessreviews", "create"}:  caSigningRequest,
		{acmeGroup, "orders", "create"}:                             placeOrder,
		{acmeGroup, "orders", "issue"}:                              placeOrder,
		{acmeGroup, "orders/status", "patch"}:                       placeOrder,
		{acmeGroup, "challenges", "create"}:                         placeOrder,
		{acmeGroup, "challenges", "issue"}:                          placeOrder,
		{acmeGroup, "challenges", "patch"}:                          placeOrder,
		{acmeGroup, "challenges", "delete"}:                         placeOrder,
		{acmeGroup, "challenges/status", "patch"}:                   placeOrder,
	}
	for _, watched := range []right{
		{group: coreGroup, resource: "secrets"}, {group: cmGroup, resource: "certificates"}, {group: cmGroup, resource: "certificaterequests"},
		{group: cmGroup, resource: "issuers"}, {group: cmGroup, resource: "clusterissuers"}, {group: acmeGroup, resource: "orders"},
		{group: acmeGroup, resource: "challenges"}, {group: csrGroup, resource: "certificatesigningrequests"},
		{group: "networking.k8s.io", resource: "ingresses"},
	} {
		watched.verb = "watch"
		all[watched] = nil // needed from the start
	}
	return all
}

// rare are rights whose want cannot be shown here, and why.
func rare() map[right]string {
	const lists = "only where the API server does not stream lists"
	const owners = "only where the admission plugin OwnerReferencesPermissionEnforcement is on"
	return map[right]string{
		{cmGroup, "certificates/finalizers", "update"}:        owners,
		{cmGroup, "certificaterequests/finalizers", "update"}: owners,
		{acmeGroup, "orders/finalizers", "update"}:            owners,
		{acmeGroup, "challenges/finalizers", "update"}:        owners,
		{cmGroup, "certificates", "list"}:                     lists, {cmGroup, "certificaterequests", "list"}: lists, {cmGroup, "issuers", "list"}: lists,
		{cmGroup, "clusterissuers", "list"}: lists, {acmeGroup, "orders", "list"}: lists, {acmeGroup, "challenges", "list"}: lists,
		{csrGroup, "certificatesigningrequests", "list"}: lists,
		{coreGroup, "events", "patch"}:                   "an event that is said again soon",
		{acmeGroup, "orders", "delete"}:                  "a CA that issued for another key",
		{acmeGroup, "orders", "get"}:                     "an Order that was made by a process which died",
		{cmGroup, "certificaterequests", "get"}:          "a request that was made by a process which died",
		{acmeGroup, "challenges", "get"}:                 "a Challenge that was made by a process which died",
		{cmGroup, "issuers", "get"}:                      "as for ClusterIssuers",
		{cmGroup, "certificates", "get"}:                 "the certificate that an Order replaces",
	}
}

// TestEachRight takes one right after the other from the controller's role, and looks for the
// words that name it in the log, where all events are too.
func TestEachRight(t *testing.T) {
	t.Parallel()
	admin, p := rig.NewWorld(t), newPeers(t)
	role := &rbacv1.ClusterRole{}
	if err := admin.Client.Get(t.Context(), client.ObjectKey{Name: "chancery-controller"}, role); err != nil {
		t.Fatal(err)
	}
	known, rights := stories(), singles(role.Rules)
	groups := []string{cmGroup, csrGroup, acmeGroup, "authorization.k8s.io"}
	for _, rule := range rights {
		r := rightOf(rule)
		_, told := known[r]
		if _, excused := rare()[r]; !told && !excused && slices.Contains(groups, r.group) {
			t.Errorf("nobody knows what the right to %s %s.%s is for", r.verb, r.resource, r.group)
		}
	}
	for missing, tell := range known {
		rest := slices.DeleteFunc(slices.Clone(rights), func(rule rbacv1.PolicyRule) bool { return rightOf(rule) == missing })
		if len(rest) == len(rights) {
			t.Errorf("the controller does not have the right to %s %s.%s: remove the row", missing.verb, missing.resource, missing.group)
			continue
		}
		t.Run(strings.Join([]string{missing.verb, missing.resource, missing.group}, " "), func(t *testing.T) {
			t.Parallel()
			w := rig.NewWorld(t)
			user := "lacking-" + w.Namespace
			grant(t, w, user, rest...)
			j := &journal{}
			cfg := w.Config()
			cfg.ACME.RecursiveNameservers, cfg.ACME.AuthoritativePort = []string{p.dns.Addr()}, p.dns.Port()
			stop := w.RunLogged(t, cfg, rig.As(w.Admin, user), j.logger())
			if tell != nil {
				tell(t, w, p)
			}
			j.await(t, missing.says())
			stop()
		})
	}
}

// singles splits rules into those of one verb on one resource.
func singles(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					out = append(out, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb}, ResourceNames: rule.ResourceNames})
				}
			}
		}
	}
	return out
}

func rightOf(single rbacv1.PolicyRule) right {
	return right{single.APIGroups[0], single.Resources[0], single.Verbs[0]}
}

func issue(t *testing.T, w *rig.World, _ peers) {
	t.Helper()
	smallCA(t, w)
}

// amend issues a Certificate twice; its first request then goes.
func amend(t *testing.T, w *rig.World, _ peers) {
	t.Helper()
	change(t, w, func(crt *certmanagerv1.Certificate) { crt.Spec.DNSNames = []string{"amended.example.com"} })
}

// revoke has a Certificate's annotation carried out, which then goes.
func revoke(t *testing.T, w *rig.World, _ peers) {
	t.Helper()
	change(t, w, func(crt *certmanagerv1.Certificate) {
		crt.Annotations = map[string]string{revocation.Annotation: "superseded"}
	})
}

// change changes a Certificate once it is issued.
func change(t *testing.T, w *rig.World, by func(*certmanagerv1.Certificate)) {
	t.Helper()
	smallCA(t, w)
	certificateReady(t, w, "web")
	crt := &certmanagerv1.Certificate{}
	if err := w.Get(t.Context(), "web", crt); err != nil {
		t.Fatal(err)
	}
	changed := crt.DeepCopy()
	by(changed)
	if err := w.Client.Patch(t.Context(), changed, client.MergeFrom(crt)); err != nil {
		t.Fatal(err)
	}
}

// annotate has an Ingress ask for a Certificate.
func annotate(t *testing.T, w *rig.World, _ peers) {
	t.Helper()
	w.Create(t, &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Name: "site", Annotations: map[string]string{"cert-manager.io/issuer": "self"}},
		Spec: networkingv1.IngressSpec{
			DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "site", Port: networkingv1.ServiceBackendPort{Number: 80}}},
			TLS:            []networkingv1.IngressTLS{{SecretName: "site", Hosts: []string{"site.example.com"}}},
		},
	})
}

// annotateOtherwise has an Ingress ask for another Certificate than before.
func annotateOtherwise(t *testing.T, w *rig.World, p peers) {
	t.Helper()
	annotate(t, w, p)
	rig.Eventually(t, "the Certificate is made", func(ctx context.Context) string {
		if err := w.Get(ctx, "site", &certmanagerv1.Certificate{}); err != nil {
			return err.Error()
		}
		return ""
	})
	site := &networkingv1.Ingress{}
	if err := w.Get(t.Context(), "site", site); err != nil {
		t.Fatal(err)
	}
	changed := site.DeepCopy()
	changed.Spec.TLS[0].SecretName = "other"
	if err := w.Client.Patch(t.Context(), changed, client.MergeFrom(site)); err != nil {
		t.Fatal(err)
	}
}

// foreignSecret makes an issuer read a Secret that is not ours.
func foreignSecret(t *testing.T, w *rig.World, _ peers) {
	t.Helper()
	w.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}},
		&certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}, Spec: certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "foreign"}}})
}

// newCSR is a CertificateSigningRequest for a ClusterIssuer of the world.
func newCSR(t *testing.T, w *rig.World, issuer string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	text, err := pki.EncodePKCS8(key)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := pki.CreateCSR(pki.CSRTemplate{Subject: pkix.Name{CommonName: "a.example.com"}, AltNames: pki.AltNames{DNSNames: []string{"a.example.com"}}}, key)
	if err != nil {
		t.Fatal(err)
	}
	w.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "key"}, Data: map[string][]byte{cmmeta.TLSPrivateKeyKey: text}})
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: w.ClusterName("csr"), Annotations: map[string]string{certmanagerv1.CSRPrivateKeyAnnotation: "key"}},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: csr, SignerName: "cert-manager.io/" + w.ClusterName(issuer), Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature},
		},
	}
}

func selfSigner(w *rig.World) *certmanagerv1.ClusterIssuer {
	return &certmanagerv1.ClusterIssuer{ObjectMeta: metav1.ObjectMeta{Name: w.ClusterName("self")}, Spec: certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}}
}

func signingRequest(t *testing.T, w *rig.World, _ peers) {
	t.Helper()
	w.Create(t, selfSigner(w), newCSR(t, w, "self"))
}

// caSigningRequest asks for a CA certificate, which needs the verb reference.
func caSigningRequest(t *testing.T, w *rig.World, _ peers) {
	t.Helper()
	csr := newCSR(t, w, "self")
	csr.Annotations[certmanagerv1.CSRIsCAAnnotation] = "true"
	w.Create(t, selfSigner(w), csr)
}

// missingIssuer asks the API server whether an issuer does not exist.
func missingIssuer(t *testing.T, w *rig.World, _ peers) {
	t.Helper()
	w.Create(t, newCSR(t, w, "nobody"))
}

// placeOrder places an Order, by DNS-01.
func placeOrder(t *testing.T, w *rig.World, p peers) {
	t.Helper()
	w.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "tsig"}, StringData: map[string]string{"key": tsigSecret}},
		&certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "acme"}, Spec: certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{
			Server: p.ca.DirectoryURL, CABundle: p.ca.TLSBundle, PrivateKey: cmmeta.SecretKeySelector{Name: "account"},
			Solvers: []acmev1.ACMEChallengeSolver{{DNS01: &acmev1.DNS01Solver{RFC2136: &acmev1.RFC2136Provider{
				Nameserver: p.dns.Addr(), TSIGKeyName: "chancery", TSIGAlgorithm: "HMACSHA256", TSIGSecretSecretRef: cmmeta.SecretKeySelector{Name: "tsig", Key: "key"},
			}}}},
		}}},
		&certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: certmanagerv1.CertificateSpec{
			SecretName: "web", DNSNames: []string{w.Namespace + ".example.com"}, IssuerRef: cmmeta.IssuerReference{Name: "acme"},
			PrivateKey: &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm},
		}})
}

// venafi stores a pickup id on a request of each kind.
func venafi(t *testing.T, w *rig.World, _ peers) {
	t.Helper()
	tpp := tppserver.Start(t)
	spec := tpp.Spec("venafi")
	csr := newCSR(t, w, "venafi")
	w.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "venafi"}, StringData: map[string]string{"access-token": tppserver.Token}},
		&certmanagerv1.ClusterIssuer{ObjectMeta: metav1.ObjectMeta{Name: w.ClusterName("venafi")}, Spec: certmanagerv1.IssuerSpec{Venafi: &spec}})
	rig.Eventually(t, "the issuer is ready", func(ctx context.Context) string {
		issuer := &certmanagerv1.ClusterIssuer{}
		if err := w.Get(ctx, w.ClusterName("venafi"), issuer); err != nil {
			return err.Error()
		}
		if !certmanagerv1.HasIssuerCondition(issuer.Status.Conditions, certmanagerv1.IssuerConditionReady, cmmeta.ConditionTrue) {
			return fmt.Sprintf("%+v", issuer.Status.Conditions)
		}
		return ""
	})
	w.Create(t, csr, &certmanagerv1.CertificateRequest{ObjectMeta: metav1.ObjectMeta{Name: "venafi"}, Spec: certmanagerv1.CertificateRequestSpec{
		Request: csr.Spec.Request, IssuerRef: cmmeta.IssuerReference{Name: w.ClusterName("venafi"), Kind: cmmeta.ClusterIssuerKind},
	}})
}

// TestForbiddenApprovalOrdersNothing: what the built-in approver may not approve is not ordered either.
func TestForbiddenApprovalOrdersNothing(t *testing.T) {
	t.Parallel()
	w, p := rig.NewWorld(t), newPeers(t)
	role := &rbacv1.ClusterRole{}
	if err := w.Client.Get(t.Context(), client.ObjectKey{Name: "chancery-controller"}, role); err != nil {
		t.Fatal(err)
	}
	user := "lacking-" + w.Namespace
	grant(t, w, user, slices.DeleteFunc(singles(role.Rules), func(rule rbacv1.PolicyRule) bool { return rightOf(rule) == right{cmGroup, "signers", "approve"} })...)
	j := &journal{}
	w.RunLogged(t, w.Config(), rig.As(w.Admin, user), j.logger())
	placeOrder(t, w, p)
	j.await(t, "ApprovalForbidden", "grant it to the controller's service account, or approve the request")
	orders := &acmev1.OrderList{}
	if err := w.Client.List(t.Context(), orders, client.InNamespace(w.Namespace)); err != nil || len(orders.Items) != 0 {
		t.Errorf("%d Orders, %v", len(orders.Items), err)
	}
}

// TestLeaseRight: without the right to the lease nothing is done, and the log says why.
func TestLeaseRight(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	user := "lacking-" + w.Namespace
	w.Create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "chancery-controller"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	})
	cfg := w.Config()
	cfg.LeaderElect, cfg.LeaderElectionNamespace = true, w.Namespace
	j := &journal{}
	w.RunLogged(t, cfg, rig.As(w.Admin, user), j.logger())
	j.await(t, `cannot get resource "leases" in API group "coordination.k8s.io" in the namespace "`+w.Namespace+`"`)
}
