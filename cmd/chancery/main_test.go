package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"chancery.dev/internal/rig"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"chancery": main})
}

// TestScripts run the binary as a user does; testdata/*.txtar are the stories.
func TestScripts(t *testing.T) {
	kubeconfig, nobody := writeKubeconfig(t, rig.Cluster(t)), rig.FreeAddress(t).String()
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("CLUSTER", kubeconfig)
			env.Setenv("NOBODY", nobody)
			for _, name := range []string{"KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"} {
				env.Setenv(name, "")
			}
			return nil
		},
	})
}

func writeKubeconfig(t *testing.T, rc *rest.Config) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.CurrentContext = "test"
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	config.Clusters["test"] = &clientcmdapi.Cluster{
		Server: rc.Host, CertificateAuthorityData: rc.CAData, CertificateAuthority: rc.CAFile, TLSServerName: rc.ServerName,
	}
	config.AuthInfos["test"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: rc.CertData, ClientKeyData: rc.KeyData, ClientCertificate: rc.CertFile, ClientKey: rc.KeyFile, Token: rc.BearerToken,
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("kubeconfig: %v, error %v", info, err)
	}
	return file
}
