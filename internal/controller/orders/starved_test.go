package orders_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/app"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
)

// starvedEnv holds, in the process that is to be starved, what it is to do.
const starvedEnv = "CHANCERY_TEST_STARVED"

// starved is what a process of its own needs to run the controllers of a world.
type starved struct {
	Kubeconfig, Namespace, Nameserver string
	Port                              int
}

// TestMain makes this test's program the controllers of a world where it is asked to.
func TestMain(m *testing.M) {
	if text := os.Getenv(starvedEnv); text != "" {
		if err := starve(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	rig.Overlap()
	os.Exit(m.Run())
}

func starve(text string) error {
	var s starved
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	admin, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	if err != nil {
		return err
	}
	cfg := (&rig.World{Namespace: s.Namespace}).Config()
	cfg.ACME.RecursiveNameservers, cfg.ACME.AuthoritativePort = []string{s.Nameserver}, s.Port
	cfg.ACME.AccountKeyAlgorithm = pki.ECDSA
	ctx := signals.SetupSignalHandler()
	go reportMemory(ctx, os.Stdout)
	a, err := app.New(ctx, cfg, rig.As(admin, rig.Controller, "system:serviceaccounts", "system:serviceaccounts:cert-manager"), logr.Discard())
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

// TestStarvedProcessFailsNothing: controllers that get a tenth of the time, in bits with
// long pauses, issue what others would, with as many orders, and fail nothing.
func TestStarvedProcessFailsNothing(t *testing.T) {
	t.Parallel()
	w := newSwift(t, nil)
	text, err := json.Marshal(starved{
		Kubeconfig: kubeconfig(t, w.Admin), Namespace: w.Namespace, Nameserver: w.dns.Addr(), Port: w.dns.Port(),
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), starvedEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		slowed(ctx, cmd.Process)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	const many = 4
	var all []*issuance
	for n := range many {
		all = append(all, w.start(t, &issuance{name: fmt.Sprintf("slow-%d", n), size: 2}))
	}
	for _, i := range all {
		i.settle(t)
		if n := i.proxy.Created(); n != 1 {
			t.Errorf("%s: %d orders at the CA", i.name, n)
		}
		crt := &certmanagerv1.Certificate{}
		if err := i.Get(t.Context(), i.name, crt); err != nil || crt.Status.LastFailureTime != nil || crt.Status.FailedIssuanceAttempts != nil {
			t.Errorf("%s has failed once: %+v, %v", i.name, crt.Status, err)
		}
	}
	orders := &acmev1.OrderList{}
	if err := w.Client.List(t.Context(), orders, client.InNamespace(w.Namespace)); err != nil || len(orders.Items) != many {
		t.Errorf("%d Orders, %v", len(orders.Items), err)
	}
}

// slowed lets a process run for a tenth of the time.
func slowed(ctx context.Context, p *os.Process) {
	const run, pause = 20 * time.Millisecond, 180 * time.Millisecond
	turn := time.NewTimer(run)
	defer turn.Stop()
	running := true
	for {
		select {
		case <-ctx.Done():
			_ = p.Signal(syscall.SIGCONT)
			return
		case <-turn.C:
		}
		if running {
			_ = p.Signal(syscall.SIGSTOP)
			turn.Reset(pause)
		} else {
			_ = p.Signal(syscall.SIGCONT)
			turn.Reset(run)
		}
		running = !running
	}
}

// kubeconfig writes a connection into a file.
func kubeconfig(t *testing.T, rc *rest.Config) string {
	t.Helper()
	rc = rest.CopyConfig(rc)
	if err := rest.LoadTLSFiles(rc); err != nil {
		t.Fatal(err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: rc.Host, CertificateAuthorityData: rc.CAData}
	config.AuthInfos["test"] = &clientcmdapi.AuthInfo{ClientCertificateData: rc.CertData, ClientKeyData: rc.KeyData, Token: rc.BearerToken}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	config.CurrentContext = "test"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}
