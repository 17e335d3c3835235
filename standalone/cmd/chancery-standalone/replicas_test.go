package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/install"
	"chancery.dev/internal/rig/slow"
	"chancery.dev/standalone/child"
	"chancery.dev/standalone/controlplane"
)

// replicas are controllers that run side by side.
type replicas struct {
	t          *testing.T
	c          ctrlclient.Client
	kubeconfig string
	binary     string
	made       atomic.Int64 // requests
}

// start starts one more.
func (r *replicas) start(name string) *child.Process {
	r.t.Helper()
	c, err := child.Start(child.Program{Name: "the replica " + name, Path: r.binary, StopWithin: time.Second, Arguments: []string{
		"controller", "--kubeconfig=" + r.kubeconfig, "--pod-certificates", "--metrics-listen-address=0", "--internal-healthz-listen-address=0", "--waits-address=",
	}})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		_ = syscall.Kill(c.PID(), syscall.SIGCONT)
		_ = c.Stop()
	})
	return c
}

// holder is who holds the lease.
func (r *replicas) holder(ctx context.Context) (string, error) {
	lease := &coordinationv1.Lease{}
	err := r.c.Get(ctx, ctrlclient.ObjectKey{Namespace: "kube-system", Name: "cert-manager-controller"}, lease)
	if err != nil || lease.Spec.HolderIdentity == nil {
		return "", err
	}
	return *lease.Spec.HolderIdentity, nil
}

// follows waits until another replica holds the lease than before, and returns it.
func (r *replicas) follows(before string) (now string) {
	r.t.Helper()
	eventually(r.t, "another replica leads", func(ctx context.Context) (err error) {
		if now, err = r.holder(ctx); err == nil && (now == "" || now == before) {
			err = fmt.Errorf("the lease is held by %q", now)
		}
		return err
	})
	return now
}

// more waits until kubelets have made so many more requests.
func (r *replicas) more(count int64) {
	r.t.Helper()
	before := r.made.Load()
	eventually(r.t, "kubelets make requests", func(context.Context) error {
		if made := r.made.Load() - before; made < count {
			return fmt.Errorf("%d of %d", made, count)
		}
		return nil
	})
}

// load makes requests of a kubelet, 50 a second, until the function that it returns is called, which tells how many.
func (r *replicas) load(kubelet ctrlclient.Client) (end func() int) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		r.t.Fatal(err)
	}
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for tick := time.NewTicker(20 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			pod := fmt.Sprintf("web-%d", r.made.Load())
			err := kubelet.Create(r.t.Context(), &certificatesv1.PodCertificateRequest{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: pod},
				Spec: certificatesv1.PodCertificateRequestSpec{
					SignerName: "issuers.cert-manager.io/default.pods", PodName: pod, PodUID: types.UID(pod), ServiceAccountName: "web", ServiceAccountUID: "web",
					NodeName: "node", NodeUID: "node", StubPKCS10Request: stub,
				},
			})
			if err != nil {
				r.t.Errorf("%s: %v", pod, err)
				return
			}
			r.made.Add(1)
		}
	}()
	return func() int {
		cancel()
		<-ended
		return int(r.made.Load())
	}
}

// longest is how long the slowest request took, in whole seconds, as the API server keeps times.
func (r *replicas) longest() (took time.Duration) {
	r.t.Helper()
	all := &certificatesv1.PodCertificateRequestList{}
	if err := r.c.List(r.t.Context(), all); err != nil {
		r.t.Fatal(err)
	}
	for _, pcr := range all.Items {
		took = max(took, pcr.Status.Conditions[0].LastTransitionTime.Sub(pcr.CreationTimestamp.Time))
	}
	return took
}

// want returns an error while fewer requests have certificates.
func (r *replicas) want(ctx context.Context, count int) error {
	all := &certificatesv1.PodCertificateRequestList{}
	if err := r.c.List(ctx, all); err != nil {
		return err
	}
	issued := slices.DeleteFunc(all.Items, func(pcr certificatesv1.PodCertificateRequest) bool { return pcr.Status.CertificateChain == "" })
	if len(issued) < count {
		return fmt.Errorf("%d of %d have certificates", len(issued), count)
	}
	return nil
}

