package app

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"chancery.dev/api"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/controller/injection"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/kube/informers"
	"chancery.dev/internal/kube/leader"
	"chancery.dev/internal/kube/ownwrites"
	"chancery.dev/internal/kube/secrets"
	"chancery.dev/internal/kube/stub"
)

// InjectionConfig is what a user can set of the CA injector.
type InjectionConfig struct {
	// Enabled runs the injector in the controller's process.
	Enabled bool
	// Certificates lets Certificates be sources.
	Certificates bool
	// IgnoreNamespaces are namespaces whose Secrets and Certificates are no sources.
	IgnoreNamespaces []string
	// Injectables says, for each kind, whether bundles are injected into objects of the kind.
	Injectables map[string]*bool
}

func defaultInjectables() map[string]*bool {
	out := map[string]*bool{}
	for _, kind := range injection.Kinds() {
		out[kind.Kind] = new(true)
	}
	return out
}

// inject adds the injector that connects by rc.
func (c *Config) inject(ctx context.Context, deps *controller.Deps, rc *rest.Config) error {
	written, err := counter("chancery_ca_injections_total", "CA bundles that were written, by the kind of the object.", "kind")
	if err != nil {
		return err
	}
	namespaces := c.scope().Namespaces
	return injection.Setup(ctx, deps, injection.Options{
		Written:      func(kind string) { written.WithLabelValues(kind).Inc() },
		Skips:        func(kind string) bool { return !*c.Injection.Injectables[kind] },
		Certificates: c.Injection.Certificates,
		Ignores: func(namespace string) bool {
			return len(namespaces) > 0 && !slices.Contains(namespaces, namespace) || slices.Contains(c.Injection.IgnoreNamespaces, namespace)
		},
		APIServerCA: func() ([]byte, error) {
			if len(rc.CAData) > 0 || rc.CAFile == "" {
				return rc.CAData, nil
			}
			return os.ReadFile(rc.CAFile) // each time: it is replaced when the CA is
		},
	})
}

// NewInjector wires the CA injector alone, with the rights of rc. It reads the fields of cfg for the process, the scope
// and the injector. Run the App in the same way as that of New.
func NewInjector(ctx context.Context, cfg Config, rc *rest.Config, log logr.Logger) (*App, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.setClock()
	warnOfUnmet(cfg, log)
	scheme, err := api.Scheme()
	if err != nil {
		return nil, err
	}
	rc, watches := connection(rc, "chancery-cainjector"), newWatches(log)
	lease := leader.Options{Name: "cert-manager-cainjector-leader-election"}
	a, err := newLeader(ctx, rc, cfg, lease, injectorOptions(ctx, cfg, scheme, watches), watches)
	if err != nil {
		return nil, err
	}
	names, err := metadata.NewForConfigAndClient(metadata.ConfigFor(rc), a.manager.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	api, kept := ownwrites.New(a.manager.GetClient(), cfg.Now), secrets.New(cfg.Now)
	source := secrets.Source{Client: api, Live: a.manager.GetAPIReader(), Metadata: names, Namespaces: cfg.scope().Namespaces}
	deps := &controller.Deps{
		Manager: a.manager, Engine: engine.New(ctx, engine.Options{Client: api, Now: cfg.Now, Log: a.log, Term: a.term()}), Client: api, Secrets: kept,
		Scope: cfg.scope(), Now: cfg.Now, Clock: cfg.Clock, Events: a.recorder(scheme), Settings: cfg.settings(),
	}
	return a, errors.Join(
		kept.Connect(ctx, source), a.manager.Add(kept), a.serve(ctx, &cfg, rc, newPorts(a.manager, watches, deps.Engine.Stuck)),
		cfg.inject(ctx, deps, rc),
	)
}

func injectorOptions(ctx context.Context, cfg Config, scheme *runtime.Scheme, watches *watches) ctrl.Options {
	o := commonOptions(ctx, scheme, watches)
	o.Cache.DefaultTransform = stub.Bound(injection.Transform(injection.OnlySecretNames))
	o.Cache.NewInformer = informers.NewPagedInformer
	o.Cache.DefaultNamespaces = cfg.scope().CacheNamespaces()
	return o
}
