package issuers_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acme/accounts"
	acmeclient "chancery.dev/internal/acme/client"
	"chancery.dev/internal/controller/issuers"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/machine/order"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/signer"
	"chancery.dev/internal/signer/acmeorder"
)

// live is a manager of which only the reader past the cache is used.
type live struct {
	ctrl.Manager

	reader client.Reader
}

func (m live) GetAPIReader() client.Reader { return m.reader }

// acmeBench is a process that looks after ACME issuers of both kinds.
type acmeBench struct {
	*issuers.Bench

	t        *testing.T
	ca       *paperCA
	accounts *accounts.Registry
	cluster  reconcile.Reconciler
}

// clusterNamespace is where the Secrets of ClusterIssuers are.
const clusterNamespace = "cluster"

// newACME is a process with these issuers, and a CA.
func newACME(t *testing.T, objects ...client.Object) *acmeBench {
	t.Helper()
	return startACME(t, &paperCA{accounts: map[string]string{}, silent: map[string]bool{}}, issuers.NewBench(t, objects...).Store())
}

// startACME starts a process over an API.
func startACME(t *testing.T, ca *paperCA, store client.Client) *acmeBench {
	t.Helper()
	a := &acmeBench{Bench: issuers.Over(t, store), t: t, ca: ca}
	a.Deps().Manager = live{reader: store}
	a.Deps().Settings.ClusterResourceNamespace = clusterNamespace
	a.accounts = accounts.New(accounts.Options{Now: time.Now, HTTPClient: func(o acmeclient.HTTPOptions) (*http.Client, error) {
		return &http.Client{Transport: via{ca, string(o.CABundle)}}, nil
	}})
	a.Deps().Signers[signer.TypeACME] = acmeorder.New(acmeorder.Config{
		Secrets: a.Deps().Secrets, Accounts: a.accounts, Now: time.Now, AccountKeyAlgorithm: pki.ECDSA,
		ClusterResourceNamespace: clusterNamespace, Issuers: a.all,
	})
	a.Deps().Signers[signer.TypeACME].(signer.AccountHolder).OnLost(a.Ring)
	a.cluster = a.RunCluster()
	return a
}

// all lists all issuers.
func (a *acmeBench) all(ctx context.Context) (out []certmanagerv1.GenericIssuer, err error) {
	namespaced, global := &certmanagerv1.IssuerList{}, &certmanagerv1.ClusterIssuerList{}
	err = errors.Join(a.Store().List(ctx, namespaced), a.Store().List(ctx, global))
	for i := range namespaced.Items {
		out = append(out, &namespaced.Items[i])
	}
	for i := range global.Items {
		out = append(out, &global.Items[i])
	}
	return out, err
}

// look looks at all issuers once, and waits until their calls have come back or are held. It returns how the passes
// have failed.
func (a *acmeBench) look() (err error) {
	a.t.Helper()
	all, failed := a.all(a.t.Context())
	if failed != nil {
		a.t.Fatal(failed)
	}
	for _, is := range all {
		by := reconcile.Reconciler(a.Runner)
		if is.GetNamespace() == "" {
			by = a.cluster
		}
		_, failed := by.Reconcile(a.t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(is)})
		err = errors.Join(err, failed)
	}
	synctest.Wait()
	return err
}

// looks looks so many times without a pause.
func (a *acmeBench) looks(n int) {
	a.t.Helper()
	for range n {
		if err := a.look(); err != nil {
			a.t.Error(err)
		}
	}
}

// settle looks at all issuers until nothing is left to do.
func (a *acmeBench) settle() {
	a.t.Helper()
	for range 20 {
		a.looks(1)
		time.Sleep(10 * time.Second)
	}
}

// status reads an issuer, and returns its condition Ready as text, and the account.
func (a *acmeBench) status(is certmanagerv1.GenericIssuer) (ready string, status acmev1.ACMEIssuerStatus) {
	a.t.Helper()
	if err := a.Store().Get(a.t.Context(), client.ObjectKeyFromObject(is), is); err != nil {
		a.t.Fatal(err)
	}
	if c := certmanagerv1.FindIssuerCondition(is.GetStatus().Conditions, certmanagerv1.IssuerConditionReady); c != nil {
		ready = fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
	}
	if known := is.GetStatus().ACME; known != nil {
		status = *known
	}
	return ready, status
}

