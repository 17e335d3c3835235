package app

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/controller"
	"chancery.dev/internal/controller/responderservices"
	"chancery.dev/internal/solver/http01"
	"chancery.dev/internal/solver/http01/route"
)

// cacheRoutes makes a cache hold what leads HTTP-01 requests to the responder, if the responder is reached that way.
func cacheRoutes(cfg Config, o *cache.Options) error {
	responder, err := cfg.ACME.responderService()
	if err != nil || responder.Name == "" {
		return err
	}
	return responderservices.Narrow(o, responder)
}

// setupRoutes adds what leads HTTP-01 requests to the responder; nil if it is reached without.
func setupRoutes(ctx context.Context, cfg Config, deps *controller.Deps) (http01.Router, error) {
	responder, err := cfg.ACME.responderService()
	if err != nil || responder.Name == "" {
		return nil, err
	}
	m, extra, pods := deps.Manager, cfg.ACME.HTTP01ExtraLabels, cfg.ACME.HTTP01Pods
	direct, err := client.New(m.GetConfig(), client.Options{HTTPClient: m.GetHTTPClient(), Scheme: m.GetScheme(), Mapper: m.GetRESTMapper()})
	if err != nil {
		return nil, err
	}
	router := route.New(route.Options{
		Client: direct, Services: deps.Client, Cache: m.GetCache(), Responder: responder, Pods: pods, ExtraLabels: extra, Now: deps.Now,
		LoosePaths: cfg.ACME.LoosePaths,
	})
	if err := responderservices.Setup(ctx, deps, responderservices.Options{Responder: responder, Pods: pods, Direct: router.Direct, ExtraLabels: extra}); err != nil {
		return nil, err
	}
	deps.HTTP01 = &controller.HTTP01{Responder: responder, Unanswered: router.Unanswered}
	return router, nil
}
