package vault_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"regexp"
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
)

func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/pods.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// role returns the settings of the role for Pods that docs/pods.md has.
func role(t *testing.T) map[string]any {
	t.Helper()
	_, block, found := strings.Cut(page(t), "vault write pki-pods/roles/pods")
	block, _, _ = strings.Cut(block, "\nvault")
	settings := map[string]any{}
	for _, s := range regexp.MustCompile(`(\w+)='?([^'\s]+)`).FindAllStringSubmatch(block, -1) {
		settings[s[1]] = s[2]
	}
	if !found || len(settings) < 5 {
		t.Fatalf("docs/pods.md has no role for Pods: %v", settings)
	}
	return settings
}

// newPodScene is newScene with controllers that sign for Pods, and a kubelet.
func newPodScene(t *testing.T) (*scene, client.Client) {
	t.Helper()
	s := &scene{World: rig.NewWorld(t), t: t, vault: vault.Start(t)}
	s.root = s.vault.MountPKI()
	kubelet, cfg := s.Kubelet(t), s.Config()
	cfg.PodCertificates = true
	s.Run(t, cfg)
	return s, kubelet
}

// podIssuer makes an Issuer that signs for Pods at a path, with a token of a policy, and waits until it is ready.
func (s *scene) podIssuer(path, policy string) {
	s.t.Helper()
	spec := s.spec(s.byToken(policy))
	spec.Vault.Path = path
	issuer := &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "pods", Annotations: map[string]string{
		certmanagerv1.PodCertificatesAnnotation: "prod.example.com", certmanagerv1.PodCertificatesForAnnotation: "all",
	}}, Spec: spec}
	s.Create(s.t, issuer)
	s.awaitIssuer(issuer, cmmeta.ConditionTrue, "Vault verified")
}

// TestPods: Vault signs for Pods by the role that docs/pods.md has. With a role that takes no names, or makes
// certificates for longer than the Pod may have, the request waits and the Pod says why. As soon as the role is
// corrected, the same request is signed.
func TestPods(t *testing.T) {
	t.Parallel()
	s, kubelet := newPodScene(t)
	right := role(t)
	with := func(changes map[string]any) {
		settings := map[string]any{}
		for _, from := range []map[string]any{right, changes} {
			for key, value := range from {
				settings[key] = value
			}
		}
		s.vault.Put("pki_int/roles/pods", settings)
	}
	s.podIssuer("pki_int/sign/pods", "sign")
	s.Create(t, &corev1.Service{ObjectMeta: named("web"), Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 443}}}})
	for _, c := range []struct {
		pod, says string
		role      map[string]any
		seconds   int32
		services  string
	}{
		{"day", "", nil, 86400, ""},
		{"hour", "", nil, 3600, ""},
		{"of-a-service", "", nil, 86400, "web"},
		{"no-names", "has the names []", map[string]any{"use_csr_sans": true}, 86400, ""},
		{"no-common-name", "require_cn", map[string]any{"require_cn": true}, 86400, ""},
		{"backdated", "valid for 24h3m30s", map[string]any{"not_before_duration": "4m"}, 86400, ""},
		{"elsewhere", "not valid for this role", map[string]any{"allowed_uri_sans": "spiffe://test.example.com/*"}, 86400, ""},
		{"short", "valid for 30m30s", map[string]any{"max_ttl": "30m"}, 86400, ""},
		{"servers-only", "lacks one of the usages", map[string]any{"client_flag": false}, 86400, ""},
		{"rsa", "keys of type rsa", map[string]any{"key_type": "rsa"}, 86400, ""},
		{"organization", "O=us", map[string]any{"organization": "us"}, 86400, ""},
	} {
		with(c.role)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: c.pod, Labels: map[string]string{"app": "web"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}}}
		s.Create(t, pod)
		pcr, key := s.PodRequest(t, c.pod, "web", "issuers.cert-manager.io/"+s.Namespace+".pods", x509.CertificateRequest{})
		pcr.Spec.PodUID, pcr.Spec.MaxExpirationSeconds = pod.UID, &c.seconds
		if c.services != "" {
			pcr.Spec.UnverifiedUserAnnotations = map[string]string{certmanagerv1.PodServicesAnnotation: c.services}
		}
		if err := kubelet.Create(t.Context(), pcr); err != nil {
			t.Fatal(err)
		}
		if c.says != "" {
			s.says(pod, c.says)
			with(nil)
		}
		leaf := s.signedFor(pcr)
		life := leaf.NotAfter.Sub(leaf.NotBefore)
		if most := time.Duration(c.seconds) * time.Second; !pki.PublicKeysEqual(leaf.PublicKey, key.Public()) || life > most || life < most-time.Minute {
			t.Errorf("%s: valid for %s", c.pod, life)
		}
		names := []string{"spiffe://prod.example.com/ns/" + s.Namespace + "/sa/web"}
		if c.services != "" {
			names = append(names, "web."+s.Namespace+".svc", "web."+s.Namespace+".svc.cluster.local")
		}
		if got := append([]string{leaf.URIs[0].String()}, leaf.DNSNames...); !slices.Equal(got, names) {
			t.Errorf("%s: %q, want %q", c.pod, got, names)
		}
	}
}

