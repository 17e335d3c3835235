package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
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

// The attack, and what it is measured by. Bars are printed beside the results.
const (
	hostileNamespace = "bench-hostile"
	hostileName      = "hostile." + zone

	// hostileIngresses have so many entries for TLS each: 2.4 MB of JSON, which the API server takes.
	hostileIngresses  = 10
	hostileTLSEntries = 110_000
	// churned Issuers with CA bundles of so many bytes are made and deleted; where the API server refuses these, of the
	// lesser size.
	churned           = 150
	churnedBundle     = 1_000_000
	churnedBundleLess = 300_000
	// hostileEach is how many Issuers there are at servers of each protocol and way.
	hostileEach = 8
	// hostileEvery is the time between two requests for certificates of hostile Issuers.
	hostileEvery = 300 * time.Millisecond
	// hostileFor is how long the attack goes on before anything is measured beside it, and after the restart.
	hostileFor = 30 * time.Second

	// besides is how many certificates are issued alone, and beside the attack, one at a time.
	besides = 20
	// firstWithin bounds the wait for the first certificate after a start.
	firstWithin = 6 * time.Minute

	hostileMemory       = 300 << 20
	hostileRatio        = 2.0
	hostileRestartRatio = 1.5
)

// Hostile is what certificates of one namespace take beside another one that attacks: with objects as large as the API
// server takes, with objects that come and go, and with servers that send as much as they can.
type Hostile struct {
	// Answers is how many large answers hostile servers have sent, and Requests how many certificates were asked of them.
	Answers  int `json:"answers"`
	Requests int `json:"requests"`
	// PeakBytes is the most resident memory of the controller during the attack, and after the restart.
	PeakBytes [2]int64 `json:"peakBytes"`
	// PeakBudget is the bar for both.
	PeakBudget int64 `json:"peakBudget"`
	// Alone and Beside are the pace of certificates by a CA, before the attack and beside it.
	Alone  Pace `json:"alone"`
	Beside Pace `json:"beside"`
	// Ratio compares the medians, and RatioBudget is the bar.
	Ratio       float64 `json:"ratio"`
	RatioBudget float64 `json:"ratioBudget"`
	// FirstMillis is from the start of a controller until the first certificate, without the attack and with its objects.
	FirstMillis [2]float64 `json:"firstMillis"`
	// RestartRatio compares them, and RestartRatioBudget is the bar.
	RestartRatio       float64 `json:"restartRatio"`
	RestartRatioBudget float64 `json:"restartRatioBudget"`
}

// prepareHostile makes a CA, and an ACME issuer whose DNS server hostile challenges are looked up at.
func prepareHostile(ctx context.Context, r *run) (*workload, error) {
	acme, err := prepareDNS01(ctx, r)
	if err != nil {
		return nil, err
	}
	work := certificates(caIssuer)
	work.controllerArguments, work.dns, work.close = acme.controllerArguments, acme.dns, acme.close
	return work, createCA(ctx, r.plane.client)
}

// hostileScenario issues certificates alone, then beside the attack, and restarts the controller on its objects.
func hostileScenario(ctx context.Context, r *run, work *workload, result *Scenario) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen := newObserver(work)
	if err := seen.start(ctx, r.plane.client); err != nil {
		return err
	}
	defer seen.stop()
	out := &Hostile{PeakBudget: hostileMemory, RatioBudget: hostileRatio, RestartRatioBudget: hostileRestartRatio}
	one := *r
	one.Concurrency = 1
	next, stop := 0, func() {}
	issueSome := func(n int) (Pace, error) {
		t, _, err := issueAll(ctx, &one, work, seen, part{next, next + n})
		next += n
		return t.pace(), err
	}
	first := func(into *float64, do func(*controller) error) error {
		next++
		return r.startWith(ctx, work, seen, next-1, into, do)
	}
	if err := withController(ctx, r, work, func(*controller) (err error) {
		if _, err = issueSome(5); err == nil {
			out.Alone, err = issueSome(besides)
		}
		return err
	}); err != nil {
		return err
	}
	err := first(&out.FirstMillis[0], func(c *controller) (err error) {
		if stop, err = r.attack(ctx, out); err != nil {
			return err
		}
		r.say("%s: issuing %d beside the attack", result.Name, besides)
		if out.Beside, err = issueSome(besides); err == nil {
			out.PeakBytes[0], err = peakMemory(c.cmd.Process.Pid)
		}
		return err
	})
	if err != nil {
		return err
	}
	r.say("%s: starting the controller again", result.Name)
	err = first(&out.FirstMillis[1], func(c *controller) (err error) {
		if err := sleep(ctx, hostileFor); err != nil {
			return err
		}
		out.PeakBytes[1], err = peakMemory(c.cmd.Process.Pid)
		return err
	})
	stop()
	out.Ratio, out.RestartRatio = out.Beside.P50Millis/out.Alone.P50Millis, out.FirstMillis[1]/out.FirstMillis[0]
	result.Hostile = out
	return err
}

