package chaos

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/api"
	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/rig/faulty"
	"chancery.dev/internal/rig/pebble"
	"chancery.dev/internal/rig/port"
	"chancery.dev/internal/solver/dns01/provider/rfc2136"
)

const (
	namespace  = "chaos"
	tsigSecret = "c2VjcmV0IG9mIHRoZSB0ZXN0"
	// patience is how long the API server and the controllers may take to start.
	patience = 2 * time.Minute
)

// world is all that takes part.
type world struct {
	t           *testing.T
	dir         string
	client      client.Client
	plane       *process
	controllers []*controller
	dns         *dnsserver.Server
	ca          *pebble.Server
	proxy       *faulty.Proxy
	load        *load
	// broken is what happens to each request to the CA; nil for nothing.
	broken atomic.Pointer[faulty.Fault]

	mu sync.Mutex
	// holder is the controller whose write of the lease was the last that the API server has taken; nil for none.
	holder *controller
	// unled are writes by a controller that did not hold the lease.
	unled  []string
	writes int
}

// process is a program that is started again after it was killed, or has ended by itself, as a kubelet does.
type process struct {
	path      string
	arguments []string
	log       string

	mu      sync.Mutex
	cmd     *exec.Cmd
	ended   chan struct{} // closed when cmd has ended
	unasked int           // how often it has ended by itself
}

func (p *process) start() error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd, ended := exec.Command(p.path, p.arguments...), make(chan struct{})
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.mu.Lock()
	p.cmd, p.ended = cmd, ended
	p.mu.Unlock()
	go func() {
		_ = cmd.Wait()
		close(ended)
		if !p.runs(cmd) {
			return
		}
		p.mu.Lock()
		p.unasked++
		p.mu.Unlock()
		if <-time.After(time.Second); p.runs(cmd) {
			_ = p.start()
		}
	}()
	return nil
}

// runs reports whether a command is the present one, which nobody has asked to end.
func (p *process) runs(cmd *exec.Cmd) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd == cmd
}

func (p *process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(s)
	}
}

// end has the process end by a signal, and returns once it has.
func (p *process) end(s syscall.Signal) {
	p.mu.Lock()
	cmd, ended := p.cmd, p.ended
	p.cmd = nil
	p.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Signal(s)
	<-ended
}

// kill ends the process at once.
func (p *process) kill() { p.end(syscall.SIGKILL) }

// controller is a replica, and the way that it has to the API server.
type controller struct {
	*process

	name string
	w    *world
	// metrics and profiles are its URLs.
	metrics, profiles string
	// requests counts those to the API server, without those for the lease; watches are those under way.
	requests, watches atomic.Int64
}

// newWorld starts everything, with so many controllers: one or two.
func newWorld(t *testing.T, controllers int) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir()}
	standalone, chancery := os.Getenv("CHANCERY_STANDALONE_BIN"), os.Getenv("CHANCERY_BIN")
	if standalone == "" || chancery == "" {
		t.Fatal("CHANCERY_STANDALONE_BIN and CHANCERY_BIN must name the programs: make chaos sets them")
	}
	address, err := port.Free(t.Context()) // outgoing connections do not take it while the API server is away
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(w.dir, "kubeconfig")
	w.plane = &process{path: standalone, log: filepath.Join(w.dir, "plane.log"), arguments: []string{
		"up", "--controllers=false", "--unsafe-no-fsync", "--data-dir", w.data(), "--secure-port", strconv.Itoa(int(address.Port())), "--kubeconfig-out", kubeconfig,
	}}
	w.startPlane()
	t.Cleanup(func() { w.plane.kill() })
	rc, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	kinds, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	rc.QPS, rc.Timeout = -1, 10*time.Second
	if w.client, err = client.New(rc, client.Options{Scheme: kinds}); err != nil {
		t.Fatal(err)
	}
	w.run(chancery, "install", "--kubeconfig", kubeconfig)
	w.startPeers()
	other := chancery
	if path := os.Getenv("CHANCERY_CHAOS_OTHER_BIN"); path != "" {
		other = path
	}
	for i, path := range []string{chancery, other}[:controllers] {
		w.controllers = append(w.controllers, w.newController(fmt.Sprintf("controller %d", i+1), path, rc))
	}
	w.createIssuers()
	w.untilIssuersAreReady()
	return w
}

func (w *world) data() string { return filepath.Join(w.dir, "data") }

