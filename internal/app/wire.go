package app

import (
	"context"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"chancery.dev/internal/controller"
	"chancery.dev/internal/signer"
	"chancery.dev/internal/signer/ca"
	"chancery.dev/internal/signer/selfsigned"
)

// wire is the one list of everything that runs.
func wire(ctx context.Context, cfg Config, deps *controller.Deps, secrets cache.Cache, log logr.Logger) error {
	deps.Signers = map[signer.Type]signer.Signer{
		signer.TypeSelfSigned: selfsigned.New(deps.Secrets, deps.Now),
		signer.TypeCA: ca.New(ca.Config{
			Secrets: deps.Secrets, Now: deps.Now, ClusterResourceNamespace: cfg.ClusterResourceNamespace,
		}),
	}
	sources := controller.IssuerSources{SecretMetadata: secrets}
	steps := []func() error{
		func() error { return controller.SetupCertificates(ctx, deps, secrets) },
		func() error { return controller.SetupCertificateRequests(ctx, deps, secrets) },
		func() error { return controller.SetupIssuers(ctx, deps, sources) },
	}
	if cfg.Namespace == "" {
		steps = append(steps,
			func() error { return controller.SetupClusterIssuers(ctx, deps, sources) },
			func() error { return setupSigningRequests(ctx, deps, secrets, log) },
		)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// setupSigningRequests starts the signers of CertificateSigningRequests, unless
// the cluster has none (mission rule 8).
func setupSigningRequests(ctx context.Context, deps *controller.Deps, secrets cache.Cache, log logr.Logger) error {
	served, err := controller.ServesSigningRequests(deps.Manager)
	if err != nil {
		return err
	}
	if !served {
		log.Info("the cluster does not serve certificates.k8s.io/v1: CertificateSigningRequests are not signed")
		return nil
	}
	return controller.SetupCertificateSigningRequests(ctx, deps, secrets)
}
