package issuers

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"chancery.dev/api"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/kube/ownwrites"
	"chancery.dev/internal/kube/secrets"
	"chancery.dev/internal/machine/issuer"
	"chancery.dev/internal/signer"
	"chancery.dev/internal/signer/vault"
)

// bench runs one Issuer on the engine, over an API that keeps objects.
type bench struct {
	*engine.Runner[certmanagerv1.GenericIssuer, memory, observation, issuer.Action]

	t     *testing.T
	store client.Client
	deps  *controller.Deps
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]

	events *record.FakeRecorder
}

var name = types.NamespacedName{Namespace: "team", Name: "v"}

func newBench(t *testing.T, objects ...client.Object) *bench {
	t.Helper()
	scheme, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	return benchOver(t, fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&certmanagerv1.Issuer{}, &certmanagerv1.ClusterIssuer{}).Build())
}

// benchOver is a new process over an API.
func benchOver(t *testing.T, store client.Client) *bench {
	t.Helper()
	b := &bench{
		t: t, store: store, events: record.NewFakeRecorder(20),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]()),
	}
	t.Cleanup(b.queue.ShutDown)
	over := ownwrites.New(b.store, time.Now)
	kept := secrets.New(time.Now)
	if err := kept.Connect(t.Context(), secrets.Source{Client: over, Live: b.store, Cache: &informertest.FakeInformers{Scheme: store.Scheme()}}); err != nil {
		t.Fatal(err)
	}
	b.deps = &controller.Deps{
		Client: over, Secrets: kept, Now: time.Now, Engine: engine.New(t.Context(), engine.Options{Client: over, Now: time.Now}),
		Signers: map[signer.Type]signer.Adapter{signer.TypeVault: vault.New(vault.Config{Secrets: kept, Now: time.Now})},
	}
	b.Runner = engine.Run(b.deps.Engine, (&issuers{b.deps}).kind(kind{
		Name: cmmeta.DefaultIssuerKind, Events: b.events,
		New: func() certmanagerv1.GenericIssuer { return &certmanagerv1.Issuer{} },
	}))
	if err := b.Start(t.Context(), b.queue); err != nil {
		t.Fatal(err)
	}
	return b
}

// pass looks at the issuer once, and returns its condition Ready and its one line in the list of waits.
func (b *bench) pass() (*certmanagerv1.IssuerCondition, engine.Wait) {
	b.t.Helper()
	if _, err := b.Reconcile(b.t.Context(), reconcile.Request{NamespacedName: name}); err != nil {
		b.t.Fatal(err)
	}
	is := &certmanagerv1.Issuer{}
	if err := b.store.Get(b.t.Context(), name, is); err != nil {
		b.t.Fatal(err)
	}
	waits := b.deps.Engine.Waits()
	if len(waits) != 1 || waits[0].Kind != "Issuer" || waits[0].Namespace != name.Namespace || waits[0].Name != name.Name {
		b.t.Fatalf("waits: %+v, want that of the issuer", waits)
	}
	return certmanagerv1.FindIssuerCondition(is.Status.Conditions, certmanagerv1.IssuerConditionReady), waits[0]
}

// silentServer takes connections, and says nothing. It gives out its address, and the connections.
func silentServer(t *testing.T) (string, <-chan net.Conn) {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	conns := make(chan net.Conn, 8)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns <- conn
		}
	}()
	return "http://" + l.Addr().String(), conns
}

