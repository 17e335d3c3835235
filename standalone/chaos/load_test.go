package chaos

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
)

// load is what users do meanwhile: objects come, change and go.
type load struct {
	w      *world
	random *mathrand.Rand
	// hosts is how many DNS names new objects take in turn.
	hosts int

	// running is held while something is done.
	running sync.Mutex
	n       int
	// done counts what was done, and failed what the API server has not taken.
	done   map[string]int
	failed int
	// allowed is how often each Certificate may have been issued at most.
	allowed map[string]int
}

// pace is how long a user waits between two things.
const pace = 400 * time.Millisecond

func (l *load) run(ctx context.Context) {
	for ctx.Err() == nil {
		l.running.Lock()
		l.step(ctx)
		l.running.Unlock()
		sleep(ctx, pace)
	}
}

// step does one thing. What the API server does not answer may have been done: it counts.
func (l *load) step(ctx context.Context) {
	l.n++
	name := fmt.Sprintf("c-%d", l.n)
	host := fmt.Sprintf("c-%d.example.com", l.n%l.hosts)
	var what string
	var err error
	switch l.random.IntN(12) {
	case 0, 1, 2:
		what, err = "Certificates by ACME", l.create(ctx, certificate(name, "acme", host))
	case 3, 4:
		what, err = "Certificates by a CA", l.create(ctx, certificate(name, "ca", host))
	case 5:
		what, err = "self-signed Certificates", l.create(ctx, certificate(name, "own", host))
	case 6:
		what, err = "Ingresses", l.createIngress(ctx, name)
	case 7:
		what, err = "CertificateSigningRequests", l.createRequest(ctx, name)
	case 8:
		what, err = "Secrets deleted", l.change(ctx, func(crt *certmanagerv1.Certificate) error {
			return l.w.client.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: crt.Spec.SecretName}})
		})
	case 9:
		what, err = "Certificates changed", l.change(ctx, func(crt *certmanagerv1.Certificate) error {
			changed := crt.DeepCopy()
			changed.Spec.DNSNames = []string{crt.Spec.DNSNames[0], "changed-" + host}
			return l.w.client.Patch(ctx, changed, client.MergeFrom(crt))
		})
	case 10:
		what, err = "Certificates deleted", l.change(ctx, func(crt *certmanagerv1.Certificate) error { return l.w.client.Delete(ctx, crt) })
	case 11:
		what, err = "Certificates renewed", l.change(ctx, func(crt *certmanagerv1.Certificate) error { return renew(ctx, l.w.client, crt) })
	}
	if err != nil {
		l.failed++
		return
	}
	l.done[what]++
}

func (l *load) create(ctx context.Context, crt *certmanagerv1.Certificate) error {
	l.allowed[crt.Name]++
	return l.w.client.Create(ctx, crt)
}

func (l *load) createIngress(ctx context.Context, name string) error {
	l.allowed[name]++
	return l.w.client.Create(ctx, &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{certmanagerv1.IngressIssuerAnnotation: "ca"}},
		Spec: networkingv1.IngressSpec{
			DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}},
			TLS:            []networkingv1.IngressTLS{{SecretName: name, Hosts: []string{name + ".example.com"}}},
		},
	})
}

func (l *load) createRequest(ctx context.Context, name string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}, DNSNames: []string{name + ".example.com"}}, key)
	if err != nil {
		return err
	}
	return l.w.client.Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: "cert-manager.io/ca", Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
		},
	})
}

// change does something with a Certificate that a user has made, and no Ingress.
func (l *load) change(ctx context.Context, do func(*certmanagerv1.Certificate) error) error {
	list := &certmanagerv1.CertificateList{}
	if err := l.w.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return err
	}
	var users []*certmanagerv1.Certificate
	for i := range list.Items {
		if crt := &list.Items[i]; crt.Name != "root" && len(crt.OwnerReferences) == 0 {
			users = append(users, crt)
		}
	}
	if len(users) == 0 {
		return nil
	}
	crt := users[l.random.IntN(len(users))]
	l.allowed[crt.Name]++
	return do(crt)
}

// restored forgets how often Certificates may have been issued: the store of the API server is older than they are.
func (l *load) restored() {
	for name := range l.allowed {
		l.allowed[name] += l.n
	}
}

// renew reissues a Certificate, as kubectl chancery renew does.
func renew(ctx context.Context, c client.Client, crt *certmanagerv1.Certificate) error {
	changed := crt.DeepCopy()
	certmanagerv1.SetCertificateCondition(changed, certmanagerv1.CertificateCondition{
		Type: certmanagerv1.CertificateConditionIssuing, Status: cmmeta.ConditionTrue, Reason: certmanagerv1.CertificateReasonManuallyTriggered, Message: "renewed by a user",
	}, time.Now())
	return c.Status().Patch(ctx, changed, client.MergeFromWithOptions(crt, client.MergeFromWithOptimisticLock{}))
}
