// Package beside starts real programs of other projects next to the controllers, for the tests of e2e. It also installs
// the CustomResourceDefinitions of these programs. Only tests import it.
package beside

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"chancery.dev/internal/rig"
)

// Start runs the program that the environment variable names until the test ends. KUBECONFIG gives the program the
// connection. The log of a failed test ends with what the program said last.
func Start(t *testing.T, variable string, rc *rest.Config, args ...string) {
	t.Helper()
	binary := os.Getenv(variable)
	if binary == "" {
		t.Fatalf("%s names no program: run this test by its make target", variable)
	}
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+Kubeconfig(t, dir, rc))
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Wait() // killed by the end of the test's context
		_ = log.Close()
		if t.Failed() {
			said, _ := os.ReadFile(log.Name())
			t.Logf("%s said:\n%s", filepath.Base(binary), said[max(0, len(said)-6000):])
		}
	})
}

// Kubeconfig writes a connection into a file of a directory, and returns the file's path.
func Kubeconfig(t *testing.T, dir string, rc *rest.Config) string {
	t.Helper()
	rc = rest.CopyConfig(rc)
	if err := rest.LoadTLSFiles(rc); err != nil {
		t.Fatal(err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: rc.Host, CertificateAuthorityData: rc.CAData}
	config.AuthInfos["test"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: rc.CertData, ClientKeyData: rc.KeyData, Token: rc.BearerToken,
		Impersonate: rc.Impersonate.UserName, ImpersonateGroups: rc.Impersonate.Groups,
	}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	config.CurrentContext = "test"
	path := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// Apply creates the objects of a YAML file, in which NAMESPACE stands for the namespace. change is called for each
// object first; nil changes nothing.
func Apply(t *testing.T, c client.Client, path, namespace string, change func(*unstructured.Unstructured)) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(strings.ReplaceAll(string(text), "NAMESPACE", namespace), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), object); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if change != nil {
			change(object)
		}
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatalf("%s: %s %s: %v", path, object.GetKind(), object.GetName(), err)
		}
	}
}

// WebhookPort is a change for Apply: webhooks that a Service names listen on that port.
func WebhookPort(t *testing.T, port uint16) func(*unstructured.Unstructured) {
	t.Helper()
	return func(o *unstructured.Unstructured) {
		webhooks, found, err := unstructured.NestedSlice(o.Object, "webhooks")
		if !found {
			return
		}
		for _, webhook := range webhooks {
			if fields, ok := webhook.(map[string]any); ok && err == nil {
				err = unstructured.SetNestedField(fields, int64(port), "clientConfig", "service", "port")
			}
		}
		if err == nil {
			err = unstructured.SetNestedSlice(o.Object, webhooks, "webhooks")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Injector runs the CA injector for the namespace of a world until the test ends.
func Injector(t *testing.T, w *rig.World) {
	t.Helper()
	Start(t, "CHANCERY_BIN", w.Admin, "cainjector", "--leader-elect=false", "--namespace", w.Namespace,
		"--metrics-listen-address", "0", "--internal-healthz-listen-address", "0")
}

// AwaitRefusal waits until a webhook refuses an object: the API server reaches the webhook, and trusts its certificate.
func AwaitRefusal(t *testing.T, c client.Client, webhook string, object client.Object) {
	t.Helper()
	rig.Eventually(t, "the webhook "+webhook+" refuses the object", func(ctx context.Context) string {
		err := c.Create(ctx, object)
		switch {
		case err == nil:
			t.Fatalf("%s is admitted", object.GetName())
		case strings.Contains(err.Error(), fmt.Sprintf("admission webhook %q denied the request", webhook)):
			return ""
		}
		return err.Error()
	})
}

// Definitions applies the CustomResourceDefinitions of a directory of a Go module, and waits until they are served.
// modfile is the file in e2e/peers that requires the module; empty for the module of e2e.
func Definitions(t *testing.T, rc *rest.Config, modfile, module, directory string) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(rc, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module)
	if modfile != "" {
		cmd = exec.CommandContext(t.Context(), "go", "list", "-modfile", modfile, "-m", "-f", "{{.Dir}}", module)
		cmd.Dir = filepath.Join("..", "peers")
	}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), filepath.FromSlash(directory), "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the definitions of %s: %v, %v", module, files, err)
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
		awaitServed(t, c, crd)
	}
}

// awaitServed waits until the API server serves the kind that crd defines.
func awaitServed(t *testing.T, c client.Client, crd *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
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
