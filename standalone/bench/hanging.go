package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/standalone/bench/usage"
)

const (
	// noisyNamespace is where the issuers are whose servers never answer.
	noisyNamespace = "bench-noisy"
	// hangingRatio is the budget: certificates of another namespace take at most so many times as long.
	hangingRatio = 2
	// hangingFor is how long the issuers hang before certificates of another namespace are measured beside them.
	hangingFor = 15 * time.Second
)

// Hanging is the cost of certificates in one namespace while the servers of another namespace never answer.
type Hanging struct {
	// Issuers of the other namespace, and how many of its certificates wait for a DNS solver that hangs.
	Issuers      int `json:"issuers"`
	Certificates int `json:"certificates"`
	// Calls is how many calls to such servers were under way at the beginning and at the end.
	Calls [2]int `json:"calls"`
	// Alone and Beside are the pace of certificates before that, and meanwhile.
	Alone  Pace `json:"alone"`
	Beside Pace `json:"beside"`
	// Ratio is the median of Beside divided by the median of Alone, and RatioBudget the budget for it.
	Ratio       float64 `json:"ratio"`
	RatioBudget float64 `json:"ratioBudget"`
}

// tarpit is a server of any kind that takes requests and never answers.
type tarpit struct {
	address string
	held    atomic.Int64
}

func startTarpit(ctx context.Context) (*tarpit, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &tarpit{address: "http://" + listener.Addr().String()}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.held.Add(1)
		defer t.held.Add(-1)
		<-r.Context().Done()
	})}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() { _ = server.Serve(listener) }() // until it is closed
	return t, nil
}

// hangScenario issues certificates, lets the issuers of another namespace hang, and issues as many again.
func hangScenario(ctx context.Context, r *run, work *workload, result *Scenario) error {
	return withController(ctx, r, work, func(c *controller) error {
		seen := newObserver(work)
		if err := seen.start(ctx, r.plane.client); err != nil {
			return err
		}
		defer seen.stop()
		out := &Hanging{Issuers: r.Hanging, Certificates: r.Hanging / 10, RatioBudget: hangingRatio}
		warm := min(r.Concurrency, r.Certificates)
		if _, _, err := issueAll(ctx, r, work, seen, part{0, warm}); err != nil {
			return err
		}
		alone, _, err := issueAll(ctx, r, work, seen, part{warm, warm + r.Certificates})
		if err != nil {
			return err
		}
		server, err := startTarpit(ctx)
		if err != nil {
			return err
		}
		r.say("%s: creating %d issuers whose servers never answer", result.Name, out.Issuers)
		if err := r.hang(ctx, server, out); err != nil {
			return err
		}
		r.say("%s: issuing %d beside them, %d at a time", result.Name, r.Certificates, r.Concurrency)
		out.Calls[0] = int(server.held.Load())
		beside, _, err := issueAll(ctx, r, work, seen, part{warm + r.Certificates, warm + 2*r.Certificates})
		if err != nil {
			return err
		}
		out.Calls[1] = int(server.held.Load())
		out.Alone, out.Beside = alone.pace(), beside.pace()
		out.Ratio = out.Beside.P50Millis / out.Alone.P50Millis
		result.Hanging = out
		result.ResidentBytes, err = usage.Resident(c.PID())
		return err
	})
}