// TestWaitsForVault reads off the list of waits that an issuer waits for Vault's answer, then for the end of the
// back-off, and that a changed Secret ends both.
func TestWaitsForVault(t *testing.T) {
	address, conns := silentServer(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: name.Namespace, Name: "token", UID: "1", Labels: map[string]string{certmanagerv1.ManagedSecretLabel: certmanagerv1.LabelTrue},
	}, Data: map[string][]byte{"token": []byte("s.1")}}
	is := &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, UID: "2", Generation: 1}}
	is.Spec.Vault = &certmanagerv1.VaultIssuer{Server: address, Path: "pki/sign/web",
		Auth: certmanagerv1.VaultAuth{TokenSecretRef: &cmmeta.SecretKeySelector{Name: "token"}}}
	b := newBench(t, is, secret)

	ready, wait := b.pass()
	if lane := "Vault " + address + " for team"; wait.What != engine.WaitCall || wait.Detail != controller.ProbeCall || wait.Lane != lane || wait.Until.IsZero() {
		t.Fatalf("while Vault is asked: %+v", wait)
	}
	if ready != nil {
		t.Fatalf("the issuer says %+v before Vault has answered", ready)
	}
	_ = (<-conns).Close()
	if req, _ := b.queue.Get(); req.NamespacedName != name {
		t.Fatalf("%s was woken", req)
	}
	ready, wait = b.pass()
	if ready == nil || ready.Status != cmmeta.ConditionFalse || ready.Reason != "VaultError" || !strings.Contains(ready.Message, "cannot be reached") {
		t.Errorf("the issuer says %+v", ready)
	}
	if wait.What != engine.WaitTime || wait.Detail != ready.Message || wait.Until.IsZero() {
		t.Errorf("after the failure: %+v", wait)
	}
	secret.Data["token"] = []byte("s.2")
	if err := b.store.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if _, wait = b.pass(); wait.What != engine.WaitCall {
		t.Errorf("with another token: %+v", wait)
	}
}

// TestAnEditedIssuerIsProbedAtOnce: somebody mends the address of a server that does not answer. The probe of the
// mended spec is made beside the one that still waits, and what that one comes to is not told any more.
func TestAnEditedIssuerIsProbedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, UID: "2", Generation: 1}}
		is.Spec.Vault = &certmanagerv1.VaultIssuer{Auth: certmanagerv1.VaultAuth{TokenSecretRef: &cmmeta.SecretKeySelector{Name: "token"}}}
		b := newBench(t, is)
		defer b.queue.ShutDown()
		b.deps.Signers[signer.TypeVault] = silent{}
		b.pass()
		synctest.Wait()
		if err := b.store.Get(t.Context(), name, is); err != nil {
			t.Fatal(err)
		}
		is.Spec.Vault.Server, is.Generation = "https://answers", 2
		if err := b.store.Update(t.Context(), is); err != nil {
			t.Fatal(err)
		}
		look := func() {
			if _, err := b.Reconcile(t.Context(), reconcile.Request{NamespacedName: name}); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		look()
		look()
		ready := func() bool {
			err := b.store.Get(t.Context(), name, is)
			return err == nil && certmanagerv1.HasIssuerCondition(is.Status.Conditions, certmanagerv1.IssuerConditionReady, cmmeta.ConditionTrue)
		}
		if !ready() {
			t.Errorf("not ready at once: %+v", is.Status)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if look(); !ready() {
			t.Errorf("the probe of before has told of itself: %+v", is.Status)
		}
	})
}

// silent is a Signer of issuers whose servers do not answer, except one.
type silent struct{}

func (silent) Lane(certmanagerv1.GenericIssuer) engine.Lane {
	return engine.Lane{Name: "silent", Limit: 4}
}

func (silent) Probe(_ context.Context, i certmanagerv1.GenericIssuer) (signer.Facts, error) {
	if i.GetSpec().Vault.Server == "https://answers" {
		return signer.Facts{Ready: true, Reason: "Fine"}, nil
	}
	time.Sleep(2 * time.Minute)
	return signer.Facts{}, errors.New("no answer")
}

// forgetful notes which issuers it was told to forget.
type forgetful struct{ gone []types.UID }

func (f *forgetful) Forget(issuer types.UID) { f.gone = append(f.gone, issuer) }

// TestSignersForgetIssuers: what a Signer keeps of an issuer goes with the issuer.
func TestSignersForgetIssuers(t *testing.T) {
	issuer := &certmanagerv1.Issuer{
		ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, UID: "uid"},
		Spec:       certmanagerv1.IssuerSpec{Vault: &certmanagerv1.VaultIssuer{}},
	}
	b, keeper := newBench(t, issuer), &forgetful{}
	b.deps.Signers[signer.TypeCA] = keeper
	if err := b.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.deps.Client.Delete(t.Context(), issuer); err != nil || len(keeper.gone) != 0 {
		t.Fatal(keeper.gone, err)
	}
	if _, err := b.Reconcile(t.Context(), reconcile.Request{NamespacedName: name}); err != nil || len(keeper.gone) != 1 || keeper.gone[0] != "uid" {
		t.Errorf("%v, %v", keeper.gone, err)
	}
}
