package controlplane

import (
	"context"
	"fmt"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/certificates/cleaner"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/endpointslice"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/namespace"
	serviceaccountcontroller "k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

const (
	// discoveryPeriod is how soon the garbage collector sees a new custom resource definition. kube-controller-manager
	// takes 30 s; here a user installs definitions and deletes objects within a minute.
	discoveryPeriod      = 5 * time.Second
	gcWorkers            = 10
	gcInitialSyncTimeout = 30 * time.Second
	namespaceWorkers     = 5
	namespaceResync      = 5 * time.Minute
	// Kubernetes' defaults for EndpointSlices.
	maxEndpointsPerSlice     = 100
	endpointSliceBatchPeriod = 500 * time.Millisecond
)

// controllerManagerUser has bootstrap rights to list and watch everything, which the shared informers need.
const controllerManagerUser = "system:kube-controller-manager"

// controllerSet is the running controllers of Kubernetes. Each acts as the service account that the bootstrap RBAC
// knows for it, never as an administrator.
type controllerSet struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup

	issuer   identityIssuer
	keys     *pki
	shared   informers.SharedInformerFactory
	tokens   informers.SharedInformerFactory // Secrets of service-account tokens only
	metadata metadataInformers
	started  chan struct{}
}

// startControllers builds all controllers and starts them. They stop when the set is stopped.
func startControllers(parent context.Context, issuer identityIssuer, keys *pki) (*controllerSet, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent))
	set := &controllerSet{cancel: cancel, issuer: issuer, keys: keys, started: make(chan struct{})}
	runs, err := set.build(ctx)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("start the controllers of Kubernetes: %w", err)
	}
	for _, run := range runs {
		set.wg.Add(1)
		go func() {
			defer set.wg.Done()
			run(ctx)
		}()
	}
	set.shared.Start(ctx.Done())
	set.tokens.Start(ctx.Done())
	set.metadata.Start(ctx.Done())
	close(set.started)
	return set, nil
}

func (s *controllerSet) stop() {
	s.cancel()
	within(time.Second, s.wg.Wait)
}

// build makes the controllers. Each is the service account of its name in kube-system; the one without a name has the
// rights of the controller manager, because the bootstrap RBAC has no account for it.
func (s *controllerSet) build(ctx context.Context) ([]func(context.Context), error) {
	c, err := s.clientsOf("")
	if err != nil {
		return nil, err
	}
	s.shared = informers.NewSharedInformerFactoryWithOptions(c, 0, informers.WithTransform(dropManagedFields))
	s.tokens = informers.NewSharedInformerFactoryWithOptions(c, 0, informers.WithTransform(dropManagedFields),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = "type=" + string(corev1.SecretTypeServiceAccountToken)
		}))
	s.metadata = newMetadataInformers(c.metadata)
	var runs []func(context.Context)
	for _, controller := range []struct {
		account string
		build   func(context.Context, *clients) (func(context.Context), error)
	}{
		{"generic-garbage-collector", s.garbageCollector},
		{"namespace-controller", s.namespaces},
		{"service-account-controller", s.serviceAccounts},
		{"", s.serviceAccountTokens},
		{"root-ca-cert-publisher", s.rootCAPublisher},
		{"endpointslice-controller", s.endpointSlices},
		{"certificate-controller", s.csrCleaner},
		{"clusterrole-aggregation-controller", s.clusterRoleAggregation},
	} {
		if c, err = s.clientsOf(controller.account); err != nil {
			return nil, err
		}
		run, err := controller.build(ctx, c)
		if err != nil {
			return nil, err
		}
		runs = append(runs, run)
	}
	return runs, nil
}

// clients are those of one controller.
type clients struct {
	*kubernetes.Clientset
	metadata metadata.Interface
	root     []byte // PEM of the CA
}

func (s *controllerSet) clientsOf(account string) (*clients, error) {
	user, groups := controllerManagerUser, []string(nil)
	if account != "" {
		user, groups = ServiceAccount(metav1.NamespaceSystem, account)
	}
	config, err := s.issuer.client(user, groups...)
	if err != nil {
		return nil, err
	}
	metadataClient, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(protobuf(config))
	return &clients{client, metadataClient, config.CAData}, err
}