// TestPodsOfAShortCA: a CA that ends before a day is over signs until it ends, with the setting that docs/pods.md has.
// Without it, Vault refuses, and the Pod says so.
func TestPodsOfAShortCA(t *testing.T) {
	t.Parallel()
	s, kubelet := newPodScene(t)
	s.vault.Put("sys/mounts/short", map[string]any{"type": "pki"})
	s.vault.Put("short/root/generate/internal", map[string]any{"common_name": "short", "ttl": "5h", "key_type": "ec"})
	s.vault.Put("short/roles/pods", role(t))
	s.vault.Put("sys/policies/acl/short", map[string]any{"policy": `path "short/sign/*" { capabilities = ["update"] }`})
	s.podIssuer("short/sign/pods", "short")
	pod := &corev1.Pod{ObjectMeta: named("web"), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}}}
	s.Create(t, pod)
	pcr, _ := s.PodRequest(t, "web", "web", "issuers.cert-manager.io/"+s.Namespace+".pods", x509.CertificateRequest{})
	pcr.Spec.PodUID = pod.UID
	if err := kubelet.Create(t.Context(), pcr); err != nil {
		t.Fatal(err)
	}
	s.says(pod, "beyond the expiration of the CA certificate")
	setting := regexp.MustCompile(`vault patch pki-pods/issuer/default (\w+)=(\w+)`).FindStringSubmatch(page(t))
	if setting == nil {
		t.Fatal("docs/pods.md has no setting for a CA that ends")
	}
	s.vault.Do(http.MethodPatch, "short/issuer/default", map[string]any{setting[1]: setting[2]})
	s.awaitVerdict(pcr)
	if life := pcr.Status.NotAfter.Sub(pcr.Status.NotBefore.Time); life > 5*time.Hour+time.Minute || life < 4*time.Hour {
		t.Errorf("valid for %s", life)
	}
}

// says awaits an event about a Pod that has words.
func (s *scene) says(pod *corev1.Pod, words string) {
	s.t.Helper()
	rig.Eventually(s.t, "an event about the Pod "+pod.Name+" says "+words, func(ctx context.Context) string {
		events := &corev1.EventList{}
		if err := s.Client.List(ctx, events, client.InNamespace(s.Namespace)); err != nil {
			return err.Error()
		}
		var all []string
		for _, e := range events.Items {
			if e.InvolvedObject.UID == pod.UID {
				all = append(all, e.Message)
			}
		}
		if text := strings.Join(all, "; "); !strings.Contains(text, words) {
			return text
		}
		return ""
	})
}

// awaitVerdict awaits the certificate of a request.
func (s *scene) awaitVerdict(pcr *certificatesv1.PodCertificateRequest) {
	s.t.Helper()
	rig.Eventually(s.t, pcr.Name+" has a certificate", func(ctx context.Context) string {
		if err := s.Client.Get(ctx, client.ObjectKeyFromObject(pcr), pcr); err != nil {
			return err.Error()
		}
		if pcr.Status.CertificateChain == "" {
			return fmt.Sprintf("%+v", pcr.Status.Conditions)
		}
		return ""
	})
}

// signedFor awaits the certificate of a request, and verifies its chain.
func (s *scene) signedFor(pcr *certificatesv1.PodCertificateRequest) *x509.Certificate {
	s.t.Helper()
	s.awaitVerdict(pcr)
	chain, err := pki.DecodeChain([]byte(pcr.Status.CertificateChain))
	if err != nil || len(chain) != 2 {
		s.t.Fatalf("chain of %d: %v", len(chain), err)
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(s.root)
	between.AddCert(chain[1])
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if _, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
			s.t.Error(err)
		}
	}
	return chain[0]
}
