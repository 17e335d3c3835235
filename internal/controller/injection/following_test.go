package injection

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/controller"
	"chancery.dev/internal/kube/informers"
	"chancery.dev/internal/kube/ownwrites"
	"chancery.dev/internal/kube/secrets"
)

func secretNamed(name string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
}

// rung names the injectables to look at after a Secret has changed.
func (r *injectables) rung(t *testing.T, secret string) (names []string) {
	t.Helper()
	for _, req := range r.followers(t.Context(), secretNamed(secret)) {
		names = append(names, req.Name)
	}
	slices.Sort(names)
	return names
}

// world has n Certificates of one namespace, each with a Secret, and counts how often one is read.
func world(t *testing.T, n int) (r *injectables, api client.Client, reads *int) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := certmanagerv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	b := fake.NewClientBuilder().WithScheme(scheme)
	for i := range n {
		crt := &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("ca-%03d", i)}}
		crt.Spec.SecretName = fmt.Sprintf("secret-%03d", i)
		b = b.WithObjects(crt)
	}
	reads = new(int)
	api = b.WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, api client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			*reads++
			return api.Get(ctx, key, o, opts...)
		},
	}).Build()
	over, kept := ownwrites.New(api, time.Now), secrets.New(time.Now)
	if err := kept.Connect(t.Context(), secrets.Source{Client: over, Live: api}); err != nil {
		t.Fatal(err)
	}
	return &injectables{
		Deps: &controller.Deps{Client: over, Secrets: kept}, gvk: Kinds()[3], following: informers.NewFollowing(),
		o: Options{Certificates: true, Ignores: func(string) bool { return false }},
	}, api, reads
}

// look observes an injectable with an annotation, and returns it.
func (r *injectables) look(t *testing.T, name, annotation, value string) *metav1.PartialObjectMetadata {
	t.Helper()
	object := r.empty()
	object.SetName(name)
	object.SetAnnotations(map[string]string{annotation: value})
	if _, err := r.observe(t.Context(), &pass{Object: object, Memory: &memory{}}); err != nil {
		t.Fatal(err)
	}
	return object
}

// TestSecretsRingTheirInjectables: a change of a Secret is told to the injectables that have their CA from it, whatever
// they name, and to no others.
func TestSecretsRingTheirInjectables(t *testing.T) {
	r, api, _ := world(t, 2)
	expect := func(what, secret string, want ...string) {
		t.Helper()
		if got := r.rung(t, secret); !slices.Equal(got, want) {
			t.Errorf("%s: %s rings %q, want %q", what, secret, got, want)
		}
	}
	const byCertificate, bySecret = certmanagerv1.InjectCAFromAnnotation, certmanagerv1.InjectCAFromSecretAnnotation
	r.look(t, "a", byCertificate, "shop/ca-000")
	r.look(t, "b", byCertificate, "shop/ca-000")
	r.look(t, "c", bySecret, "shop/secret-000")
	r.look(t, "d", byCertificate, "shop/ca-001")
	r.look(t, "e", byCertificate, "shop/none")
	expect("each once", "secret-000", "a", "b", "c")
	expect("another Secret", "secret-001", "d")
	r.look(t, "a", byCertificate, "shop/ca-001")
	expect("it names another Certificate", "secret-000", "b", "c")
	expect("it names another Certificate", "secret-001", "a", "d")
	crt := &certmanagerv1.Certificate{}
	if err := api.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "ca-001"}, crt); err != nil {
		t.Fatal(err)
	}
	crt.Spec.SecretName = "new"
	if err := api.Update(t.Context(), crt); err != nil {
		t.Fatal(err)
	}
	r.look(t, "a", byCertificate, "shop/ca-001") // the Certificate's event queues it
	expect("the Certificate names another Secret", "new", "a")
	expect("the other has not been looked at yet", "secret-001", "d")
	if err := api.Delete(t.Context(), crt); err != nil {
		t.Fatal(err)
	}
	r.look(t, "a", byCertificate, "shop/ca-001")
	expect("the Certificate is gone", "new")
	r.look(t, "c", "example.com/unrelated", "")
	expect("it names nothing any more", "secret-000", "b")
	r.look(t, "b", byCertificate, "not a name")
	expect("what it names is no name", "secret-000")
	r.o.Ignores = func(string) bool { return true }
	r.look(t, "d", byCertificate, "shop/ca-000")
	expect("the namespace is left out", "secret-000")
	r.o.Ignores = func(string) bool { return false }
	r.look(t, "e", bySecret, "shop/secret-000")
	expect("it names another kind of source", "secret-000", "e")
}

// TestSecretsAreNotComparedWithAllInjectables: each of many Secrets of a namespace changes, and each is that of a
// Certificate that an injectable names. Each rings one injectable, and reads none of the others.
func TestSecretsAreNotComparedWithAllInjectables(t *testing.T) {
	for _, n := range []int{25, 100} {
		r, _, reads := world(t, n)
		for i := range n {
			r.look(t, fmt.Sprintf("i-%03d", i), certmanagerv1.InjectCAFromAnnotation, fmt.Sprintf("shop/ca-%03d", i))
		}
		*reads = 0
		for i := range n {
			if got, want := r.rung(t, fmt.Sprintf("secret-%03d", i)), fmt.Sprintf("i-%03d", i); !slices.Equal(got, []string{want}) {
				t.Errorf("rings %q, want %q", got, want)
			}
		}
		if *reads > n {
			t.Errorf("%d changes of Secrets read %d objects, want one for each at most", n, *reads)
		}
		t.Logf("%d changes of Secrets read %d objects", n, *reads)
	}
}
