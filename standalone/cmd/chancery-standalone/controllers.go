package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/go-logr/logr"
	"gopkg.in/natefinch/lumberjack.v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"chancery.dev/internal/app"
	"chancery.dev/internal/cli/version"
	"chancery.dev/internal/install"
	"chancery.dev/standalone/controlplane"
)

// The service account whose identity the controllers have.
const (
	controllersNamespace      = "cert-manager"
	controllersServiceAccount = "cert-manager"
)

// startControllers installs what the controllers need, as the administrator, and runs them until ctx is done with the
// identity of their service account. They log to controllers.log in dir. It calls ready once, when they are serving.
func startControllers(ctx context.Context, cp *controlplane.ControlPlane, dir string, config app.Config, ready func()) error {
	user, groups := controlplane.ServiceAccount(controllersNamespace, controllersServiceAccount)
	identity, err := cp.ClientFor(user, groups...)
	if err != nil {
		return err
	}
	install := install.DefaultInstallation()
	install.ForceConflicts, install.PodCertificates, install.TrustBundles = true, config.PodCertificates, config.TrustBundles
	if err := install.Apply(ctx, cp.Config(), func(string) {}); err != nil {
		return fmt.Errorf("install Chancery's definitions and roles: %w", err)
	}
	file := &lumberjack.Logger{Filename: filepath.Join(dir, "controllers.log"), MaxSize: 10 /* MB */, MaxBackups: 2}
	if _, err := file.Write(nil); err != nil { // makes the file: what cannot be written is said now
		return fmt.Errorf("open the controllers' log: %w", err)
	}
	defer func() { _ = file.Close() }()
	log := logr.FromSlogHandler(slog.NewTextHandler(file, nil))
	ctrl.SetLogger(app.Machinery(log))
	if path, is := strings.CutPrefix(config.WaitsAddress, "unix:"); is && !filepath.IsAbs(path) {
		config.WaitsAddress = "unix:" + filepath.Join(dir, path)
	}
	a, err := app.New(ctx, config, identity, log)
	if err != nil {
		return err
	}
	go func() {
		if a.Synced(ctx) {
			ready()
		}
	}()
	return a.Run(ctx)
}

// standaloneConfig is the configuration of controllers that have a machine, and an API server, to themselves.
func standaloneConfig() app.Config {
	cfg := app.DefaultConfig()
	cfg.UserAgent += "/" + version.Number()
	cfg.LeaderElect = false
	cfg.IssuerEgress.AllowLoopback()
	cfg.ACME.HTTP01Hosts, cfg.ACME.TLSALPN01Hosts = []string{"*=*"}, []string{"*=*"}
	cfg.MetricsAddress, cfg.HealthAddress, cfg.WaitsAddress = "0", "0", "unix:waits.sock"
	return cfg
}
