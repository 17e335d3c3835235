package readers_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
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
	w := newWorld(t)
	selfSigned := certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}
	issuer := &certmanagerv1.Issuer{ObjectMeta: named("self"), Spec: selfSigned}
	lost := &certmanagerv1.Issuer{ObjectMeta: named("lost"), Spec: certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "none"}}}
	cluster, acme := w.clusterIssuer("selfsigned", selfSigned), w.issuer()
	crt, stuck := w.certificate("web", "acme", "web.example.com"), w.certificate("stuck", "selfsigned", "stuck.example.com")
	stuck.Spec.IssuerRef = cmmeta.IssuerReference{Name: "lost", Kind: cmmeta.DefaultIssuerKind}
	all := []client.Object{issuer, lost, cluster, acme, crt, stuck}
	for _, o := range all {
		o.SetFinalizers([]string{"example.com/keep"})
	}
	w.Create(t, all...)
	awaitKstatus(t, w.World, "nobody has looked yet", status.InProgressStatus, all...)
	good := w.SigningRequest(t, "good", "cert-manager.io/"+w.ClusterName("acme"))
	denied := &certmanagerv1.CertificateRequest{ObjectMeta: named("denied"), Spec: certmanagerv1.CertificateRequestSpec{
		IssuerRef: cmmeta.IssuerReference{Name: "lost"}, Request: good.Spec.Request,
	}}
	w.Create(t, denied)
	deny(t, w.World, denied)

	w.Run(t, w.cfg)
	awaitKstatus(t, w.World, "in order", status.CurrentStatus, issuer, cluster, acme, crt)
	w.awaitReady(t, "stuck", cmmeta.ConditionFalse)
	awaitKstatus(t, w.World, "failing", status.InProgressStatus, lost, stuck)

	awaitKstatus(t, w.World, "made for it", status.CurrentStatus, w.made(t)...)
	bad := &certmanagerv1.CertificateRequest{ObjectMeta: named("bad"), Spec: certmanagerv1.CertificateRequestSpec{
		IssuerRef: cmmeta.IssuerReference{Name: "self"}, Request: []byte("-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n"),
	}}
	bare := w.SigningRequest(t, "bare", "cert-manager.io/"+w.ClusterName("selfsigned"))
	w.Create(t, bad, good, bare)
	awaitKstatus(t, w.World, "failed for good, without a key to sign with, or denied", status.FailedStatus, bad, bare, denied)
	rig.Eventually(t, "the CertificateSigningRequest is signed", func(ctx context.Context) string {
		if err := w.Get(ctx, good.Name, good); err != nil || len(good.Status.Certificate) == 0 {
			return fmt.Sprint(err, good.Status.Conditions)
		}
		return ""
	})
	awaitKstatus(t, w.World, "signed", status.CurrentStatus, good)

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

// deny denies a CertificateRequest, as an approver does.
func deny(t *testing.T, w *rig.World, cr *certmanagerv1.CertificateRequest) {
	t.Helper()
	certmanagerv1.SetCertificateRequestCondition(cr, certmanagerv1.CertificateRequestCondition{
		Type: certmanagerv1.CertificateRequestConditionDenied, Status: cmmeta.ConditionTrue, Reason: "Test", Message: "no",
	}, time.Now())
	if err := w.Client.Status().Update(t.Context(), cr); err != nil {
		t.Fatal(err)
	}
}

// TestKstatusOfOrders: whatever a watch tells of an Order or a Challenge, kstatus says that it is under way until it
// has ended, and that it has failed if it has.
func TestKstatusOfOrders(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	watching := func(kind string) <-chan watch.Event {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(acmev1.SchemeGroupVersion().WithKind(kind + "List"))
		return w.Watch(t, list)
	}
	orders, challenges := watching("Order"), watching("Challenge")
	w.Run(t, w.cfg)
	w.Create(t, w.issuer(), w.certificate("web", "acme", "web.example.com"))
	w.awaitReady(t, "web", cmmeta.ConditionTrue)
	w.NothingLeft(t, w.dns.TXT)
	seen := map[string]bool{}
	more := func(events <-chan watch.Event, until string) {
		t.Helper()
		for !seen[until] {
			o := next(t, events)
			state, _, _ := unstructured.NestedString(o.Object, "status", "state")
			certificate, _, _ := unstructured.NestedString(o.Object, "status", "certificate")
			want := status.InProgressStatus
			switch {
			case o.GetDeletionTimestamp() != nil:
				want = status.TerminatingStatus
			case state == string(acmev1.Valid) && (certificate != "" || o.GetKind() == "Challenge"):
				want = status.CurrentStatus
			case acmev1.State(state).IsFailure():
				want = status.FailedStatus
			}
			if got, why := kstatus(o); got != want {
				t.Errorf("the %s %+v is %s (%s), not %s", o.GetKind(), o.Object["status"], got, why, want)
			}
			seen[fmt.Sprintf("%s %s %s", o.GetKind(), state, want)] = true
		}
	}
	more(challenges, "Challenge valid Current")
	more(orders, "Order valid Current")
	for _, what := range []string{"Order  InProgress", "Order pending InProgress", "Challenge  InProgress", "Challenge pending InProgress"} {
		if !seen[what] {
			t.Errorf("%q was not seen: %v", what, seen)
		}
	}

	w.Create(t, w.certificate("bad", "acme", "bad.http.example.com"))
	more(challenges, "Challenge invalid Failed")
	more(orders, "Order invalid Failed")
}

// next is the object of the next event that is no deletion.
func next(t *testing.T, events <-chan watch.Event) *unstructured.Unstructured {
	t.Helper()
	for {
		select {
		case e := <-events:
			if o, is := e.Object.(*unstructured.Unstructured); is && e.Type != watch.Deleted {
				return o
			}
		case <-time.After(rig.Patience):
			t.Fatal("the watch tells of nothing more")
		}
	}
}

// made are the CertificateRequests and Orders of the world.
func (w *world) made(t *testing.T) (out []client.Object) {
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
