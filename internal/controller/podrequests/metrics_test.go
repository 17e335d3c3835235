package podrequests

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"chancery.dev/api"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/kube/ownwrites"
	"chancery.dev/internal/kube/podapi"
	"chancery.dev/internal/machine/podrequest"
	"chancery.dev/internal/metrics"
	"chancery.dev/internal/signer"
)

// TestMetrics: a denial counts once, and only when it is written; what waits is told with its reason until it does not
// wait any more; an issuer that does not exist has no name.
func TestMetrics(t *testing.T) {
	t.Parallel()
	scheme, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_764_000_000, 0)
	request := func(name, issuer string, stub []byte) *podCertificateRequest {
		pcr := &podCertificateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(now.Add(-time.Minute))}}
		pcr.Spec.SignerName, pcr.Spec.StubPKCS10Request = "issuers.cert-manager.io/shop."+issuer, stub
		return pcr
	}
	issuer := &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pods", Annotations: map[string]string{
		certmanagerv1.PodCertificatesAnnotation: "prod.example.com", certmanagerv1.PodCertificatesForAnnotation: "all",
	}}}
	issuer.Spec.CA = &certmanagerv1.CAIssuer{SecretName: "ca"}
	issuer.Status.Conditions = []certmanagerv1.IssuerCondition{{Type: certmanagerv1.IssuerConditionReady, Status: cmmeta.ConditionTrue}}
	refusal := error(apierrors.NewConflict(schema.GroupResource{}, "denied", errors.New("somebody was faster")))
	store := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&podCertificateRequest{}).
		WithObjects(issuer, request("denied", "pods", []byte("x")), request("old", "pods", nil), request("lost", "nobody", nil)).
		WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
				if podapi.VersionOf(object) == podapi.V1Beta { // which has the key of an old kubelet
					return &meta.NoKindMatchError{}
				}
				return c.Get(ctx, key, object)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, object client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
				if refusal != nil {
					return refusal
				}
				return c.SubResource(sub).Patch(ctx, object, patch)
			},
		}).Build()
	api := ownwrites.New(store, time.Now)
	d := &controller.Deps{
		Client: api, Pods: podapi.New(store), Engine: engine.New(t.Context(), engine.Options{Client: api, Now: time.Now}), Now: time.Now, Signers: map[signer.Type]signer.Adapter{signer.TypeCA: struct{}{}},
	}
	leads := replica{elected: make(chan struct{}), store: store}
	close(leads.elected)
	d.Manager = leads
	r := &requests{Deps: d, metrics: metrics.NewPodRequests()}
	r.metrics.AddIssuer(client.ObjectKeyFromObject(issuer))
	runner := engine.Run(d.Engine, kind{
		Name: controller.PodRequestKind, Events: record.NewFakeRecorder(20), New: func() *podCertificateRequest { return &podCertificateRequest{} },
		Observe: r.observe, Plan: r.measured, Refused: r.refused, Gone: r.gone,
		Decide: func(o *observation, now time.Time) podrequest.Action { return podrequest.Decide(o.state, now) },
	})
	const (
		denied  = `chancery_pod_certificate_requests_total{kind="Issuer",namespace="shop",name="pods",result="denied",reason="UnsupportedKeyType"} 1`
		waiting = "chancery_pod_certificate_requests_waiting"
		of      = `{kind="Issuer",namespace="shop",name="pods",reason=`
		old     = waiting + of + `"KubeletTooOld"} 1`
		lost    = waiting + `{kind="",namespace="",name="",reason="IssuerMissing"} 1`
	)
	for _, step := range []struct {
		name    string
		refusal error
		want    []string
	}{
		{"old", nil, []string{old}},
		{"lost", nil, []string{lost, old}},
		{"denied", refusal, []string{lost, waiting + of + `""} 1`, old}},
		{"denied", apierrors.NewForbidden(schema.GroupResource{}, "denied", errors.New("no right")), []string{lost, old, waiting + of + `"SigningError"} 1`}},
		{"denied", nil, []string{denied, lost, old}},
		{"denied", nil, []string{denied, lost, old}},
		{"gone", nil, []string{denied, lost}},
	} {
		if refusal = step.refusal; step.name == "gone" {
			step.name = "old"
			if err := store.Delete(t.Context(), request("old", "", nil)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := runner.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: step.name}}); err != nil {
			t.Fatal(step.name, err)
		}
		if got := told(t, r.metrics, now); !slices.Equal(got, step.want) {
			t.Errorf("%s: told\n%s\nwant\n%s", step.name, strings.Join(got, "\n"), strings.Join(step.want, "\n"))
		}
	}
	pcr := &certificatesv1.PodCertificateRequest{}
	if err := store.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "denied"}, pcr); err != nil || !finished(pcr) {
		t.Errorf("%v %+v", err, pcr.Status)
	}
}

// told are the samples of requests that are not 0, without their ages, in order.
func told(t *testing.T, m *metrics.PodRequests, now time.Time) (out []string) {
	t.Helper()
	w := httptest.NewRecorder()
	metrics.Handler(prometheus.NewRegistry(), &metrics.Controller{
		Objects: func() (metrics.Objects, bool) { return metrics.Objects{}, false }, Leads: func() bool { return true }, Now: func() time.Time { return now }, Pods: m,
	}, logr.Discard()).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	for line := range strings.Lines(w.Body.String()) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "chancery_pod") && !strings.HasSuffix(line, " 0") && !strings.Contains(line, "oldest") {
			out = append(out, line)
		}
	}
	slices.Sort(out)
	return out
}
