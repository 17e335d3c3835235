package ingress_test

import (
	"context"
	"net"
	"net/http"
	"testing"

	"k8s.io/client-go/rest"

	"chancery.dev/e2e/beside"
	"chancery.dev/internal/rig"
)

// traefik starts Traefik on ports 80 and 443 of an address, for the Ingresses of the
// class of that name, until the test ends.
func traefik(t *testing.T, rc *rest.Config, class, address string, flags ...string) {
	t.Helper()
	beside.Start(t, "CHANCERY_TRAEFIK_BIN", rc, append([]string{
		"--entrypoints.web.address=" + net.JoinHostPort(address, "80"),
		"--entrypoints.websecure.address=" + net.JoinHostPort(address, "443"),
		"--entrypoints.traefik.address=" + net.JoinHostPort(address, "8080"), "--ping=true",
		"--global.checknewversion=false", "--global.sendanonymoususage=false", "--log.level=INFO",
		"--providers.providersthrottleduration=100ms",
		"--providers.kubernetesingress=true", "--providers.kubernetesingress.ingressclass=" + class,
	}, flags...)...)
	rig.Eventually(t, "Traefik runs", func(ctx context.Context) string {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(address, "8080")+"/ping", http.NoBody)
		if err != nil {
			return err.Error()
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err.Error()
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return resp.Status
		}
		return ""
	})
}

// reporting is the flag by which Traefik says an address in the status of Ingresses.
func reporting(address string) string {
	return "--providers.kubernetesingress.ingressendpoint.ip=" + address
}

// installGatewayAPI applies the definitions that come with the library.
func installGatewayAPI(t *testing.T, rc *rest.Config) {
	t.Helper()
	beside.Definitions(t, rc, "", "sigs.k8s.io/gateway-api", "config/crd/standard")
}
