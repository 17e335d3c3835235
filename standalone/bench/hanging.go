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
	hangingRatio = 2.0
	// hangingFor is how long the issuers hang before certificates of another namespace are measured beside them.
	hangingFor = 15 * time.Second
)

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
func hangScenario(ctx context.Context, r *run, work *workload) (rows []Row, err error) {
	err = r.withIssuer(ctx, work, func(c *controller) error {
		seen, err := r.observe(ctx, work)
		if err != nil {
			return err
		}
		defer seen.stop()
		warm := min(r.Concurrency, r.Certificates)
		if _, err := r.issueAll(ctx, work, seen, part{0, warm}); err != nil {
			return err
		}
		alone, err := r.issueAll(ctx, work, seen, part{warm, warm + r.Certificates})
		if err != nil {
			return err
		}
		server, err := startTarpit(ctx)
		if err != nil {
			return err
		}
		r.say("creating %d issuers whose servers never answer", r.Hanging)
		if err := r.hang(ctx, c, server); err != nil {
			return err
		}
		r.say("issuing %d beside them, %d at a time", r.Certificates, r.Concurrency)
		calls := server.held.Load()
		beside, err := r.issueAll(ctx, work, seen, part{warm + r.Certificates, warm + 2*r.Certificates})
		if err != nil {
			return err
		}
		const underWay = "calls to such servers under way"
		rows = []Row{
			{Name: "issuers of another namespace, whose servers never answer", Value: float64(r.Hanging)},
			{Name: "its certificates, whose DNS solver never answers", Value: float64(r.Hanging / 10)},
			{Name: underWay, Part: "at the beginning", Value: float64(calls)},
			{Name: underWay, Part: "at the end", Value: float64(server.held.Load())},
		}
		rows = append(append(rows, alone.pace().rows("alone")...), beside.pace().rows("beside them")...)
		resident, err := usage.Resident(c.PID())
		rows = append(rows,
			Row{Name: "latency p50 beside them, times that alone", Value: beside.pace().p50 / alone.pace().p50, Budget: new(hangingRatio)},
			mebibytes("controller's resident memory", resident))
		return err
	})
	return rows, err
}

// hang creates the issuers that hang, and waits until many of their calls hang.
func (r *run) hang(ctx context.Context, c *controller, server *tarpit) error {
	acme := &certmanagerv1.ClusterIssuer{}
	if err := r.plane.client.Get(ctx, client.ObjectKey{Name: acmeIssuer}, acme); err != nil {
		return err
	}
	named := r.Hanging / 10
	accounts := map[string]any{}
	for i := range named {
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
	if _, err := loop(ctx, r.Hanging+named, r.Concurrency, func(ctx context.Context, i int) error {
		if i < r.Hanging {
			return r.plane.client.Create(ctx, silentIssuer(server, i))
		}
		crt := certificates("noisy", certmanagerv1.ECDSAKeyAlgorithm).object(i).(*certmanagerv1.Certificate) //nolint:forcetypeassert // it is
		crt.Namespace, crt.Spec.IssuerRef.Kind = noisyNamespace, certmanagerv1.IssuerKind
		crt.Spec.DNSNames = []string{noisyName(i - r.Hanging)}
		return r.plane.client.Create(ctx, crt)
	}); err != nil {
		return err
	}
	if err := c.Until(ctx, startWithin, "many calls hang", func(context.Context) error {
		if held := server.held.Load(); held < int64(min(r.Hanging/2, 256)) {
			return fmt.Errorf("%d do", held)
		}
		return nil
	}); err != nil {
		return err
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
