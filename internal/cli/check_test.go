package cli

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"chancery.dev/internal/rig"
)

// TestCheckAPI: where everything is installed, the API is ready; who may not create CertificateRequests is told so, and
// where nobody answers, the check ends with the reason.
func TestCheckAPI(t *testing.T) {
	admin := rig.Cluster(t)
	for _, c := range []struct{ host, user, want string }{
		{admin.Host, "", "The API is ready"},
		{admin.Host, "nobody", `the API is not ready: create a CertificateRequest, to try: certificaterequests.cert-manager.io is forbidden: User "nobody"`},
		{"https://127.0.0.1:1", "", "the API is not ready: cannot connect to the API server https://127.0.0.1:1"},
	} {
		config := clientcmdapi.NewConfig()
		config.Clusters["test"] = &clientcmdapi.Cluster{Server: c.host, CertificateAuthorityData: admin.CAData, CertificateAuthority: admin.CAFile}
		config.AuthInfos["test"] = &clientcmdapi.AuthInfo{
			ClientCertificateData: admin.CertData, ClientKeyData: admin.KeyData, ClientCertificate: admin.CertFile, ClientKey: admin.KeyFile, Impersonate: c.user,
		}
		config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
		config.CurrentContext = "test"
		path := t.TempDir() + "/kubeconfig"
		if err := clientcmd.WriteToFile(*config, path); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		cmd := New()
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		cmd.SetArgs([]string{"check", "api", "--kubeconfig", path, "-v", "--wait=300ms", "--interval=100ms"})
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			out.WriteString(err.Error())
		}
		if !strings.Contains(out.String(), c.want) {
			t.Errorf("%s as %q: %q, want %q", c.host, c.user, out.String(), c.want)
		}
	}
}