func (s *controllerSet) garbageCollector(ctx context.Context, client *clients) (func(context.Context), error) {
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))
	collector, err := garbagecollector.NewGarbageCollector(ctx, client, client.metadata, mapper,
		garbagecollector.DefaultIgnoredResources(), s.metadata, s.started)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) {
		go collector.Sync(ctx, client.Discovery(), discoveryPeriod)
		collector.Run(ctx, gcWorkers, gcInitialSyncTimeout)
	}, nil
}

func (s *controllerSet) namespaces(ctx context.Context, client *clients) (func(context.Context), error) {
	controller := namespace.NewNamespaceController(ctx, client, client.metadata,
		client.Discovery().ServerPreferredNamespacedResources,
		s.shared.Core().V1().Namespaces(), namespaceResync, corev1.FinalizerKubernetes)
	return func(ctx context.Context) { controller.Run(ctx, namespaceWorkers) }, nil
}

func (s *controllerSet) serviceAccounts(ctx context.Context, client *clients) (func(context.Context), error) {
	controller, err := serviceaccountcontroller.NewServiceAccountsController(klog.FromContext(ctx),
		s.shared.Core().V1().ServiceAccounts(), s.shared.Core().V1().Namespaces(), client,
		serviceaccountcontroller.DefaultServiceAccountsControllerOptions())
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) { controller.Run(ctx, 1) }, nil
}

// serviceAccountTokens fills Secrets of type kubernetes.io/service-account-token.
func (s *controllerSet) serviceAccountTokens(ctx context.Context, client *clients) (func(context.Context), error) {
	generator, err := serviceaccount.JWTTokenGenerator(serviceaccount.LegacyIssuer, s.keys.saKey)
	if err != nil {
		return nil, err
	}
	controller, err := serviceaccountcontroller.NewTokensController(klog.FromContext(ctx),
		s.shared.Core().V1().ServiceAccounts(), s.tokens.Core().V1().Secrets(), client,
		serviceaccountcontroller.TokensControllerOptions{TokenGenerator: generator, RootCA: client.root})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) { controller.Run(ctx, 1) }, nil
}

func (s *controllerSet) rootCAPublisher(_ context.Context, client *clients) (func(context.Context), error) {
	controller, err := rootcacertpublisher.NewPublisher(
		s.shared.Core().V1().ConfigMaps(), s.shared.Core().V1().Namespaces(), client, client.root)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) { controller.Run(ctx, 1) }, nil
}

func (s *controllerSet) endpointSlices(ctx context.Context, client *clients) (func(context.Context), error) {
	core := s.shared.Core().V1()
	controller := endpointslice.NewController(ctx, core.Pods(), core.Services(), core.Nodes(),
		s.shared.Discovery().V1().EndpointSlices(), maxEndpointsPerSlice, client, endpointSliceBatchPeriod)
	return func(ctx context.Context) { controller.Run(ctx, 1) }, nil
}

func (s *controllerSet) csrCleaner(_ context.Context, client *clients) (func(context.Context), error) {
	if _, err := client.Discovery().ServerResourcesForGroupVersion(certificatesv1.SchemeGroupVersion.String()); apierrors.IsNotFound(err) {
		return func(context.Context) {}, nil // switched off by Options.APIServerArguments
	}
	controller := cleaner.NewCSRCleanerController(client.CertificatesV1().CertificateSigningRequests(),
		s.shared.Certificates().V1().CertificateSigningRequests())
	return func(ctx context.Context) { controller.Run(ctx, 1) }, nil
}

func (s *controllerSet) clusterRoleAggregation(_ context.Context, client *clients) (func(context.Context), error) {
	controller := clusterroleaggregation.NewClusterRoleAggregation(s.shared.Rbac().V1().ClusterRoles(), client.RbacV1())
	return func(ctx context.Context) { controller.Run(ctx, 1) }, nil
}

// protobuf returns the client configuration with the cheaper encoding, for built-in types only.
func protobuf(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return config
}

// waitForDefaultServiceAccount returns when the namespace "default" has its service account: namespaces and
// controllers work.
func waitForDefaultServiceAccount(ctx context.Context, admin *rest.Config, failed <-chan error) error {
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return fmt.Errorf("make the administrator's client: %w", err)
	}
	return poll(ctx, failed, "the service account default/default", func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}
