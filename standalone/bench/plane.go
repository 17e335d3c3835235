package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/api"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/install"
	"chancery.dev/internal/rig/port"
	"chancery.dev/standalone/child"
	"chancery.dev/standalone/controlplane"
)

const (
	// startWithin bounds the start of the control plane, and of the controller until its issuer is ready.
	startWithin = 2 * time.Minute
	// controllerNamespace is that of the controller, and the name of its service account.
	controllerNamespace = "cert-manager"
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
	if err := install.Install(ctx, p.rc, func(string) {}); err != nil {
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

// with runs the process of a workload until do is over. An error comes with the last words of the process.
func (r *run) with(ctx context.Context, work *workload, do func(*controller) error) (err error) {
	c, err := r.startController(ctx, work)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	if err := do(c); err != nil {
		return errors.Join(err, c.LastWords())
	}
	return nil
}

// withIssuer is with, where do starts when the issuer is ready.
func (r *run) withIssuer(ctx context.Context, work *workload, do func(*controller) error) error {
	return r.with(ctx, work, func(c *controller) error {
		if err := r.issuerReady(ctx, c, work.issuer); err != nil {
			return err
		}
		return do(c)
	})
}

// startController runs the controller, or the CA injector, as on a cluster: in its own process, with the rights of its
// service account.
func (r *run) startController(ctx context.Context, work *workload) (c *controller, err error) {
	command, account := "controller", controllerNamespace
	if work.injector {
		command, account = "cainjector", "cert-manager-cainjector"
	}
	user, groups := controlplane.ServiceAccount(controllerNamespace, account)
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
	var ports [3]netip.AddrPort
	for i := range ports {
		if ports[i], err = port.Free(ctx); err != nil {
			return nil, err
		}
	}
	metrics, profiles, healthz := ports[0].String(), ports[1].String(), ports[2].String()
	if r.help == nil {
		if r.help, err = child.HelpOf(r.Controller, command); err != nil {
			return nil, err
		}
	}
	arguments := r.help.Arguments(append([]string{
		"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--metrics-listen-address=" + metrics,
		"--internal-healthz-listen-address=" + healthz, "--enable-profiling=true", "--profiler-address=" + profiles,
		"--cluster-resource-namespace=" + controllerNamespace,
	}, work.arguments...)...)
	if r.other {
		arguments = append(arguments, r.OtherArguments...)
	}
	c = &controller{metrics: "http://" + metrics + "/metrics", profiles: "http://" + profiles + "/debug/pprof/"}
	c.Process, err = child.Start(child.Program{Name: "the controller", Path: r.Controller, Arguments: arguments})
	if err != nil {
		return nil, err
	}
	if err := c.Until(ctx, startWithin, "the controller serves its metrics", func(ctx context.Context) error {
		_, err := c.requests(ctx)
		return err
	}); err != nil {
		return nil, errors.Join(err, c.LastWords(), c.Stop())
	}
	return c, nil
}

// issuerReady waits until the ClusterIssuer is ready.
func (r *run) issuerReady(ctx context.Context, c *controller, name string) error {
	return c.Until(ctx, startWithin, "ClusterIssuer "+name+" is ready", func(ctx context.Context) error {
		issuer := &certmanagerv1.ClusterIssuer{}
		if err := r.plane.client.Get(ctx, client.ObjectKey{Name: name}, issuer); err != nil {
			return err
		}
		switch ready := certmanagerv1.FindIssuerCondition(issuer.Status.Conditions, certmanagerv1.IssuerConditionReady); {
		case ready == nil:
			return errors.New("it has no condition Ready: nobody has looked at it")
		case ready.Status != cmmeta.ConditionTrue:
			return errors.New(ready.Message)
		default:
			return nil
		}
	})
}

// secretCeiling measures how fast this API server makes Secrets of the size of a certificate's: about what every
// request of ours costs.
func secretCeiling(ctx context.Context, r *run) (pace, error) {
	const keySize, chainSize = 230, 1500
	count := max(min(r.Certificates, 500), 10*r.Concurrency)
	data := map[string][]byte{cmmeta.TLSPrivateKeyKey: make([]byte, keySize), cmmeta.TLSCertKey: make([]byte, chainSize)}
	for _, value := range data {
		if _, err := rand.Read(value); err != nil {
			return pace{}, err
		}
	}
	secrets := r.plane.set.CoreV1().Secrets(namespace)
	result, err := loop(ctx, count, r.Concurrency, func(ctx context.Context, i int) error {
		_, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "ceiling-" + strconv.Itoa(i)}, Data: data}, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return pace{}, fmt.Errorf("measure the rate of creating Secrets: %w", err)
	}
	return result.pace(), secrets.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
}
