package notices

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/cloudevents"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/overlay"
)

var name = types.NamespacedName{Namespace: "shop", Name: "web"}

// desk is a receiver, and an API server with one Certificate that was issued now.
type desk struct {
	store client.Client
	// old says that the definition of Certificates does not know status.told.
	old bool
	// down says that the receiver does not answer.
	down bool
	ids  []string
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := certmanagerv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	now := metav1.NewTime(time.Now())
	crt := &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, UID: "1"}}
	crt.Status.Revision, crt.Status.NotBefore = new(1), &now
	d := &desk{}
	store := fake.NewClientBuilder().WithScheme(scheme).WithObjects(crt).WithStatusSubresource(crt).Build()
	d.store = interceptor.NewClient(store, interceptor.Funcs{SubResourcePatch: d.patchStatus})
	return d
}

// patchStatus prunes as the API server does.
func (d *desk) patchStatus(
	ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption,
) error {
	if crt, is := obj.(*certmanagerv1.Certificate); is && d.old {
		crt.Status.Told = nil
	}
	return c.SubResource(sub).Patch(ctx, obj, patch)
}

// passes starts a process, which makes so many passes, a minute apart.
func (d *desk) passes(t *testing.T, n int) {
	t.Helper()
	over := overlay.New(d.store, time.Now)
	r := &notices{began: time.Now(), send: d.send, Deps: &controller.Deps{
		Client: over, Now: time.Now, Engine: engine.New(t.Context(), engine.Options{Client: over, Now: time.Now}),
		Events: func(string) record.EventRecorder { return record.NewFakeRecorder(10) },
	}}
	runner := r.runner()
	for range n {
		if _, err := runner.Reconcile(t.Context(), reconcile.Request{NamespacedName: name}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) //nolint:forbidigo // the bubble's time
		synctest.Wait()
	}
}

func (d *desk) send(_ context.Context, e cloudevents.Event) error {
	if d.down {
		return errors.New("no answer")
	}
	d.ids = append(d.ids, e.ID)
	return nil
}

// TestOldDefinition: an event is sent once although the definition of Certificates drops the note of it.
func TestOldDefinition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		d.old = true
		d.passes(t, 5)
		if want := []string{"1.dev.chancery.certificate.issued.1"}; !slices.Equal(d.ids, want) {
			t.Errorf("%q, want %q", d.ids, want)
		}
	})
}

// TestReceiverOutlastsProcess: an event that the receiver has not taken for hours is sent by the next process, too.
func TestReceiverOutlastsProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		d.down = true
		d.passes(t, 3)
		time.Sleep(6 * time.Hour) //nolint:forbidigo // the bubble's time
		d.down = false
		d.passes(t, 3)
		if want := []string{"1.dev.chancery.certificate.issued.1"}; !slices.Equal(d.ids, want) {
			t.Errorf("%q, want %q", d.ids, want)
		}
	})
}
