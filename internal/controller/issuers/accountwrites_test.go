package issuers_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/controller/issuers"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/pki"
)

// secretWrites is an API that calls write in place of each creation and change of a Secret.
func secretWrites(store client.Client, write func(verb string, act func() error) error) client.Client {
	return interceptor.NewClient(store.(client.WithWatch), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return write("create", func() error { return c.Create(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return write("patch", func() error { return c.Patch(ctx, o, p, opts...) })
		},
	})
}

// TestALostAnswerMakesNoOldKeyNew: the API server makes the Secret, and its answer is lost. The key in the Secret is
// the account's then, and is not taken for the next key when somebody asks for one because the first is known to
// others.
func TestALostAnswerMakesNoOldKeyNew(t *testing.T) {
	for _, verb := range []string{"create", "patch"} {
		synctest.Test(t, func(t *testing.T) {
			is, lost := acmeIssuer(issuers.Name().Namespace, issuers.Name().Name, "", "account"), false
			a := newACME(t, is)
			a = startACME(t, a.ca, secretWrites(a.Store(), func(v string, act func() error) error {
				err := act()
				if v == verb && !lost {
					lost = true
					return errors.New("connection reset")
				}
				return err
			}))
			a.settle()
			keys := []string{string(a.secret(is).Data["tls.key"])}
			for _, value := range []string{"1", "2"} {
				a.ca.questions()
				a.rotate(is, value)
				a.settle()
				ready, status := a.status(is)
				if n := strings.Count(a.ca.questions(), "change"); ready != registered || status.LastKeyRotation != value || n != 1 {
					t.Errorf("%s lost, rotation %s: %s %+v, %d keys changed at the CA", verb, value, ready, status, n)
				}
				keys = append(keys, string(a.secret(is).Data["tls.key"]))
			}
			if slices.Sort(keys); !lost || len(slices.Compact(keys)) != 3 {
				t.Errorf("%s lost: a key was used again", verb)
			}
		})
	}
}

// TestTheSecretCannotBeWritten: the API server refuses a write of the Secret. The issuer says so where it has an
// account, and waits longer each time; the pass goes on, so that the rest of the issuer is looked after.
func TestTheSecretCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is, refused, tries := acmeIssuer(issuers.Name().Namespace, issuers.Name().Name, "", "account"), true, 0
		a := newACME(t, is)
		a = startACME(t, a.ca, secretWrites(a.Store(), func(_ string, act func() error) error {
			if refused {
				tries++
				return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "account", errors.New("no right"))
			}
			return act()
		}))
		a.settle() // 200 s
		waits := a.Deps().Engine.Waits()
		if ready, _ := a.status(is); ready != "" || len(waits) != 1 || waits[0].What != engine.WaitTime || !strings.Contains(waits[0].Detail, "create Secret team/account for the account's private key") {
			t.Errorf("%q, %+v", ready, waits)
		}
		if tries < 4 || tries > 12 {
			t.Errorf("%d tries to create the Secret in 200 s", tries)
		}
		refused = false
		for range 2 {
			a.settle()
		}
		if ready, _ := a.status(is); ready != registered {
			t.Fatal(ready)
		}
		a.told()
		refused, tries = true, 0
		a.rotate(is, "1")
		a.settle()
		if ready, _ := a.status(is); !strings.HasPrefix(ready, "True ErrReplaceACMEAccountKey") || !strings.Contains(ready, "Secret team/account cannot be written") || tries < 4 || tries > 12 {
			t.Errorf("%s after %d tries", ready, tries)
		}
		if told := a.told(); len(told) != 1 || !strings.HasPrefix(told[0], "Warning ErrReplaceACMEAccountKey") {
			t.Errorf("told %q", told)
		}
		refused = false
		for range 2 {
			a.settle()
		}
		if ready, status := a.status(is); ready != registered || status.LastKeyRotation != "1" {
			t.Errorf("%s %+v", ready, status)
		}
	})
}

