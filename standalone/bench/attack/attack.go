package attack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
)

// Namespace is where the attack comes from.
const Namespace = "bench-hostile"

const (
	// ingresses have so many entries for TLS each: 2.4 MB of JSON, which the API server takes.
	ingresses  = 10
	tlsEntries = 110_000
	// churned Issuers with CA bundles of so many bytes are made and deleted; where the API server refuses these, of the
	// lesser size. It is looked every so often whether the controller has seen one.
	churned           = 150
	churnedBundle     = 1_000_000
	churnedBundleLess = 300_000
	lookEvery         = 50 * time.Millisecond
	// each is how many Issuers there are at servers of each protocol and way.
	each = 8
	// askEvery is the time between two requests for certificates of hostile Issuers.
	askEvery = 300 * time.Millisecond
)

// Attack is one that is under way. Use Start.
type Attack struct {
	client client.Client
	server *hostile

	end      context.CancelFunc
	asked    sync.WaitGroup
	requests int
}

// With is what an attack needs. The attack asks for certificates for Name. CSR is the PEM of a request for Name, and
// ManyNamed that of a request for many names below Name. Solver presents challenges for names below Name.
type With struct {
	Name           string
	CSR, ManyNamed []byte
	Solver         acmev1.ACMEChallengeSolver
}

// Start stores what attacks, and asks hostile servers for certificates until Stop is called. The servers end with
// ctx.
func Start(ctx context.Context, c client.Client, with *With) (*Attack, error) {
	name := with.Name
	server, err := startHostile(ctx, name)
	if err != nil {
		return nil, err
	}
	a := &Attack{client: c, server: server}
	accounts, err := json.Marshal(map[string]any{name: map[string]string{
		"username": "u", "password": "p", "fulldomain": "f." + name, "subdomain": "f",
	}})
	if err != nil {
		return nil, err
	}
	data := map[string][]byte{"accounts": accounts, "token": []byte("token"), "access-token": []byte("token")}
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}}, &corev1.Secret{ObjectMeta: named("hostile"), Data: data},
	}
	for n := range ingresses {
		objects = append(objects, largeIngress(n))
	}
	issuers := server.issuers()
	for _, issuer := range issuers {
		objects = append(objects, issuer)
	}
	objects = append(objects, server.crowd(with.Solver)...)
	for _, object := range objects {
		if err := c.Create(ctx, object); err != nil {
			return nil, fmt.Errorf("create what attacks: %w", err)
		}
	}
	if err := a.churn(ctx); err != nil {
		return nil, err
	}
	asking, end := context.WithCancel(ctx)
	a.end = end
	a.asked.Go(func() { a.ask(asking, issuers, with) })
	return a, nil
}

// Stop ends the requests for certificates. It returns how many there were, and how many large answers servers have
// sent.
func (a *Attack) Stop() (requests, answers int) {
	a.end()
	a.asked.Wait()
	return a.requests, int(a.server.served.Load())
}

// ask requests certificates of hostile Issuers, one after the other, until ctx ends.
func (a *Attack) ask(ctx context.Context, issuers []*certmanagerv1.Issuer, with *With) {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		issuer, csr := issuers[n%len(issuers)].Name, with.CSR
		if strings.HasPrefix(issuer, "venafi-policy") {
			csr = with.ManyNamed
		}
		if a.client.Create(ctx, &certmanagerv1.CertificateRequest{
			ObjectMeta: named(fmt.Sprint("request-", n)),
			Spec:       certmanagerv1.CertificateRequestSpec{Request: csr, IssuerRef: cmmeta.IssuerReference{Name: issuer}},
		}) == nil {
			a.requests++
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// churn makes Issuers with large CA bundles, waits until the controller has looked at each, and deletes it.
func (a *Attack) churn(ctx context.Context) error {
	size := churnedBundle
	for n := 0; n < churned; {
		issuer := a.server.vault(fmt.Sprint("churned-", n), a.server.secure+"/headers/churned/")
		issuer.Spec.Vault.CABundle = bytes.Repeat(a.server.bundle, size/len(a.server.bundle))
		err := a.client.Create(ctx, issuer)
		if apierrors.IsInvalid(err) && size == churnedBundle {
			size = churnedBundleLess
			continue
		}
		if err != nil {
			return err
		}
		for tick := 0; tick < 100 && len(issuer.Status.Conditions) == 0; tick++ {
			if err := sleep(ctx, lookEvery); err != nil {
				return err
			}
			if err := a.client.Get(ctx, client.ObjectKeyFromObject(issuer), issuer); err != nil {
				return err
			}
		}
		if err := a.client.Delete(ctx, issuer); err != nil {
			return err
		}
		n++
	}
	return nil
}

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: Namespace, Name: name}
}

