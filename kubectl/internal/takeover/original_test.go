package takeover

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"text/template"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"chancery.dev/api"
	"chancery.dev/internal/rig"
)

// ourImage is the image that stands for chancery in these tests.
const ourImage = "registry.example.com/chancery:v1"

// original is an API server with the stand-in for cert-manager that e2e/chart has: its objects, and programs that hold
// its lease and answer its webhook.
type original struct {
	t          *testing.T
	rc         *rest.Config
	client     client.WithWatch
	kubeconfig string
	hook       *httptest.Server
	// down says that the webhook has no Pod.
	down atomic.Bool
	// reviews counts what the webhook was asked.
	reviews atomic.Int64
}

// newOriginal starts an API server, and installs the stand-in. Nothing runs before pods is called.
func newOriginal(t *testing.T) *original {
	t.Helper()
	rc := rig.BareCluster(t)
	scheme, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	o := &original{t: t, rc: rc, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	if o.client, err = client.NewWithWatch(rc, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: rc.Host, CertificateAuthority: rc.CAFile, CertificateAuthorityData: rc.CAData}
	config.AuthInfos["a"] = &clientcmdapi.AuthInfo{
		ClientCertificate: rc.CertFile, ClientCertificateData: rc.CertData, ClientKey: rc.KeyFile, ClientKeyData: rc.KeyData, Token: rc.BearerToken, TokenFile: rc.BearerTokenFile,
	}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "a"}
	config.CurrentContext = "x"
	if err := clientcmd.WriteToFile(*config, o.kubeconfig); err != nil {
		t.Fatal(err)
	}
	o.serveHook()
	o.install()
	return o
}

// serveHook answers what the API server asks the webhook: everything is admitted.
func (o *original) serveHook() {
	o.hook = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review := &admissionv1.AdmissionReview{}
		if err := json.NewDecoder(r.Body).Decode(review); err != nil || o.down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		o.reviews.Add(1)
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		_ = json.NewEncoder(w).Encode(review)
	}))
	o.hook.Config.ErrorLog = nil
	o.t.Cleanup(o.hook.Close)
}

// install renders the chart of the stand-in, of whose functions it has those that the chart uses.
func (o *original) install() {
	o.t.Helper()
	text, err := os.ReadFile("../../../e2e/chart/testdata/original/templates/objects.yaml")
	if err != nil {
		o.t.Fatal(err)
	}
	chart := template.New("objects")
	chart.Funcs(functions(chart))
	if _, err := chart.Parse(string(text)); err != nil {
		o.t.Fatal(err)
	}
	out := &bytes.Buffer{}
	if err := chart.Execute(out, map[string]any{
		"Release": map[string]any{"Namespace": home}, "Values": map[string]any{"crds": map[string]any{"enabled": true, "keep": false}},
	}); err != nil {
		o.t.Fatal(err)
	}
	o.create(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": home}}})
	for _, doc := range strings.Split(out.String(), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &object.Object); err != nil {
			o.t.Fatalf("%v in\n%s", err, doc)
		}
		if len(object.Object) == 0 {
			continue
		}
		o.adapt(object)
		o.create(object)
	}
	rig.Eventually(o.t, "the definitions are served", func(ctx context.Context) string {
		crt := &unstructured.UnstructuredList{}
		crt.SetGroupVersionKind(kindOf("cert-manager.io", "CertificateList"))
		if err := o.client.List(ctx, crt); err != nil {
			return err.Error()
		}
		return ""
	})
}

// adapt makes webhook configurations lead to the webhook of the test, and be as strict as those of cert-manager.
func (o *original) adapt(object *unstructured.Unstructured) {
	hooks, there, _ := unstructured.NestedSlice(object.Object, "webhooks")
	if !there {
		if namespace := object.GetNamespace(); namespace == "" && !isClusterScoped(object.GetKind()) {
			object.SetNamespace(home)
		}
		return
	}
	hook, _ := hooks[0].(map[string]any)
	hook["failurePolicy"], hook["timeoutSeconds"] = "Fail", int64(10)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: o.hook.Certificate().Raw})
	hook["clientConfig"] = map[string]any{"url": o.hook.URL, "caBundle": base64.StdEncoding.EncodeToString(ca)}
	hook["rules"] = []any{map[string]any{
		"apiGroups": []any{"cert-manager.io"}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE", "UPDATE"}, "resources": []any{"*"},
	}}
	_ = unstructured.SetNestedSlice(object.Object, hooks, "webhooks")
}

func isClusterScoped(kind string) bool {
	return strings.HasPrefix(kind, "ClusterRole") || kind == "CustomResourceDefinition" || strings.HasSuffix(kind, "WebhookConfiguration")
}

func (o *original) create(object client.Object) {
	o.t.Helper()
	if err := o.client.Create(o.t.Context(), object); err != nil {
		o.t.Fatalf("create %s: %v", nameOf(object), err)
	}
}

// functions are those of helm that the chart of the stand-in calls.
func functions(chart *template.Template) template.FuncMap {
	return template.FuncMap{
		"include": func(name string, data any) (string, error) {
			b := &strings.Builder{}
			err := chart.ExecuteTemplate(b, name, data)
			return b.String(), err
		},
		"list":    func(items ...any) []any { return items },
		"has":     func(item any, list []any) bool { return slices.Contains(list, item) },
		"ternary": func(yes, no any, which bool) any { return map[bool]any{true: yes, false: no}[which] },
		"dict": func(pairs ...string) map[string]string {
			out := map[string]string{}
			for i := 0; i < len(pairs); i += 2 {
				out[pairs[i]] = pairs[i+1]
			}
			return out
		},
		"contains":   func(part, text string) bool { return strings.Contains(text, part) },
		"splitList":  func(by, text string) []string { return strings.Split(text, by) },
		"first":      func(list []string) string { return list[0] },
		"trimPrefix": func(prefix, text string) string { return strings.TrimPrefix(text, prefix) },
		"lower":      strings.ToLower,
	}
}