// statusWrites is how many writes of the status of a PodCertificateRequest the API server has answered, with what.
func statusWrites(t *testing.T, kubeconfig string) (all int, lines []string) {
	t.Helper()
	text, err := client(t, load(t, kubeconfig)).RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		if !bytes.HasPrefix(line, []byte("apiserver_request_total{")) || !bytes.Contains(line, []byte(`resource="podcertificaterequests"`)) || !bytes.Contains(line, []byte(`subresource="status"`)) {
			continue
		}
		fields := strings.Fields(string(line))
		n, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			t.Fatal(err)
		}
		all += int(n)
		lines = append(lines, string(bytes.TrimSpace(line)))
	}
	return all, lines
}

// TestReplicasKilledAndStopped: of two replicas, the one that leads is stopped until it does not lead any more, and
// goes on; then the one that leads is killed; and then one that does not lead is stopped and goes on. Meanwhile
// kubelets make 50 requests a second. Each gets its certificate, for 1.1 writes at most.
func TestReplicasKilledAndStopped(t *testing.T) {
	slow.Test(t, slow.Crash)
	binary, err := controllerBinary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	data := filepath.Join(dir, "data")
	start(t, "--data-dir", data, "--kubeconfig-out", kubeconfig)
	if err := install.Install(t.Context(), load(t, kubeconfig), func(string) {}); err != nil {
		t.Fatal(err)
	}
	r := &replicas{t: t, c: typedClient(t, kubeconfig), kubeconfig: kubeconfig, binary: binary}
	as, err := controlplane.ClientFromDataDir(data, "system:node:node", "system:nodes", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	as.QPS = -1
	kubelet, err := ctrlclient.New(as, ctrlclient.Options{Scheme: r.c.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	in := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "default", Name: name} }
	pods := in("pods")
	pods.Annotations = map[string]string{certmanagerv1.PodCertificatesAnnotation: "prod.example.com", certmanagerv1.PodCertificatesForAnnotation: "all"}
	if err := errors.Join(
		r.c.Create(t.Context(), &certmanagerv1.Issuer{ObjectMeta: in("self"), Spec: certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}}),
		r.c.Create(t.Context(), &certmanagerv1.Issuer{ObjectMeta: pods, Spec: certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "root"}}}),
		r.c.Create(t.Context(), &certmanagerv1.Certificate{ObjectMeta: in("root"), Spec: certmanagerv1.CertificateSpec{
			SecretName: "root", CommonName: "root", IsCA: true, IssuerRef: cmmeta.IssuerReference{Name: "self"},
			PrivateKey: &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm},
		}}),
	); err != nil {
		t.Fatal(err)
	}
	first := r.start("first")
	one := r.follows("")
	second := r.start("second")
	end := r.load(kubelet)
	eventually(t, "both are at work", func(ctx context.Context) error { return r.want(ctx, 500) }) // the second has ten seconds for its start
	signal := func(c *child.Process, s syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(c.PID(), s); err != nil {
			t.Fatal(err)
		}
	}

	signal(first, syscall.SIGSTOP)
	two := r.follows(one)
	signal(first, syscall.SIGCONT)
	eventually(t, "the first ends, since it has lost the lease", func(context.Context) error {
		select {
		case <-first.Ended():
			return nil
		default:
			return errors.New("it runs")
		}
	})
	third := r.start("third")
	r.more(1500) // half a minute

	signal(second, syscall.SIGKILL)
	r.follows(two)
	fourth := r.start("fourth")
	r.more(250)

	signal(fourth, syscall.SIGSTOP)
	r.more(250)
	signal(fourth, syscall.SIGCONT)
	r.more(1500) // half a minute
	made := end()
	eventually(t, "all requests have certificates", func(ctx context.Context) error { return r.want(ctx, made) })
	if writes, lines := statusWrites(t, kubeconfig); float64(writes) > 1.1*float64(made) || writes < made || made < 1000 {
		t.Errorf("%d writes for %d requests:\n%s", writes, made, strings.Join(lines, "\n"))
	} else {
		t.Logf("%d writes for %d requests, of which the slowest took %s", writes, made, r.longest())
	}
	if took := r.longest(); took > 10*time.Second { // the next leader would take longer: the lease runs out after 15 s
		t.Errorf("a request took %s: another replica would have signed it before", took)
	}
	if err := errors.Join(third.ByItself(), fourth.ByItself()); err != nil {
		t.Error(err)
	}
}