// run runs a program to its end.
func (w *world) run(path string, arguments ...string) {
	w.t.Helper()
	if out, err := exec.CommandContext(w.t.Context(), path, arguments...).CombinedOutput(); err != nil {
		w.t.Fatalf("%s %v: %v: %s", path, arguments, err, out)
	}
}

// startPlane starts the API server and etcd, and waits until it answers.
func (w *world) startPlane() {
	w.t.Helper()
	kubeconfig := filepath.Join(w.dir, "kubeconfig")
	_ = os.Remove(kubeconfig) // it appears again once all is ready
	if err := w.plane.start(); err != nil {
		w.t.Fatal(err)
	}
	for began := time.Now(); time.Since(began) < patience; sleep(w.t.Context(), 100*time.Millisecond) {
		if _, err := os.Stat(kubeconfig); err == nil {
			return
		}
	}
	log, _ := os.ReadFile(w.plane.log)
	w.t.Fatalf("the API server does not start: %s", log)
}

// startPeers starts the CA, the proxy before it, and the DNS server.
func (w *world) startPeers() {
	w.t.Helper()
	key, err := rfc2136.NewKey("chancery.", "HMACSHA256", tsigSecret)
	if err != nil {
		w.t.Fatal(err)
	}
	zone := dnsserver.Zone{Name: "example.com.", Wildcard: netip.MustParseAddr("127.0.0.1")}
	if w.dns, err = dnsserver.Start(w.t.Context(), dnsserver.Config{Zones: []dnsserver.Zone{zone}, Key: key}); err != nil {
		w.t.Fatal(err)
	}
	if w.ca, err = pebble.Start(w.t.Context(), pebble.Options{DNSServer: w.dns.Addr()}); err != nil {
		w.t.Fatal(err)
	}
	w.proxy, err = faulty.Start(w.t.Context(), faulty.Options{
		Upstream: w.ca.DirectoryURL, Client: w.ca.HTTPClient(),
		Plan: func(faulty.Request) faulty.Fault {
			if f := w.broken.Load(); f != nil {
				return *f
			}
			return nil
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// newController starts a controller whose requests to the API server pass a proxy that notes who writes.
func (w *world) newController(name, path string, rc *rest.Config) *controller {
	w.t.Helper()
	c := &controller{name: name, w: w}
	transport, err := rest.TransportFor(&rest.Config{Host: rc.Host, TLSClientConfig: rc.TLSClientConfig})
	if err != nil {
		w.t.Fatal(err)
	}
	to, err := url.Parse(rc.Host)
	if err != nil {
		w.t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ModifyResponse: c.answered,
	}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		c.noteWrite(r)
		defer c.count(r)()
		forward.ServeHTTP(rw, r)
	}))
	w.t.Cleanup(server.CloseClientConnections)
	kubeconfig := filepath.Join(w.dir, strings.ReplaceAll(name, " ", "-"))
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: %q}}]\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n"+
		"users: [{name: a}]\ncurrent-context: a\n", server.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	metrics, err := port.Free(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	profiles, err := port.Free(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	c.metrics, c.profiles = "http://"+metrics.String()+"/metrics", "http://"+profiles.String()+"/debug/pprof/"
	c.process = &process{path: path, log: filepath.Join(w.dir, strings.ReplaceAll(name, " ", "-")+".log"), arguments: []string{
		"controller", "--kubeconfig", kubeconfig, "--metrics-listen-address", metrics.String(), "--enable-profiling", "--profiler-address", profiles.String(),
		"--internal-healthz-listen-address=0", "--waits-address=",
		"--issuer-egress-allow=127.0.0.0/8", "--dns01-recursive-nameservers", w.dns.Addr(), "--dns01-authoritative-port", strconv.Itoa(w.dns.Port()),
	}}
	if err := c.start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.kill() })
	return c
}

func isLease(path string) bool { return strings.Contains(path, "/coordination.k8s.io/") }

// count counts a request that begins. What it returns is called when the request is answered.
func (c *controller) count(r *http.Request) func() {
	if isLease(r.URL.Path) {
		return func() {}
	}
	c.requests.Add(1)
	if watch, err := strconv.ParseBool(r.URL.Query().Get("watch")); err != nil || !watch {
		return func() {}
	}
	c.watches.Add(1)
	return func() { c.watches.Add(-1) }
}