// hang creates the issuers that hang, and waits until many of their calls hang.
func (r *run) hang(ctx context.Context, server *tarpit, out *Hanging) error {
	acme := &certmanagerv1.ClusterIssuer{}
	if err := r.plane.client.Get(ctx, client.ObjectKey{Name: acmeIssuer}, acme); err != nil {
		return err
	}
	accounts := map[string]any{}
	for i := range out.Certificates {
		accounts[noisyName(i)] = map[string]string{"username": "u", "password": "p", "fulldomain": "f." + zone, "subdomain": "f"}
	}
	text, err := json.Marshal(accounts)
	if err != nil {
		return err
	}
	spec := *acme.Spec.ACME.DeepCopy() // of a CA that answers, with a solver that does not
	spec.PrivateKey.Name = "noisy-account"
	spec.Solvers = []acmev1.ACMEChallengeSolver{{DNS01: &acmev1.DNS01Solver{AcmeDNS: &acmev1.AcmeDNSProvider{
		Host: server.address, AccountSecretRef: cmmeta.SecretKeySelector{Name: "noisy", Key: "accounts"},
	}}}}
	in := metav1.ObjectMeta{Namespace: noisyNamespace, Name: "noisy"}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: noisyNamespace}},
		&corev1.Secret{ObjectMeta: in, Data: map[string][]byte{"accounts": text, "token": []byte("token")}},
		&certmanagerv1.Issuer{ObjectMeta: in, Spec: certmanagerv1.IssuerSpec{ACME: &spec}},
	} {
		if err := r.plane.client.Create(ctx, object); err != nil {
			return err
		}
	}
	if _, err := loop(ctx, out.Issuers+out.Certificates, r.Concurrency, func(ctx context.Context, i int) error {
		if i < out.Issuers {
			return r.plane.client.Create(ctx, silentIssuer(server, i))
		}
		crt := certificates("noisy").object(i).(*certmanagerv1.Certificate) //nolint:forcetypeassert // it is
		crt.Namespace, crt.Spec.IssuerRef.Kind = noisyNamespace, certmanagerv1.IssuerKind
		crt.Spec.DNSNames = []string{noisyName(i - out.Issuers)}
		return r.plane.client.Create(ctx, crt)
	}); err != nil {
		return err
	}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for held := 0; held < min(out.Issuers/2, 256); held = int(server.held.Load()) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d calls hang: %w", held, ctx.Err())
		case <-tick.C:
		}
	}
	return sleep(ctx, hangingFor)
}

// silentIssuer is number i: at an ACME server or a Vault of its own that never answers.
func silentIssuer(server *tarpit, i int) client.Object {
	address := server.address + "/" + strconv.Itoa(i)
	issuer := &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Namespace: noisyNamespace, Name: "silent-" + strconv.Itoa(i)}}
	if i%2 == 0 {
		issuer.Spec.ACME = &acmev1.ACMEIssuer{Server: address, PrivateKey: cmmeta.SecretKeySelector{Name: issuer.Name}}
		return issuer
	}
	issuer.Spec.Vault = &certmanagerv1.VaultIssuer{
		Server: address, Path: "pki/sign/any",
		Auth: certmanagerv1.VaultAuth{TokenSecretRef: &cmmeta.SecretKeySelector{Name: "noisy", Key: "token"}},
	}
	return issuer
}

func noisyName(i int) string { return fmt.Sprintf("noisy-%d.%s", i, zone) }

func (o *Hanging) writeText(t *table, resident int64) {
	t.line("  issuers of another namespace\t%d, whose servers never answer", o.Issuers)
	t.line("  its certificates\t%d, whose DNS solver never answers", o.Certificates)
	t.line("  calls to such servers under way\t%d at the beginning, %d at the end", o.Calls[0], o.Calls[1])
	t.line("\n  \tP50\tP99\tPER SECOND")
	for _, row := range []struct {
		name string
		pace Pace
	}{{"alone", o.Alone}, {"beside them", o.Beside}} {
		t.line("  %s\t%.0f ms\t%.0f ms\t%.1f", row.name, row.pace.P50Millis, row.pace.P99Millis, row.pace.PerSecond)
	}
	verdict := ""
	if o.Ratio > o.RatioBudget {
		verdict = ": EXCEEDED"
	}
	t.line("\n  latency p50 beside them, times that alone\t%.2f, budget %.0f%s", o.Ratio, o.RatioBudget, verdict)
	t.line("  controller's resident memory\t%s", mebibytes(resident))
}