// startWith starts a controller that finds a Certificate, number i, without a certificate. It tells how long the
// certificate takes from the start of the process, and runs the controller until do is over.
func (r *run) startWith(ctx context.Context, work *workload, seen *observer, i int, took *float64, do func(*controller) error) error {
	object := work.object(i)
	issued := seen.expect(object)
	if err := r.plane.client.Create(ctx, object); err != nil {
		return err
	}
	began := time.Now()
	return withController(ctx, r, work, func(c *controller) error {
		timeout := time.NewTimer(firstWithin)
		defer timeout.Stop()
		select {
		case <-issued:
		case <-ctx.Done():
			return ctx.Err()
		case <-timeout.C:
			return fmt.Errorf("the first certificate is not issued after %s: %s", firstWithin, seen.said(object))
		}
		*took = millis(time.Since(began))
		return do(c)
	})
}

// attack stores what attacks, and has certificates asked of hostile servers until stop is called, which tells how many.
func (r *run) attack(ctx context.Context, out *Hostile) (stop func(), err error) {
	server, err := startHostile(ctx)
	if err != nil {
		return nil, err
	}
	r.say("hostile: %d Ingresses, %d Issuers that come and go, and Issuers at hostile servers", hostileIngresses, churned)
	accounts, err := json.Marshal(map[string]any{hostileName: map[string]string{"username": "u", "password": "p", "fulldomain": "f." + zone, "subdomain": "f"}})
	if err != nil {
		return nil, err
	}
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: hostileNamespace}},
		&corev1.Secret{ObjectMeta: hostileMeta("hostile"), Data: map[string][]byte{"accounts": accounts, "token": []byte("token"), "access-token": []byte("token")}},
	}
	for n := range hostileIngresses {
		objects = append(objects, hostileIngress(n))
	}
	issuers := server.issuers()
	for _, issuer := range issuers {
		objects = append(objects, issuer)
	}
	for _, object := range objects {
		if err := r.plane.client.Create(ctx, object); err != nil {
			return nil, fmt.Errorf("create what attacks: %w", err)
		}
	}
	if err := r.churn(ctx, server); err != nil {
		return nil, err
	}
	der, err := newRequest(hostileName)
	if err != nil {
		return nil, err
	}
	asking, end := context.WithCancel(ctx)
	var asked sync.WaitGroup
	asked.Go(func() {
		out.Requests = r.ask(asking, issuers, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	})
	return func() {
		end()
		asked.Wait()
		out.Answers = int(server.served.Load())
	}, sleep(ctx, hostileFor)
}

// ask requests certificates of hostile Issuers, one after the other, until ctx ends. It returns how many.
func (r *run) ask(ctx context.Context, issuers []*certmanagerv1.Issuer, csr []byte) (requests int) {
	tick := time.NewTicker(hostileEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return requests
		case <-tick.C:
		}
		request := &certmanagerv1.CertificateRequest{
			ObjectMeta: hostileMeta(fmt.Sprint("request-", n)),
			Spec:       certmanagerv1.CertificateRequestSpec{Request: csr, IssuerRef: cmmeta.IssuerReference{Name: issuers[n%len(issuers)].Name}},
		}
		if r.plane.client.Create(ctx, request) == nil {
			requests++
		}
	}
}

// churn makes Issuers with large CA bundles, waits until the controller has looked at each, and deletes it.
func (r *run) churn(ctx context.Context, server *hostile) error {
	size := churnedBundle
	_, err := loop(ctx, churned, 1, func(ctx context.Context, n int) error {
		issuer := server.vault(fmt.Sprint("churned-", n), server.secure+"/headers/churned/")
		for {
			issuer.Spec.Vault.CABundle = bytes.Repeat(server.bundle, size/len(server.bundle))
			err := r.plane.client.Create(ctx, issuer)
			if apierrors.IsInvalid(err) && size == churnedBundle {
				size = churnedBundleLess
				continue
			}
			if err != nil {
				return err
			}
			break
		}
		for tick := 0; tick < 100 && len(issuer.Status.Conditions) == 0; tick++ {
			if err := sleep(ctx, pollEvery); err != nil {
				return err
			}
			if err := r.plane.client.Get(ctx, client.ObjectKeyFromObject(issuer), issuer); err != nil {
				return err
			}
		}
		return r.plane.client.Delete(ctx, issuer)
	})
	return err
}

func hostileMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: hostileNamespace, Name: name}
}

// hostileIngress is an Ingress without annotations that names as many Secrets as fit.
func hostileIngress(n int) client.Object {
	tls := make([]networkingv1.IngressTLS, hostileTLSEntries)
	for i := range tls {
		tls[i].SecretName = fmt.Sprintf("%05x", i)
	}
	backend := &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "none", Port: networkingv1.ServiceBackendPort{Number: 80}}}
	return &networkingv1.Ingress{ObjectMeta: hostileMeta(fmt.Sprint("ingress-", n)), Spec: networkingv1.IngressSpec{DefaultBackend: backend, TLS: tls}}
}

// vault returns an Issuer at a Vault.
func (h *hostile) vault(name, address string) *certmanagerv1.Issuer {
	return &certmanagerv1.Issuer{ObjectMeta: hostileMeta(name), Spec: certmanagerv1.IssuerSpec{Vault: &certmanagerv1.VaultIssuer{
		Server: address, Path: "pki/sign/any", CABundle: h.bundle,
		Auth: certmanagerv1.VaultAuth{TokenSecretRef: &cmmeta.SecretKeySelector{Name: "hostile", Key: "token"}},
	}}}
}

// issuers are Issuers at hostile servers of all protocols.
func (h *hostile) issuers() (out []*certmanagerv1.Issuer) {
	for n := range hostileEach {
		of := func(way string) (name, address string) {
			name = fmt.Sprint(way, "-", n)
			return name, "/" + way + "/" + name + "/"
		}
		for _, way := range []string{"chains", "orders", "directories", "challenges"} {
			name, path := of(way)
			to := []string{h.plain + "/headers/dns/", h.plain + "/bodies/dns/"}[n%2]
			out = append(out, &certmanagerv1.Issuer{ObjectMeta: hostileMeta(name), Spec: certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{
				Server: h.plain + path + "dir", PrivateKey: cmmeta.SecretKeySelector{Name: name}, PreferredChain: "none of these",
				Solvers: []acmev1.ACMEChallengeSolver{{DNS01: &acmev1.DNS01Solver{AcmeDNS: &acmev1.AcmeDNSProvider{
					Host: to, AccountSecretRef: cmmeta.SecretKeySelector{Name: "hostile", Key: "accounts"},
				}}}},
			}}})
		}
		for _, way := range []string{"headers", "bodies"} {
			name, path := of(way)
			out = append(out, h.vault("vault-"+name, h.secure+path), &certmanagerv1.Issuer{
				ObjectMeta: hostileMeta("venafi-" + name),
				Spec: certmanagerv1.IssuerSpec{Venafi: &certmanagerv1.VenafiIssuer{Zone: "zone", TPP: &certmanagerv1.VenafiTPP{
					URL: h.secure + path + "vedsdk", CABundle: h.bundle, CredentialsRef: cmmeta.LocalObjectReference{Name: "hostile"},
				}}},
			})
		}
	}
	return out
}

func (o *Hostile) writeText(t *table) {
	t.line("  large answers of hostile servers\t%d, to %d requests for certificates", o.Answers, o.Requests)
	t.line("\n  \tP50\tP99\tFIRST AFTER A START\tMOST RESIDENT MEMORY")
	t.line("  alone\t%.0f ms\t%.0f ms\t%.1f s\t", o.Alone.P50Millis, o.Alone.P99Millis, o.FirstMillis[0]/1000)
	t.line("  beside the attack\t%.0f ms\t%.0f ms\t%.1f s\t%s, %s after the start", o.Beside.P50Millis, o.Beside.P99Millis, o.FirstMillis[1]/1000,
		mebibytes(o.PeakBytes[0]), mebibytes(o.PeakBytes[1]))
	t.line("")
	for _, row := range []struct {
		name      string
		value, at float64
	}{
		{"latency p50 beside the attack, times that alone", o.Ratio, o.RatioBudget},
		{"first certificate after a start, times that without the attack", o.RestartRatio, o.RestartRatioBudget},
		{"most resident memory, MiB", float64(max(o.PeakBytes[0], o.PeakBytes[1]) >> 20), float64(o.PeakBudget >> 20)},
	} {
		verdict := ""
		if row.value > row.at {
			verdict = ": EXCEEDED"
		}
		t.line("  %s\t%.2f, at most %.1f%s", row.name, row.value, row.at, verdict)
	}
}