// noteWrite notes a request that changes something while another controller holds the lease. Events are told by a
// goroutine that is late, and change nothing.
func (c *controller) noteWrite(r *http.Request) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead || isLease(r.URL.Path) || strings.HasSuffix(r.URL.Path, "/events") || strings.Contains(r.URL.Path, "/events/") ||
		strings.HasSuffix(r.URL.Path, "reviews") {
		return
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.w.writes++
	if c.w.holder != c {
		holder := "nobody"
		if c.w.holder != nil {
			holder = c.w.holder.name
		}
		c.w.unled = append(c.w.unled, fmt.Sprintf("%s %s: %s %s while %s held the lease", time.Now().Format(time.TimeOnly), c.name, r.Method, r.URL.Path, holder))
	}
}

// answered notes who holds the lease, as the API server answers.
func (c *controller) answered(resp *http.Response) error {
	r := resp.Request
	if r.Method == http.MethodGet || !isLease(r.URL.Path) || resp.StatusCode >= http.StatusMultipleChoices {
		return nil
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	lease, ok := object.(*coordinationv1.Lease)
	if err != nil || !ok {
		return fmt.Errorf("the answer to %s %s is no lease: %w", r.Method, r.URL.Path, err)
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if holder := lease.Spec.HolderIdentity; holder == nil || *holder == "" {
		c.w.holder = nil
	} else {
		c.w.holder = c
	}
	return nil
}

// leader is the controller that holds the lease; the first one if nobody does.
func (w *world) leader() *controller {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.holder != nil {
		return w.holder
	}
	return w.controllers[0]
}

func (w *world) createIssuers() {
	w.t.Helper()
	solver := acmev1.ACMEChallengeSolver{DNS01: &acmev1.DNS01Solver{RFC2136: &acmev1.RFC2136Provider{
		Nameserver: w.dns.Addr(), TSIGKeyName: "chancery", TSIGAlgorithm: "HMACSHA256", TSIGSecretSecretRef: cmmeta.SecretKeySelector{Name: "tsig", Key: "key"},
	}}}
	root := certificate("root", "own", "root.example.com")
	root.Spec.IsCA, root.Spec.CommonName = true, "root"
	clusterRoot := certificate("cluster-root", "own", "root.example.com")
	clusterRoot.Namespace, clusterRoot.Spec.IsCA, clusterRoot.Spec.CommonName, clusterRoot.Spec.IssuerRef.Kind = "cert-manager", true, "root", cmmeta.ClusterIssuerKind
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "cert-manager"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tsig"}, StringData: map[string]string{"key": tsigSecret}},
		&certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "own"}, Spec: certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}},
		&certmanagerv1.ClusterIssuer{ObjectMeta: metav1.ObjectMeta{Name: "own"}, Spec: certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}},
		root, clusterRoot,
		&certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ca"}, Spec: certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "root"}}},
		&certmanagerv1.ClusterIssuer{ObjectMeta: metav1.ObjectMeta{Name: "ca"}, Spec: certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "cluster-root"}}},
		&certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "acme"}, Spec: certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{
			Server: w.proxy.DirectoryURL, CABundle: w.proxy.TLSBundle, PrivateKey: cmmeta.SecretKeySelector{Name: "account"}, Solvers: []acmev1.ACMEChallengeSolver{solver},
		}}},
	} {
		if err := w.client.Create(w.t.Context(), o); client.IgnoreAlreadyExists(err) != nil {
			w.t.Fatal(err)
		}
	}
}

// untilIssuersAreReady waits until what is created works: a CertificateSigningRequest that a CA cannot sign may fail.
func (w *world) untilIssuersAreReady() {
	w.t.Helper()
	rig.Eventually(w.t, "all issuers are ready", func(ctx context.Context) string {
		issuers, err := rig.Issuers(ctx, w.client)
		if err != nil {
			return err.Error()
		}
		for _, i := range issuers {
			ready := certmanagerv1.FindIssuerCondition(i.GetStatus().Conditions, certmanagerv1.IssuerConditionReady)
			if ready == nil || ready.Status != cmmeta.ConditionTrue {
				return i.GetName() + " is not ready"
			}
		}
		return ""
	})
}

// certificate is one for a DNS name.
func certificate(name, issuer, host string) *certmanagerv1.Certificate {
	return &certmanagerv1.Certificate{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: certmanagerv1.CertificateSpec{
			SecretName: name, DNSNames: []string{host}, IssuerRef: cmmeta.IssuerReference{Name: issuer},
			PrivateKey: &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm},
		},
	}
}

// sleep waits, unless the test ends before.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
