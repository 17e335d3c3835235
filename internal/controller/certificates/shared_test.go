package certificates

import (
	"context"
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
)

// serves answers with an object in JSON, as the API server does: what is in the object
// already that it is decoded into is changed in place.
type serves string

func (s serves) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	return json.Unmarshal([]byte(s), into)
}

func (serves) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// A request of the cache that is read in full leaves what it shares with the cache as it is.
func TestReadingInFullLeavesTheCacheAlone(t *testing.T) {
	cached := certmanagerv1.CertificateRequest{ObjectMeta: metav1.ObjectMeta{Name: "web-1", Annotations: map[string]string{"a": "1"}}}
	request := cached // as lists of the cache are: the maps are shared
	live := serves(`{"metadata":{"name":"web-1","annotations":{"a":"2","b":"3"}},"spec":{"isCA":true}}`)
	if err := readInFull(t.Context(), live, &request); err != nil {
		t.Fatal(err)
	}
	if len(cached.Annotations) != 1 || cached.Annotations["a"] != "1" {
		t.Errorf("the cache has %v now", cached.Annotations)
	}
	if !request.Spec.IsCA || request.Annotations["b"] != "3" {
		t.Errorf("read %+v", request)
	}
}
