package app

import (
	"context"
	"crypto/rand"
	"os"

	"github.com/go-logr/logr"

	"chancery.dev/internal/acme/accounts"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/controller/certificates"
	"chancery.dev/internal/controller/issuers"
	"chancery.dev/internal/controller/orders"
	"chancery.dev/internal/controller/podrequests"
	"chancery.dev/internal/controller/requests"
	"chancery.dev/internal/controller/shims"
	"chancery.dev/internal/controller/trustbundles"
	"chancery.dev/internal/metrics"
	"chancery.dev/internal/signer"
	"chancery.dev/internal/signer/acmeorder"
	"chancery.dev/internal/signer/ca"
	"chancery.dev/internal/signer/selfsigned"
	"chancery.dev/internal/signer/vault"
	"chancery.dev/internal/signer/venafi"
)

// wire is the one list of everything that runs.
func wire(ctx context.Context, cfg Config, deps *controller.Deps, pods *metrics.PodRequests, log logr.Logger) error {
	routes, err := setupRoutes(ctx, cfg, deps)
	if err != nil {
		return err
	}
	resolver, err := cfg.resolver(deps)
	if err != nil {
		return err
	}
	providers, err := cfg.dns01Providers(ctx, deps, log.WithName("dns01"))
	if err != nil {
		return err
	}
	traffic, err := metrics.NewACME()
	if err != nil {
		return err
	}
	venafiTraffic, err := metrics.NewVenafi(venafi.CallToken)
	if err != nil {
		return err
	}
	registry := accounts.New(accounts.Options{UserAgent: cfg.UserAgent, Now: deps.Now, Observe: traffic.Observe, Egress: cfg.IssuerEgress.policy()})
	traffic.Follow(registry)
	deps.Engine.List(registry.Waits)
	process, own := rand.Text(), ownAccount(deps)
	deps.Signers = map[signer.Type]signer.Adapter{
		signer.TypeSelfSigned: selfsigned.New(deps.Secrets, deps.Now),
		signer.TypeCA: ca.New(ca.Config{
			Secrets: deps.Secrets, Now: deps.Now, ClusterResourceNamespace: cfg.ClusterResourceNamespace,
		}),
		signer.TypeACME: acmeorder.New(acmeorder.Config{
			Objects: deps.Client, Secrets: deps.Secrets,
			Accounts:            registry,
			NoARI:               cfg.ACME.NoARI,
			Issuers:             issuers.All(deps),
			AccountKeyAlgorithm: cfg.ACME.AccountKeyAlgorithm,
			Now:                 deps.Now, ClusterResourceNamespace: cfg.ClusterResourceNamespace,
			Annotations: deps.Settings.CopiedAnnotations.Apply, Process: process,
		}),
		signer.TypeVault: vault.New(vault.Config{
			Secrets: deps.Secrets, Token: vault.TokenRequests(deps.Manager.GetClient(), own), Own: own, Now: deps.Now,
			ClusterResourceNamespace: cfg.ClusterResourceNamespace, Egress: cfg.IssuerEgress.policy(),
			AWS: vault.AWSConfig{IssuerAmbient: cfg.Ambient.Issuers, ClusterIssuerAmbient: cfg.Ambient.ClusterIssuers, Getenv: os.Getenv},
		}),
		signer.TypeVenafi: venafi.New(venafi.Config{
			Secrets: deps.Secrets, UserAgent: cfg.UserAgent, Now: deps.Now, ClusterResourceNamespace: cfg.ClusterResourceNamespace,
			Egress: cfg.IssuerEgress.policy(), Observe: venafiTraffic.Observe,
		}),
	}
	deps.Solvers = cfg.solvers(resolver, providers, routes)
	acme := orders.ACMEDeps{
		Accounts: registry, Settings: cfg.ACME.settings(), Limits: cfg.ACME.Limits, Process: process,
	}
	everywhere := len(cfg.Namespaces) == 0
	for _, step := range []struct {
		runs bool
		add  func() error
	}{
		{cfg.usesIssuers(), func() error { return deps.IndexIssuers(ctx) }},
		{cfg.runs(CertificateControllers()...), func() error { return certificates.Setup(ctx, deps) }},
		{cfg.runs(requestControllers()...), func() error { return requests.SetupCertificateRequests(ctx, deps) }},
		{cfg.runs(ControllerIssuers), func() error { return issuers.Setup(ctx, deps) }},
		{cfg.runs(ControllerOrders), func() error { return orders.SetupOrders(ctx, deps, acme) }},
		{cfg.runs(ControllerChallenges), func() error { return orders.SetupChallenges(ctx, deps, acme) }},
		{true, func() error { return shims.Setup(ctx, deps, cfg.shimOptions()) }},
		{everywhere && cfg.runs(ControllerClusterIssuers), func() error { return issuers.SetupCluster(ctx, deps) }},
		{everywhere && cfg.runs(SigningRequestControllerNames()...), func() error {
			return deps.Late(func(ctx context.Context) error { return setupSigningRequests(ctx, deps, log) })
		}},
		{everywhere && cfg.PodCertificates, func() error { return podrequests.Setup(deps, pods) }},
		{everywhere && cfg.TrustBundles.Any(), func() error { return trustbundles.Setup(deps, cfg.TrustBundles) }},
		{cfg.Injection.Enabled, func() error { return cfg.inject(ctx, deps, deps.Manager.GetConfig()) }},
	} {
		if !step.runs {
			continue
		}
		if err := step.add(); err != nil {
			return err
		}
	}
	return nil
}

// setupSigningRequests starts the signers of CertificateSigningRequests, unless the cluster has none (mission rule 8).
func setupSigningRequests(ctx context.Context, deps *controller.Deps, log logr.Logger) error {
	served, err := requests.ServesSigningRequests(deps.Manager)
	if err != nil {
		return err
	}
	if !served {
		log.Info("the cluster does not serve certificates.k8s.io/v1: CertificateSigningRequests are not signed")
		return nil
	}
	return requests.SetupCertificateSigningRequests(ctx, deps)
}
