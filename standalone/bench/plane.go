package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/api"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/app"
	"chancery.dev/internal/rig/port"
	"chancery.dev/standalone/child"
	"chancery.dev/standalone/controlplane"
)

const (
	// startWithin bounds the start of the control plane, and of the controller until its issuer is ready.
	startWithin = 2 * time.Minute
	// pollEvery is how often starting things are looked at. Nothing is polled while certificates are under way.
	pollEvery = 50 * time.Millisecond
	// controllerNamespace and controllerAccount name the service account that the controller runs as.
	controllerNamespace, controllerAccount = "cert-manager", "cert-manager"
	// namespace is where everything that is measured happens.
	namespace = "bench"
)

// plane is a control plane in a process and a directory of its own.
type plane struct {
	dir    string
	server *child.Process
	stdin  *os.File
	rc     *rest.Config
	client client.WithWatch
	set    *kubernetes.Clientset
}

// startPlane starts a control plane and installs Chancery's definitions, policies and roles in it.
func startPlane(ctx context.Context, binary string) (_ *plane, err error) {
	p := &plane{}
	if p.dir, err = os.MkdirTemp("", "chancery-bench-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.stop())
		}
	}()
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.stdin = write
	data := filepath.Join(p.dir, "data")
	p.server, err = child.Start(child.Program{
		Name: "the control plane", Path: binary, Stdin: read, Arguments: []string{"up", "--controllers=false", "--exit-with-parent", "--data-dir", data},
	})
	err = errors.Join(err, read.Close())
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(data, "kubeconfig")
	// The kubeconfig appears when the control plane is ready.
	if err := p.server.Until(ctx, startWithin, "the control plane is ready", func(context.Context) error {
		_, err := os.Stat(kubeconfig)
		return err
	}); err != nil {
		return nil, err
	}
	return p, p.connect(ctx, kubeconfig)
}

func (p *plane) connect(ctx context.Context, kubeconfig string) (err error) {
	if p.rc, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		return err
	}
	p.rc.QPS = -1
	if err := app.Install(ctx, p.rc, func(string) {}); err != nil {
		return fmt.Errorf("install Chancery's definitions and roles: %w", err)
	}
	scheme, err := api.Scheme()
	if err != nil {
		return err
	}
	if p.client, err = client.NewWithWatch(p.rc, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if p.set, err = kubernetes.NewForConfig(p.rc); err != nil {
		return err
	}
	return p.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
}

// stop ends the control plane and removes its directory.
func (p *plane) stop() error {
	var err error
	if p.server != nil {
		err = p.server.Stop()
	}
	if p.stdin != nil {
		err = errors.Join(err, p.stdin.Close())
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}

// controller is the controller's process.
type controller struct {
	*child.Process

	metrics, profiles string // URLs
}

// process is a command of chancery to run, and its service account.
type process struct {
	command, account string
	arguments        []string
}

func controllerOf(work *workload) process {
	return process{"controller", controllerAccount, work.controllerArguments}
}

// startProcess runs a command as on a cluster: in its own process, with the rights of its service account.
func startProcess(ctx context.Context, r *run, p process) (*controller, error) {
	user, groups := controlplane.ServiceAccount(controllerNamespace, p.account)
	if r.other { // it may read and write what our role does not have
		groups = append(groups, "system:masters")
	}
	rc, err := controlplane.ClientFromDataDir(filepath.Join(r.plane.dir, "data"), user, groups...)
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(r.plane.dir, "controller.kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, rc); err != nil {
		return nil, err
	}
	metrics, err := port.Free(ctx)
	if err != nil {
		return nil, err
	}
	profiles, err := port.Free(ctx)
	if err != nil {
		return nil, err
	}
	healthz, err := port.Free(ctx)
	if err != nil {
		return nil, err
	}
	help, err := r.helpOf(p.command)
	if err != nil {
		return nil, err
	}
	arguments := append(help.Arguments(append([]string{
		"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--metrics-listen-address=" + metrics.String(),
		"--internal-healthz-listen-address=" + healthz.String(), "--enable-profiling=true", "--profiler-address=" + profiles.String(),
		"--cluster-resource-namespace=" + controllerNamespace,
	}, p.arguments...)...), r.arguments...)
	c := &controller{metrics: "http://" + metrics.String() + "/metrics", profiles: "http://" + profiles.String() + "/debug/pprof/"}
	c.Process, err = child.Start(child.Program{Name: "the controller", Path: r.Controller, Arguments: arguments})
	if err != nil {
		return nil, err
	}
	err = c.Until(ctx, startWithin, "the controller serves its metrics", func(ctx context.Context) error {
		_, err := c.requests(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// waitForIssuer waits until the ClusterIssuer is ready.
func waitForIssuer(ctx context.Context, c client.Client, name string) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	said := "it has no condition Ready: nobody has looked at it"
	for {
		issuer := &certmanagerv1.ClusterIssuer{}
		if err := c.Get(ctx, client.ObjectKey{Name: name}, issuer); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("waiting until ClusterIssuer %s is ready: %w: %s", name, err, said)
		}
		if ready := certmanagerv1.FindIssuerCondition(issuer.Status.Conditions, certmanagerv1.IssuerConditionReady); ready != nil {
			if ready.Status == cmmeta.ConditionTrue {
				return nil
			}
			said = ready.Message
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until ClusterIssuer %s is ready: %w: %s", name, ctx.Err(), said)
		case <-tick.C:
		}
	}
}

// secretCeiling measures how fast this API server makes Secrets of the size of a certificate's: about what every
// request of ours costs.
func secretCeiling(ctx context.Context, r *run) (*Ceiling, error) {
	const keySize, chainSize = 230, 1500
	count := max(min(r.Certificates, 500), 10*r.Concurrency)
	data := map[string][]byte{cmmeta.TLSPrivateKeyKey: make([]byte, keySize), cmmeta.TLSCertKey: make([]byte, chainSize)}
	for _, value := range data {
		if _, err := rand.Read(value); err != nil {
			return nil, err
		}
	}
	secrets := r.plane.set.CoreV1().Secrets(namespace)
	result, err := loop(ctx, count, r.Concurrency, func(ctx context.Context, i int) error {
		_, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "ceiling-" + strconv.Itoa(i)}, Data: data}, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("measure the rate of creating Secrets: %w", err)
	}
	if err := secrets.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return nil, err
	}
	return &Ceiling{Name: "the API server creates Secrets", Unit: "Secrets", Pace: result.pace()}, nil
}
