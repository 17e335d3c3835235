package ingress_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"chancery.dev/internal/rig"
)

// traefik starts Traefik on ports 80 and 443 of an address, for the Ingresses of the
// class of that name, until the test ends.
func traefik(t *testing.T, rc *rest.Config, class, address string, flags ...string) {
	t.Helper()
	binary := os.Getenv("CHANCERY_TRAEFIK_BIN")
	if binary == "" {
		t.Fatal("no Traefik for this test: run make e2e, or set CHANCERY_TRAEFIK_BIN to the binary")
	}
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, append([]string{
		"--entrypoints.web.address=" + net.JoinHostPort(address, "80"),
		"--entrypoints.websecure.address=" + net.JoinHostPort(address, "443"),
		"--entrypoints.traefik.address=" + net.JoinHostPort(address, "8080"), "--ping=true",
		"--global.checknewversion=false", "--global.sendanonymoususage=false", "--log.level=INFO",
		"--providers.providersthrottleduration=100ms",
		"--providers.kubernetesingress=true", "--providers.kubernetesingress.ingressclass=" + class,
	}, flags...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig(t, dir, rc))
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Wait() // killed by the end of the test's context
		if t.Failed() {
			said, _ := os.ReadFile(log.Name())
			t.Logf("Traefik said:\n%s", tail(string(said), 4000))
		}
	})
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

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

// kubeconfig writes a connection into a file.
func kubeconfig(t *testing.T, dir string, rc *rest.Config) string {
	t.Helper()
	if err := rest.LoadTLSFiles(rc); err != nil {
		t.Fatal(err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: rc.Host, CertificateAuthorityData: rc.CAData}
	config.AuthInfos["test"] = &clientcmdapi.AuthInfo{ClientCertificateData: rc.CertData, ClientKeyData: rc.KeyData, Token: rc.BearerToken}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	config.CurrentContext = "test"
	path := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// installGatewayAPI applies the definitions that come with the library.
func installGatewayAPI(t *testing.T, c client.Client) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "config", "crd", "standard", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the definitions of the Gateway API: %v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(text, crd); err != nil {
			t.Fatal(err)
		}
		if crd.Kind != "CustomResourceDefinition" {
			continue
		}
		if err := c.Create(t.Context(), crd); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatalf("%s: %v", filepath.Base(file), err)
		}
		rig.Eventually(t, crd.Name+" is served", func(ctx context.Context) string {
			if err := c.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
				return err.Error()
			}
			for _, condition := range crd.Status.Conditions {
				if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
					return ""
				}
			}
			return fmt.Sprint(crd.Status.Conditions)
		})
	}
}