// registered is what the condition Ready says of an issuer that is in order.
const registered = "True ACMEAccountRegistered: The ACME account was registered with the ACME server"

// inOrder reports whether a condition says so, whatever it says of the CA bundle.
func inOrder(ready string) bool {
	return strings.HasPrefix(ready, registered) && !strings.Contains(ready, "its key")
}

// rotate asks for another key.
func (a *acmeBench) rotate(is certmanagerv1.GenericIssuer, value string) {
	a.t.Helper()
	a.status(is)
	is.SetAnnotations(map[string]string{acmev1.RotateAccountKeyAnnotation: value})
	if err := a.Store().Update(a.t.Context(), is); err != nil {
		a.t.Fatal(err)
	}
}

// secret reads the Secret of an issuer's account.
func (a *acmeBench) secret(is certmanagerv1.GenericIssuer) *corev1.Secret {
	a.t.Helper()
	found := &corev1.Secret{}
	key := client.ObjectKey{Namespace: signer.ResourceNamespace(is, clusterNamespace), Name: is.GetSpec().ACME.PrivateKey.Name}
	if err := a.Store().Get(a.t.Context(), key, found); err != nil {
		a.t.Fatal(err)
	}
	return found
}

// calls are the calls in the list of waits.
func (a *acmeBench) calls() (out []string) {
	for _, w := range a.Deps().Engine.Waits() {
		if w.What == engine.WaitCall {
			out = append(out, fmt.Sprintf("%s %s: %s at %s", w.Kind, w.Name, w.Detail, w.Lane))
		}
	}
	return out
}

// told are the events since the last call.
func (a *acmeBench) told() (out []string) {
	for {
		select {
		case e := <-a.Events():
			out = append(out, e)
		default:
			return out
		}
	}
}

// acmeIssuer is an Issuer, or a ClusterIssuer if the namespace is empty, of a CA that it trusts by a CA bundle.
func acmeIssuer(namespace, name, bundle, secret string) certmanagerv1.GenericIssuer {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name), Generation: 1}
	spec := certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{
		Server: "https://ca.test/dir", CABundle: []byte(bundle), PrivateKey: cmmeta.SecretKeySelector{Name: secret},
	}}
	if namespace == "" {
		return &certmanagerv1.ClusterIssuer{ObjectMeta: meta, Spec: spec}
	}
	return &certmanagerv1.Issuer{ObjectMeta: meta, Spec: spec}
}

// TestAccountByNamedCalls: an issuer becomes ready, and gets another key, by calls that the list of waits names, one
// at a time. The Secret is written between them.
func TestAccountByNamedCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := acmeIssuer(issuers.Name().Namespace, issuers.Name().Name, "", "account")
		a := newACME(t, is)
		silence := func(path string) { a.ca.set(func() { a.ca.silent = map[string]bool{"ca.test" + path: path != ""} }) }
		waits := func(when, call string) {
			t.Helper()
			a.looks(5)
			if got := a.calls(); len(got) != 1 || got[0] != "Issuer v: "+call+" at accounts at https://ca.test/dir" {
				t.Errorf("%s: waits for %q, want %s", when, got, call)
			}
		}

		silence("/new")
		waits("a new issuer", "register account")
		first := a.secret(is)
		if ready, _ := a.status(is); len(first.Data) != 1 || ready != "" {
			t.Fatalf("%d entries, ready %q", len(first.Data), ready)
		}
		silence("")
		time.Sleep(2 * time.Minute) // the call ends by its timeout, and is repeated
		a.settle()
		if ready, status := a.status(is); ready != registered || status.URI == "" {
			t.Fatalf("%s %+v", ready, status)
		}
		if got := a.ca.questions(); got != "ca.test  new, ca.test  new" || len(a.calls()) != 0 {
			t.Errorf("asked %s", got)
		}
		a.told()

		silence("/change")
		a.rotate(is, "1")
		waits("another key", "replace account key")
		if stored := a.secret(is); len(stored.Data) != 2 {
			t.Errorf("%d entries while the key is replaced", len(stored.Data))
		}
		silence("")
		time.Sleep(2 * time.Minute)
		a.settle()
		last := a.secret(is)
		if ready, status := a.status(is); ready != registered || status.LastKeyRotation != "1" || len(last.Data) != 1 || string(last.Data["tls.key"]) == string(first.Data["tls.key"]) {
			t.Errorf("%s %+v, %d entries", ready, status, len(last.Data))
		}
		said := strings.Join(a.told(), "; ")
		if !strings.Contains(said, "Normal ReplacingACMEAccountKey") || !strings.Contains(said, "Normal ACMEAccountKeyReplaced The key of the ACME account https://ca.test/account/1 was replaced") {
			t.Errorf("said %s", said)
		}
		a = startACME(t, a.ca, a.Store())
		a.ca.questions()
		a.settle()
		if got := a.ca.questions(); got != "" || len(a.told()) != 0 {
			t.Errorf("a new process asks %s", got)
		}
	})
}

