package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"chancery.dev/internal/app"
)

// The service account whose identity the controllers have.
const (
	controllersNamespace      = "cert-manager"
	controllersServiceAccount = "cert-manager"
)

// runControllers installs what the controllers need, as the administrator, and runs them with the rights of config until ctx
// is done. They log to controllers.log in the data directory.
func runControllers(ctx context.Context, config *rest.Config, options controllerOptions) error {
	if err := app.Install(ctx, options.Admin, func(string) {}); err != nil {
		return fmt.Errorf("install Chancery's definitions and roles: %w", err)
	}
	path := filepath.Join(options.DataDir, "controllers.log")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the controllers' log: %w", err)
	}
	defer func() { _ = file.Close() }()
	log := logr.FromSlogHandler(slog.NewTextHandler(file, nil))
	ctrl.SetLogger(log)
	a, err := app.New(ctx, options.Config, config, log)
	if err != nil {
		return err
	}
	go func() {
		if a.Synced(ctx) {
			options.Ready()
		}
	}()
	return a.Run(ctx)
}

// standaloneConfig is the configuration of controllers that have a machine, and an API server, to themselves.
func standaloneConfig() app.Config {
	cfg := app.DefaultConfig()
	cfg.LeaderElect = false
	cfg.MetricsAddress, cfg.HealthAddress = "0", "0"
	return cfg
}
