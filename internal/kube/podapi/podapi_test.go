package podapi_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"chancery.dev/api"
	"chancery.dev/internal/kube/podapi"
)

// full returns the value with something in each of its fields, and in theirs.
func full(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[metav1.Time]() {
			v.Set(reflect.ValueOf(metav1.Unix(7, 0)))
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).Type != reflect.TypeFor[metav1.TypeMeta]() {
				full(v.Field(i))
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		full(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		full(v.Index(0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("a").Convert(v.Type().Key()), reflect.ValueOf("b").Convert(v.Type().Elem()))
	case reflect.String:
		v.SetString("text of " + v.Type().String())
	case reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint8:
		v.SetUint(7)
	case reflect.Bool:
		v.SetBool(true)
	default:
		panic(v.Type())
	}
}

// TestToV1: each field of v1 comes from that of v1beta1, and whatever has no v1beta1 stays what it is.
func TestToV1(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ beta, v1 client.Object }{
		{&certificatesv1beta1.PodCertificateRequest{}, &certificatesv1.PodCertificateRequest{}},
		{&certificatesv1beta1.ClusterTrustBundle{}, &certificatesv1.ClusterTrustBundle{}},
	} {
		full(reflect.ValueOf(c.beta).Elem())
		full(reflect.ValueOf(c.v1).Elem())
		got := podapi.ToV1(c.beta)
		if !reflect.DeepEqual(got, any(c.v1)) {
			t.Errorf("%+v, want %+v", got, c.v1)
		}
		if podapi.ToV1(c.v1) != any(c.v1) {
			t.Errorf("%T is copied", c.v1)
		}
	}
	if list := new(corev1.PodList); podapi.ToV1(list) != any(list) {
		t.Error("another kind is changed")
	}
}

// TestIn: each field of v1 is there in each version, and whatever has no v1beta1 stays what it is.
func TestIn(t *testing.T) {
	t.Parallel()
	request, bundle := &certificatesv1.PodCertificateRequest{}, &certificatesv1.ClusterTrustBundle{}
	full(reflect.ValueOf(request).Elem())
	full(reflect.ValueOf(bundle).Elem())
	for _, v1 := range []client.Object{request, bundle} {
		for _, version := range podapi.Versions() {
			if got := podapi.In(version, v1); podapi.VersionOf(got) != version || !reflect.DeepEqual(podapi.ToV1(got), any(v1)) {
				t.Errorf("%s: %+v", version, got)
			}
		}
	}
	if pod := new(corev1.Pod); podapi.In(podapi.V1Beta, pod) != client.Object(pod) {
		t.Error("another kind is changed")
	}
}

// TestClient: in the version that is taken, and in no other one, an object is read, made, changed and deleted, and has
// what the API server answers.
func TestClient(t *testing.T) {
	t.Parallel()
	scheme, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range podapi.Versions() {
		request, requests := podapi.In(version, &certificatesv1.PodCertificateRequest{}), podapi.RequestList(version)
		bundle := podapi.In(version, &certificatesv1.ClusterTrustBundle{})
		store := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(request).Build()
		c := podapi.New(store)
		c.Take(podapi.RequestKind(), version)
		c.Take(podapi.BundleKind(), version)
		made := &certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"}}
		made.Spec.SignerName, made.Spec.PodName = "cert-manager.io/pods", "web-0"
		trust := &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: certificatesv1.ClusterTrustBundleSpec{TrustBundle: "roots"}}
		if err := errors.Join(c.Create(t.Context(), made), c.Create(t.Context(), trust)); err != nil || made.ResourceVersion == "" || trust.ResourceVersion == "" {
			t.Fatal(err)
		}
		changed := made.DeepCopy()
		changed.Status.CertificateChain = "chain"
		if err := c.Status().Patch(t.Context(), changed, client.MergeFrom(made)); err != nil || changed.ResourceVersion == made.ResourceVersion {
			t.Fatal(err)
		}
		newer := trust.DeepCopy()
		newer.Spec.TrustBundle = "more"
		if err := c.Patch(t.Context(), newer, client.MergeFromWithOptions(trust, client.MergeFromWithOptimisticLock{})); err != nil || newer.Spec.TrustBundle != "more" {
			t.Fatal(err)
		}
		late := trust.DeepCopy()
		late.Spec.TrustBundle = "late"
		if err := c.Patch(t.Context(), late, client.MergeFromWithOptions(trust, client.MergeFromWithOptimisticLock{})); !apierrors.IsConflict(err) {
			t.Error("a change of an old version: ", err)
		}
		read, root := &certificatesv1.PodCertificateRequest{}, &certificatesv1.ClusterTrustBundle{}
		if err := errors.Join(c.Get(t.Context(), client.ObjectKeyFromObject(made), read), c.Get(t.Context(), client.ObjectKeyFromObject(trust), root)); err != nil {
			t.Fatal(err)
		}
		if read.Status.CertificateChain != "chain" || read.Spec.PodName != "web-0" || root.Spec.TrustBundle != "more" {
			t.Errorf("%s: %+v, %+v", version, read, root)
		}
		there := func() bool {
			return store.Get(t.Context(), client.ObjectKeyFromObject(trust), bundle) == nil && store.List(t.Context(), requests) == nil && reflect.ValueOf(requests).Elem().FieldByName("Items").Len() == 1
		}
		if !there() {
			t.Errorf("%s: the API server does not have them in this version", version)
		}
		if err := errors.Join(c.Delete(t.Context(), made), c.Delete(t.Context(), trust)); err != nil || there() {
			t.Errorf("%s: they are not deleted: %v", version, err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(made), read); !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}
}

// TestPublicKey: the key is read as v1beta1, from the cache where that version is taken, and otherwise from the API
// server.
func TestPublicKey(t *testing.T) {
	t.Parallel()
	scheme, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	reader := func(key string) client.Client {
		pcr := &certificatesv1beta1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a", UID: "u"}}
		pcr.Spec.PKIXPublicKey = []byte(key) //nolint:staticcheck // kubelets of 1.35 send it
		return fake.NewClientBuilder().WithScheme(scheme).WithObjects(pcr).Build()
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	c := podapi.New(reader("cached"))
	for version, want := range map[string]string{podapi.V1: "live", podapi.V1Beta: "cached"} {
		c.Take(podapi.RequestKind(), version)
		request := &certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a", UID: "u"}}
		if key, err := c.PublicKey(ctx, reader("live"), request); string(key) != want || err != nil {
			t.Errorf("%s: %q %v", version, key, err)
		}
		request.UID = "v"
		if key, err := c.PublicKey(ctx, reader("live"), request); key != nil || err != nil {
			t.Errorf("%s: another request has the key %q, %v", version, key, err)
		}
	}
}