var errDied = errors.New("the process has died")

// deaths counts what a process does that others see, and ends the process at one of these.
type deaths struct {
	at     int
	before bool
	done   int
	dead   bool
}

func (d *deaths) act(act func() error) error {
	if d.done++; d.dead || d.done == d.at && d.before {
		d.dead = true
		return errDied
	}
	err := act()
	if d.dead = d.done == d.at; d.dead {
		return errDied
	}
	return err
}

// over is the API as a process sees it that dies.
func (d *deaths) over(store client.Client) client.Client {
	return interceptor.NewClient(store.(client.WithWatch), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return d.act(func() error { return c.Create(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return d.act(func() error { return c.Patch(ctx, o, p, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return d.act(func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	})
}

// TestAccountByCrash: whatever the last thing is that a process does for a new issuer, or for another key, and whether
// it is done or not, the next process ends with one account, and with the one key that the CA accepts.
func TestAccountByCrash(t *testing.T) {
	// A new issuer: the Secret, the account, the status. Another key: it is stored, the status says what it waits for,
	// the CA is told, the key takes the place of the old one, the status.
	for rotates, want := range map[bool]int{false: 3, true: 5} {
		for _, before := range []bool{true, false} {
			at := 1
			for ; ; at++ {
				d := &deaths{at: at, before: before}
				t.Run(fmt.Sprintf("rotates %t, at %d, before %t", rotates, at, before), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { dieAndGoOn(t, d, rotates) })
				})
				if !d.dead {
					break
				}
			}
			if at-1 != want {
				t.Errorf("rotates %t: %d things to die at, want %d", rotates, at-1, want)
			}
		}
	}
}

func dieAndGoOn(t *testing.T, d *deaths, rotates bool) {
	t.Helper()
	is := acmeIssuer(issuers.Name().Namespace, issuers.Name().Name, "", "account")
	a := newACME(t, is)
	store, old := a.Store(), ""
	if rotates {
		a.settle()
		a.rotate(is, "1")
		old = string(a.secret(is).Data["tls.key"])
	}
	a.ca.act = func(act func()) error { return d.act(func() error { act(); return nil }) }
	a = startACME(t, a.ca, d.over(store))
	for i := 0; i < 20 && !d.dead; i++ {
		_ = a.look() // it fails once the process has died
		time.Sleep(10 * time.Second)
	}
	a.ca.set(func() { a.ca.act = nil })
	a = startACME(t, a.ca, store)
	a.settle()
	secret := a.secret(is)
	if ready, status := a.status(is); ready != registered || status.URI != "https://ca.test/account/1" || a.ca.made != 1 || len(a.ca.accounts) != 1 ||
		len(secret.Data) != 1 || rotates != (status.LastKeyRotation == "1") || string(secret.Data["tls.key"]) == old {
		t.Errorf("%s %+v, %d accounts, %d entries", ready, status, a.ca.made, len(secret.Data))
	}
	key, err := pki.DecodePrivateKey(secret.Data["tls.key"])
	if err != nil {
		t.Fatal(err)
	}
	alone, err := accounts.New(accounts.Options{Now: time.Now, HTTPClient: func(acmeclient.HTTPOptions) (*http.Client, error) {
		return &http.Client{Transport: via{ca: a.ca}}, nil
	}}).Open("alone", accounts.Server{URL: "https://ca.test/dir"}, key)
	if err != nil {
		t.Fatal(err)
	}
	if err := alone.Register(t.Context(), accounts.Registration{}); err != nil || alone.URL() != "https://ca.test/account/1" || a.ca.made != 1 {
		t.Errorf("the CA knows the key as that of %q: %v", alone.URL(), err)
	}
}

// TestAnEditedAccountDoesNotWait: somebody mends the address of a CA that is silent. The account at the mended one is
// registered beside the call that waits, and what that call comes to is not told any more.
func TestAnEditedAccountDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := acmeIssuer(issuers.Name().Namespace, issuers.Name().Name, "", "account")
		is.GetSpec().ACME.Server = "https://silent.test/dir"
		a := newACME(t, is)
		a.ca.silent["silent.test"] = true
		begin := time.Now()
		a.looks(4)
		a.status(is)
		is.GetSpec().ACME.Server = "https://ca.test/dir"
		is.SetGeneration(2)
		if err := a.Store().Update(t.Context(), is); err != nil {
			t.Fatal(err)
		}
		a.looks(4)
		if ready, status := a.status(is); ready != registered || status.URI != "https://ca.test/account/1" || !time.Now().Equal(begin) {
			t.Errorf("%q %+v after %s", ready, status, time.Since(begin))
		}
		time.Sleep(time.Hour)
		a.settle()
		if ready, status := a.status(is); ready != registered || status.URI != "https://ca.test/account/1" || len(a.told()) != 0 {
			t.Errorf("later: %q %+v", ready, status)
		}
	})
}

// TestALostAccountIsMadeAgain: a CA that has forgotten an account rings the issuer, which registers the key again. An
// issuer that is in order asks nobody.
func TestALostAccountIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := acmeIssuer(issuers.Name().Namespace, issuers.Name().Name, "", "account")
		a := newACME(t, is)
		a.settle()
		for a.Queued() > 0 {
			a.Woken()
		}
		a.ca.questions()
		a.settle()
		used, ok := a.accounts.Of(is.GetUID())
		if got := a.ca.questions(); got != "" || !ok || a.Queued() != 0 {
			t.Fatalf("an issuer in order asks %s", got)
		}
		a.ca.set(func() { clear(a.ca.accounts) })
		if _, err := used.Order(t.Context(), order.Action{Step: order.Fetch, URL: "https://ca.test/order/1"}); err == nil || a.Queued() != 1 {
			t.Fatalf("%v, %d issuers are queued", err, a.Queued())
		}
		a.settle()
		if ready, status := a.status(is); ready != registered || status.URI != "https://ca.test/account/2" || a.ca.questions() != "ca.test  new" {
			t.Errorf("%s %+v", ready, status)
		}
	})
}