// largeIngress is an Ingress without annotations that names as many Secrets as fit.
func largeIngress(n int) client.Object {
	tls := make([]networkingv1.IngressTLS, tlsEntries)
	for i := range tls {
		tls[i].SecretName = fmt.Sprintf("%05x", i)
	}
	backend := &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "none", Port: networkingv1.ServiceBackendPort{Number: 80}}}
	return &networkingv1.Ingress{ObjectMeta: named(fmt.Sprint("ingress-", n)), Spec: networkingv1.IngressSpec{DefaultBackend: backend, TLS: tls}}
}

// vault returns an Issuer at a Vault.
func (h *hostile) vault(name, address string) *certmanagerv1.Issuer {
	return &certmanagerv1.Issuer{ObjectMeta: named(name), Spec: certmanagerv1.IssuerSpec{Vault: &certmanagerv1.VaultIssuer{
		Server: address, Path: "pki/sign/any", CABundle: h.bundle,
		Auth: certmanagerv1.VaultAuth{TokenSecretRef: &cmmeta.SecretKeySelector{Name: "hostile", Key: "token"}},
	}}}
}

// acmeIssuer returns an Issuer at an ACME server.
func (h *hostile) acmeIssuer(name, address string, solver acmev1.ACMEChallengeSolver) *certmanagerv1.Issuer {
	return &certmanagerv1.Issuer{ObjectMeta: named(name), Spec: certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{
		Server: address + "dir", PrivateKey: cmmeta.SecretKeySelector{Name: name}, PreferredChain: "none of these",
		Solvers: []acmev1.ACMEChallengeSolver{solver},
	}}}
}

// issuers are Issuers at hostile servers of all protocols.
func (h *hostile) issuers() (out []*certmanagerv1.Issuer) {
	for n := range each {
		of := func(way string) (name, address string) {
			name = fmt.Sprint(way, "-", n)
			return name, "/" + way + "/" + name + "/"
		}
		for _, way := range []string{"chains", "orders", "directories", "challenges"} {
			name, path := of(way)
			to := []string{h.plain + "/headers/dns/", h.plain + "/bodies/dns/"}[n%2]
			out = append(out, h.acmeIssuer(name, h.plain+path, acmev1.ACMEChallengeSolver{DNS01: &acmev1.DNS01Solver{
				AcmeDNS: &acmev1.AcmeDNSProvider{Host: to, AccountSecretRef: cmmeta.SecretKeySelector{Name: "hostile", Key: "accounts"}},
			}}))
		}
		for _, way := range venafiWays() {
			name, path := of(way)
			if !strings.HasPrefix(way, "policy") {
				out = append(out, h.vault("vault-"+name, h.secure+path))
			}
			out = append(out, &certmanagerv1.Issuer{
				ObjectMeta: named("venafi-" + name),
				Spec: certmanagerv1.IssuerSpec{Venafi: &certmanagerv1.VenafiIssuer{Zone: "zone", TPP: &certmanagerv1.VenafiTPP{
					URL: h.venafis[way] + "/vedsdk", CABundle: h.bundle, CredentialsRef: cmmeta.LocalObjectReference{Name: "hostile"},
				}}},
			})
		}
	}
	return out
}
