package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

const (
	readyTimeout = 2 * time.Minute // generous: a starved machine is slow, not broken
	readyPoll    = 50 * time.Millisecond
	// drainTimeout is how long the HTTP server waits for watchers at a stop. They never end by themselves.
	drainTimeout = time.Second
)

// tokenIssuer is the issuer of service-account tokens, the one that kubeadm uses.
const tokenIssuer = "https://kubernetes.default.svc.cluster.local"

// anonymousOnHealth lets unauthenticated requests see the health endpoints and nothing else.
const anonymousOnHealth = `apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
anonymous:
  enabled: true
  conditions:
  - path: /livez
  - path: /readyz
  - path: /healthz
`

// apiServer is kube-apiserver.
type apiServer struct {
	listener *listener
	loopback *rest.Config // the server's own client, all rights
	failed   chan error   // why the server ended by itself

	cancel context.CancelFunc
	ended  chan struct{}
	once   sync.Once
}

type apiServerOptions struct {
	dir  *dataDir
	keys *pki
	etcd string
	// more is Options.APIServerArguments.
	more []string
}

// start builds the server and lets it run in the background.
func (s *apiServer) start(o apiServerOptions) error {
	ctx, cancel := context.WithCancel(context.Background())
	server, err := s.build(ctx, o)
	if err != nil {
		cancel()
		return fmt.Errorf("start kube-apiserver: %w", err)
	}
	s.loopback = server.GenericAPIServer.LoopbackClientConfig
	s.failed, s.ended, s.cancel = make(chan error, 1), make(chan struct{}), cancel
	go func() {
		defer close(s.ended)
		prepared, err := server.PrepareRun()
		if err == nil {
			err = prepared.Run(ctx)
		}
		if ctx.Err() == nil {
			s.failed <- errors.Join(errors.New("kube-apiserver ended"), err)
		}
	}()
	return nil
}

func (s *apiServer) build(ctx context.Context, o apiServerOptions) (*aggregatorapiserver.APIAggregator, error) {
	registry, err := newRegistry()
	if err != nil {
		return nil, err
	}
	run := options.NewServerRunOptions()
	run.GenericServerRunOptions.ComponentGlobalsRegistry = registry
	flags := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	sets := run.Flags()
	for _, set := range sets.FlagSets {
		flags.AddFlagSet(set)
	}
	arguments, err := s.arguments(o)
	if err != nil {
		return nil, err
	}
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	run.SecureServing.Listener, run.SecureServing.BindPort = s.listener, s.listener.address.Port
	run.SecureServing.ExternalAddress = s.listener.address.IP // or the server would ask the host for a route to the outside
	if err := registry.Set(); err != nil {
		return nil, err
	}
	completed, err := run.Complete(ctx)
	if err != nil {
		return nil, err
	}
	if errs := completed.Validate(); len(errs) != 0 {
		return nil, utilerrors.NewAggregate(errs)
	}
	return chain(completed)
}

// chain builds the three servers behind one listener: aggregator, kube-apiserver and the server of custom resources.
func chain(completed options.CompletedOptions) (*aggregatorapiserver.APIAggregator, error) {
	config, err := app.NewConfig(completed)
	if err != nil {
		return nil, err
	}
	completedConfig, err := config.Complete()
	if err != nil {
		return nil, err
	}
	server, err := app.CreateServerChain(completedConfig)
	if err != nil {
		return nil, err
	}
	server.GenericAPIServer.ShutdownTimeout = drainTimeout
	return server, nil
}

// arguments is the command line of kube-apiserver. What is not here has Kubernetes' default: the default admission
// plugins, priority and fairness, no audit log.
func (s *apiServer) arguments(o apiServerOptions) ([]string, error) {
	authentication := o.dir.path("run", "authentication.yaml")
	if err := writeFileAtomic(authentication, []byte(anonymousOnHealth)); err != nil {
		return nil, unusable(o.dir.root, err)
	}
	keys := o.keys
	return append([]string{
		"--etcd-servers=" + o.etcd,
		"--bind-address=" + s.listener.address.IP.String(),
		"--service-cluster-ip-range=" + serviceIPRange,
		"--authorization-mode=RBAC",
		"--authentication-config=" + authentication,
		"--client-ca-file=" + keys.caFile,
		"--tls-cert-file=" + keys.serving.cert,
		"--tls-private-key-file=" + keys.serving.key,
		"--service-account-issuer=" + tokenIssuer,
		"--service-account-key-file=" + keys.saKeyFile,
		"--service-account-signing-key-file=" + keys.saKeyFile,
		// The aggregation layer. Webhooks and APIServices of this machine are reached by a Service of the type ExternalName
		// that names localhost: there is no kube-proxy for cluster IPs, and an EndpointSlice may not name a loopback address.
		"--enable-aggregator-routing=false",
		"--requestheader-client-ca-file=" + keys.frontProxy,
		"--requestheader-allowed-names=" + frontProxyUser,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + keys.proxy.cert,
		"--proxy-client-key-file=" + keys.proxy.key,
		// Endpoints of the service default/kubernetes would have to name a loopback address, which the API refuses.
		"--endpoint-reconciler-type=none",
	}, o.more...), nil
}

// waitReady returns when /readyz answers 200: all post-start hooks ran, the bootstrap RBAC exists.
func (s *apiServer) waitReady(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(s.loopback)
	if err != nil {
		return fmt.Errorf("make the API server's own client: %w", err)
	}
	return poll(ctx, s.failed, "kube-apiserver to be ready", func(ctx context.Context) error {
		var status int
		result := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).StatusCode(&status)
		if status != http.StatusOK {
			return errors.Join(fmt.Errorf("/readyz answers %d", status), result.Error())
		}
		return nil
	})
}

// poll calls check until it succeeds. The last failure is part of the error when the time is over.
func poll(ctx context.Context, failed <-chan error, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		last := check(ctx)
		if last == nil {
			return nil
		}
		select {
		case err := <-failed:
			return err
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w: %w", what, ctx.Err(), last)
		case <-tick.C:
		}
	}
}

// close stops the server, and abandons it after limit. It also closes the listener of a server that never started.
func (s *apiServer) close(limit time.Duration) {
	s.once.Do(func() {
		if s.cancel == nil {
			_ = s.listener.Close()
			return
		}
		s.cancel()
		within(limit, func() { <-s.ended })
	})
}
