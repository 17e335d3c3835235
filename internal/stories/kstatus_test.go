package stories_test

import (
	"context"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig"
)

// kstatusOf is what kstatus says of an object as the API server has it, and why.
func kstatusOf(ctx context.Context, w *rig.World, o client.Object) (status.Status, string) {
	gvk, err := w.Client.GroupVersionKindFor(o)
	read := &unstructured.Unstructured{}
	if err == nil {
		read.SetGroupVersionKind(gvk)
		err = w.Client.Get(ctx, client.ObjectKeyFromObject(o), read)
	}
	switch {
	case apierrors.IsNotFound(err):
		return status.NotFoundStatus, ""
	case err != nil:
		return "", err.Error()
	default:
		return kstatus(read)
	}
}

func kstatus(o client.Object) (status.Status, string) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return "", err.Error()
	}
	result, err := status.Compute(&unstructured.Unstructured{Object: content})
	if err != nil {
		return "", err.Error()
	}
	return result.Status, result.Message
}

// awaitKstatus waits until kstatus says what Argo CD, Flux and Helm are to wait for.
func awaitKstatus(t *testing.T, w *rig.World, stage string, want status.Status, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		rig.Eventually(t, fmt.Sprintf("%T %s is %s: %s", o, o.GetName(), want, stage), func(ctx context.Context) string {
			got, why := kstatusOf(ctx, w, o)
			if got != want {
				return fmt.Sprintf("%s: %s", got, why)
			}
			return ""
		})
	}
}

// TestKstatus: who waits by kstatus waits for what they mean, from creation to deletion.
func TestKstatus(t *testing.T) {
	t.Parallel()
	w := newACMEWorld(t, nil)
	selfSigned := certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}
	issuer := &certmanagerv1.Issuer{ObjectMeta: named("self"), Spec: selfSigned}
	lost := &certmanagerv1.Issuer{ObjectMeta: named("lost"), Spec: certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "none"}}}
	cluster, acme := clusterIssuer(w.World, "selfsigned", selfSigned), w.issuer()
	crt, stuck := certificate(w.World, "web", "acme", "web.example.com"), certificate(w.World, "stuck", "selfsigned", "stuck.example.com")
	stuck.Spec.IssuerRef = cmmeta.IssuerReference{Name: "lost", Kind: cmmeta.DefaultIssuerKind}
	all := []client.Object{issuer, lost, cluster, acme, crt, stuck}
	for _, o := range all {
		o.SetFinalizers([]string{"example.com/keep"})
	}
	w.Create(t, all...)
	awaitKstatus(t, w.World, "nobody has looked yet", status.InProgressStatus, all...)

	w.Run(t, w.Config())
	awaitKstatus(t, w.World, "in order", status.CurrentStatus, issuer, cluster, acme, crt)
	rig.Eventually(t, "the Certificate says why", func(ctx context.Context) string {
		if c := condition(w.World, "stuck", certmanagerv1.CertificateConditionReady)(ctx); c == nil || c.Status != cmmeta.ConditionFalse {
			return fmt.Sprintf("%+v", c)
		}
		return ""
	})
	awaitKstatus(t, w.World, "failing", status.InProgressStatus, lost, stuck)

	awaitKstatus(t, w.World, "made for it", status.CurrentStatus, w.made(t)...)
	bad := &certmanagerv1.CertificateRequest{ObjectMeta: named("bad"), Spec: certmanagerv1.CertificateRequestSpec{
		IssuerRef: cmmeta.IssuerReference{Name: "self"}, Request: []byte("-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n"),
	}}
	w.Create(t, bad)
	awaitKstatus(t, w.World, "failed for good", status.FailedStatus, bad)

	generation := crt.Generation
	change := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"dnsNames":["other.example.com"]}}`))
	if err := w.Client.Patch(t.Context(), crt, change); err != nil || crt.Generation == generation {
		t.Fatal(err)
	}
	if got, why := kstatus(crt); got != status.InProgressStatus {
		t.Errorf("as the spec has changed: %s, %s", got, why)
	}
	awaitKstatus(t, w.World, "issued again", status.CurrentStatus, crt)
	for _, o := range all {
		if err := w.Client.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	awaitKstatus(t, w.World, "being deleted", status.TerminatingStatus, all...)
	for _, o := range all {
		if err := w.Client.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
			t.Fatal(err)
		}
	}
	awaitKstatus(t, w.World, "deleted", status.NotFoundStatus, all...)
}

// made are the CertificateRequests and Orders of the world.
func (w *acmeWorld) made(t *testing.T) (out []client.Object) {
	t.Helper()
	requests, orders := &certmanagerv1.CertificateRequestList{}, &acmev1.OrderList{}
	for _, list := range []client.ObjectList{requests, orders} {
		if err := w.Client.List(t.Context(), list, client.InNamespace(w.Namespace)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range requests.Items {
		if requests.Items[i].Spec.IssuerRef.Name != "lost" {
			out = append(out, &requests.Items[i])
		}
	}
	for i := range orders.Items {
		out = append(out, &orders.Items[i])
	}
	if len(out) < 2 {
		t.Fatalf("there are %d objects", len(out))
	}
	return out
}