// TestAWriteThatIsOvertaken: a tool rewrites the Secret all the time, so that each write comes second. The issuer tries
// once a second, and says nothing.
func TestAWriteThatIsOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is, tries, broken := acmeIssuer(issuers.Name().Namespace, issuers.Name().Name, "", "account"), 0, false
		a := newACME(t, is)
		a.settle()
		store := a.Store()
		a = startACME(t, a.ca, secretWrites(store, func(verb string, act func() error) error {
			if verb != "patch" {
				return act()
			}
			if tries++; broken {
				return errors.New("broken")
			}
			secret := a.secret(is)
			metav1.SetMetaDataAnnotation(&secret.ObjectMeta, "tool", time.Now().String())
			if err := store.Update(t.Context(), secret); err != nil {
				t.Error(err)
			}
			return act()
		}))
		a.settle()
		a.told()
		a.rotate(is, "1")
		for range 10 {
			a.looks(6)
			time.Sleep(time.Second)
		}
		if ready, _ := a.status(is); tries < 5 || tries > 12 || !strings.HasPrefix(ready, "True ReplacingACMEAccountKey") || len(a.told()) != 0 {
			t.Errorf("%d writes in ten seconds: %s", tries, ready)
		}
		broken, tries = true, 0 // the writes before were no failures: the first wait is the shortest
		for range 5 {
			a.looks(6)
			time.Sleep(time.Second)
		}
		if tries < 2 {
			t.Errorf("%d writes in five seconds of failures", tries)
		}
	})
}

// TestSecretsOfSolversAreChecked: what a solver names is looked for by a call of its own, once the account has a key,
// and again when it comes.
func TestSecretsOfSolversAreChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := acmeIssuer(issuers.Name().Namespace, issuers.Name().Name, "", "account")
		is.GetSpec().ACME.Solvers = []acmev1.ACMEChallengeSolver{{DNS01: &acmev1.DNS01Solver{
			Cloudflare: &acmev1.CloudflareProvider{APITokenSecretRef: &cmmeta.SecretKeySelector{Name: "cloudflare", Key: "token"}},
		}}}
		all := []client.Object{is}
		for _, name := range []string{"w", "x", "y", "z"} { // they wait for the CA, and fill its lane
			all = append(all, acmeIssuer("team", name, "", "account-"+name))
		}
		a := newACME(t, all...)
		a.ca.silent["ca.test"] = true
		a.looks(8)
		if ready, _ := a.status(is); !strings.HasPrefix(ready, "False InvalidSolver") || len(a.calls()) != 4 {
			t.Errorf("while the CA is silent: %q, calls %q", ready, a.calls())
		}
		a.ca.set(func() { a.ca.silent = nil })
		time.Sleep(2 * time.Minute)
		a.settle()
		a.ca.questions()
		a.settle()
		if ready, _ := a.status(is); !strings.HasPrefix(ready, "False InvalidSolver: failed to get secret \"cloudflare\"") || a.ca.questions() != "" || len(a.secret(is).Data) != 1 {
			t.Errorf("%s", ready)
		}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "cloudflare", UID: "s"}, Data: map[string][]byte{"token": []byte("t")}}
		if err := a.Deps().Client.Create(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		a.settle()
		if ready, _ := a.status(is); ready != registered {
			t.Error(ready)
		}
	})
}

// TestALostAccountRingsItsOwnKind: an Issuer and a ClusterIssuer may have one name.
func TestALostAccountRingsItsOwnKind(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]types.NamespacedName{"Issuer": {Namespace: "team", Name: "acme"}, "ClusterIssuer": {Name: "acme"}} {
		var rung []types.NamespacedName
		ring := issuers.RingOf(kind, func(name types.NamespacedName) { rung = append(rung, name) })
		for _, lost := range []types.NamespacedName{{Namespace: "team", Name: "acme"}, {Name: "acme"}} {
			ring(lost)
		}
		if !slices.Equal(rung, []types.NamespacedName{want}) {
			t.Errorf("%s: %v were rung", kind, rung)
		}
	}
}

// TestAnotherWasFaster: the Secret that somebody else has made meanwhile, which no watch shows yet, is the account's.
func TestAnotherWasFaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := acmeIssuer(issuers.Name().Namespace, issuers.Name().Name, "", "account")
		a := newACME(t, is)
		var theirs *corev1.Secret
		a = startACME(t, a.ca, interceptor.NewClient(a.Store().(client.WithWatch), interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
				if err != nil {
					return err
				}
				text, err := pki.EncodePKCS8(key)
				if err != nil {
					return err
				}
				theirs = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName()}, Data: map[string][]byte{"tls.key": text}}
				return errors.Join(c.Create(ctx, theirs), c.Create(ctx, o, opts...))
			},
		}))
		a.settle()
		if ready, _ := a.status(is); ready != registered || !cmmeta.Equal(theirs.Data, a.secret(is).Data) {
			t.Errorf("%s", ready)
		}
	})
}