// TestContactsThatDiffer: of issuers that share an account, each says its contact once, however late it is looked at
// what has come of that: they do not contradict each other for ever.
func TestContactsThatDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []client.Object
		for _, name := range []string{"x", "y", "z"} {
			is := acmeIssuer("a", name, "", "account")
			is.GetSpec().ACME.Email = name + "@example.com"
			all = append(all, is)
		}
		a := newACME(t, all...)
		a.settle()
		if got, want := a.ca.questions(), "ca.test  new, ca.test  account/1, ca.test  account/1"; got != want {
			t.Errorf("asked %s, want %s", got, want)
		}
	})
}

// TestMoreToDoForAReadyIssuer: what a server has asked to wait for, however long, holds up the rest for an hour, and
// the list of waits says until when. One warning says what is wrong.
func TestMoreToDoForAReadyIssuer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := acmeIssuer(issuers.Name().Namespace, issuers.Name().Name, "", "account")
		a := newACME(t, is)
		a.settle()
		a.ca.set(func() { a.ca.refuse = "31536000" })
		a.ca.questions()
		a.rotate(is, "1")
		for _, when := range []string{"at first", "after the wait"} {
			a.looks(6)
			waits := a.Deps().Engine.Waits()
			if len(waits) != 1 {
				t.Fatalf("%s: %+v", when, waits)
			}
			ready, _ := a.status(is)
			in := time.Until(waits[0].Until)
			if !strings.HasPrefix(ready, "True ErrReplaceACMEAccountKey") || !strings.HasSuffix(ready, waits[0].Detail) || waits[0].What != engine.WaitTime || in < time.Hour || in > 66*time.Minute {
				t.Errorf("%s: %s, %+v in %s", when, ready, waits[0], in)
			}
			if n := strings.Count(a.ca.questions(), "change"); n != 1 {
				t.Errorf("%s: %d requests to replace the key", when, n)
			}
			time.Sleep(in)
		}
		warnings := slices.DeleteFunc(a.told(), func(e string) bool { return !strings.HasPrefix(e, "Warning") })
		if len(warnings) != 1 || !strings.Contains(warnings[0], "not this year") {
			t.Errorf("warnings %q", warnings)
		}
	})
}

