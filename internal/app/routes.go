package app

import (
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/controller"
	"chancery.dev/internal/solver/http01"
	"chancery.dev/internal/solver/http01/route"
)

// setupRoutes adds what leads HTTP-01 requests to the responder; nil if it is reached
// without.
func setupRoutes(cfg Config, deps *controller.Deps) (http01.Router, error) {
	if cfg.ACME.HTTP01Responder == "" {
		return nil, nil //nolint:nilnil // no routes are wanted
	}
	responder, err := cfg.ACME.responderService()
	if err != nil {
		return nil, err
	}
	m := deps.Manager
	options, err := route.CacheOptions(responder, cache.Options{
		HTTPClient: m.GetHTTPClient(), Scheme: m.GetScheme(), Mapper: m.GetRESTMapper(),
		DefaultNamespaces: cacheNamespaces(cfg), DefaultTransform: cache.TransformStripManagedFields(),
	})
	if err != nil {
		return nil, err
	}
	watched, err := cache.New(m.GetConfig(), options)
	if err != nil {
		return nil, err
	}
	if err := m.Add(watched); err != nil {
		return nil, err
	}
	direct, err := client.New(m.GetConfig(), client.Options{HTTPClient: m.GetHTTPClient(), Scheme: m.GetScheme(), Mapper: m.GetRESTMapper()})
	if err != nil {
		return nil, err
	}
	services := route.NewServices(route.ServicesOptions{
		Client: direct, Cache: watched, Challenges: m.GetCache(), Responder: responder, ExtraLabels: cfg.ACME.HTTP01ExtraLabels, Now: deps.Now,
	})
	if err := services.Setup(m); err != nil {
		return nil, err
	}
	return route.New(route.Options{Client: direct, Services: services, ExtraLabels: cfg.ACME.HTTP01ExtraLabels, Now: deps.Now}), nil
}