// TestTenantsKeepApart: issuers of two tenants, and two ClusterIssuers, at one server by two CA bundles, have an
// account each, and connections of their own, also while a key is replaced.
func TestTenantsKeepApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := []certmanagerv1.GenericIssuer{
			acmeIssuer("a", "i", "one", "account"), acmeIssuer("b", "i", "two", "account"),
			acmeIssuer("", "c", "one", "c"), acmeIssuer("", "d", "two", "d"),
		}
		a := newACME(t, all[0], all[1], all[2], all[3])
		a.settle()
		uris, used := map[string]bool{}, map[*accounts.Account]bool{}
		for _, is := range all {
			ready, status := a.status(is)
			if !inOrder(ready) {
				t.Errorf("%s: %s", is.GetUID(), ready)
			}
			by, _ := a.accounts.Of(is.GetUID())
			uris[status.URI], used[by] = true, true
		}
		if got := a.ca.questions(); len(uris) != 4 || len(used) != 4 || strings.Count(got, "ca.test one new") != 2 || strings.Count(got, "ca.test two new") != 2 {
			t.Errorf("accounts %v, asked %s", uris, got)
		}
		for i, is := range all {
			bundle := string(is.GetSpec().ACME.CABundle)
			a.rotate(is, "1")
			a.settle()
			if got, want := a.ca.questions(), "ca.test "+bundle+" new, ca.test "+bundle+" change"; got != want {
				t.Errorf("%s: asked %s, want %s", is.GetUID(), got, want)
			}
			for j, other := range all {
				if ready, status := a.status(other); !inOrder(ready) || (j <= i) != (status.LastKeyRotation == "1") {
					t.Errorf("after the rotation of %s, %s: %s %+v", is.GetUID(), other.GetUID(), ready, status)
				}
			}
		}
	})
}

// TestAKeyOfTwoTrustsStays: two issuers share a key at one server, and trust the server by two CA bundles. Each has
// connections of its own, and the key is not replaced: the CA would refuse the old one by the other connections.
func TestAKeyOfTwoTrustsStays(t *testing.T) {
	for _, namespace := range []string{"a", ""} {
		synctest.Test(t, func(t *testing.T) {
			one, two := acmeIssuer(namespace, "one", "one", "account"), acmeIssuer(namespace, "two", "two", "account")
			a := newACME(t, one, two)
			a.settle()
			mine, _ := a.accounts.Of(one.GetUID())
			other, _ := a.accounts.Of(two.GetUID())
			if got := a.ca.questions(); mine == other || a.ca.made != 1 || strings.Count(got, "one new") != 1 || strings.Count(got, "two new") != 1 {
				t.Errorf("one account %t, asked %s", mine == other, got)
			}
			before := a.secret(one)
			a.rotate(one, "1")
			a.settle()
			ready, status := a.status(one)
			if !strings.HasPrefix(ready, "True ErrReplaceACMEAccountKey") || !strings.Contains(ready, "another caBundle or skipTLSVerify") || status.LastKeyRotation != "" {
				t.Errorf("%s %+v", ready, status)
			}
			if ready, _ := a.status(two); !inOrder(ready) || !cmmeta.Equal(before.Data, a.secret(one).Data) || a.ca.questions() != "" {
				t.Errorf("the other one: %s", ready)
			}
			if told := a.told(); len(told) != 1 || !strings.HasPrefix(told[0], "Warning ErrReplaceACMEAccountKey") {
				t.Errorf("told %q", told)
			}
		})
	}
}
