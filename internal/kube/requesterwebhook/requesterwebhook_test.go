package requesterwebhook

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// TestFill: the user is written over whatever the request says; what is no creation of a request stays as it is.
func TestFill(t *testing.T) {
	ann := authenticationv1.UserInfo{Username: "ann", UID: "1", Groups: []string{"a", "b"}, Extra: map[string]authenticationv1.ExtraValue{"x/y": {"z"}}}
	for name, c := range map[string]struct {
		user      authenticationv1.UserInfo
		operation admissionv1.Operation
		resource  string
		object    string
		want      map[string]any // by path; nil for a field that is removed
	}{
		"empty": {user: ann, object: `{"spec":{"request":"r"}}`, want: map[string]any{
			"/spec/username": "ann", "/spec/uid": "1", "/spec/groups": []any{"a", "b"}, "/spec/extra": map[string]any{"x/y": []any{"z"}},
		}},
		"somebody else": {
			user:   authenticationv1.UserInfo{Username: "ann"},
			object: `{"spec":{"username":"bob","uid":"2","groups":["c"],"extra":{"x/y":["z"]}}}`,
			want:   map[string]any{"/spec/username": "ann", "/spec/uid": "", "/spec/groups/0": nil, "/spec/extra": nil},
		},
		"no spec":       {user: ann, object: `{}`},
		"an update":     {user: ann, object: `{"spec":{}}`, operation: admissionv1.Update},
		"another kind":  {user: ann, object: `{"spec":{}}`, resource: "certificates"},
		"a subresource": {user: ann, object: `{"spec":{}}`, operation: admissionv1.Update, resource: "certificaterequests/status"},
	} {
		t.Run(name, func(t *testing.T) {
			req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: admissionv1.Create, Resource: metav1.GroupVersionResource{Resource: "certificaterequests"},
				UserInfo: c.user, Object: runtime.RawExtension{Raw: []byte(c.object)},
			}}
			if c.operation != "" {
				req.Operation = c.operation
			}
			if c.resource != "" {
				req.Resource.Resource = c.resource
			}
			response := Fill(t.Context(), req)
			if !response.Allowed {
				t.Fatalf("%+v", response.Result)
			}
			text, err := json.Marshal(response.Patches)
			if err != nil {
				t.Fatal(err)
			}
			var patches []struct {
				Op, Path string
				Value    any
			}
			if err := json.Unmarshal(text, &patches); err != nil {
				t.Fatal(err)
			}
			var got map[string]any
			for _, p := range patches {
				if got == nil {
					got = map[string]any{}
				}
				got[p.Path] = p.Value
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("patches (-want +got):\n%s", diff)
			}
		})
	}
	broken := Fill(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Resource: metav1.GroupVersionResource{Resource: "certificaterequests"},
	}})
	if broken.Allowed || broken.Result.Code != http.StatusBadRequest {
		t.Errorf("what cannot be read: %+v", broken)
	}
}

// TestTrust: the bundle is written where it is missing, and nothing is written where a newer one is that holds it.
func TestTrust(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := admissionregistrationv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	empty := fake.NewClientBuilder().WithScheme(scheme).Build()
	if err := Trust(t.Context(), empty, empty, Name, []byte("b")); err == nil || !strings.Contains(err.Error(), "chancery install --webhook") {
		t.Errorf("without a configuration: %v", err)
	}
	for _, c := range []struct{ has, want string }{{"", "old\n"}, {"other\n", "old\n"}, {"old\n", "old\n"}, {"new\nold\n", "new\nold\n"}} {
		config := &admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: Name},
			Webhooks: []admissionregistrationv1.MutatingWebhook{
				{Name: "webhook.cert-manager.io", ClientConfig: admissionregistrationv1.WebhookClientConfig{CABundle: []byte(c.has)}},
			},
		}
		api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(config).Build()
		version := func() (string, string) {
			now := &admissionregistrationv1.MutatingWebhookConfiguration{}
			if err := api.Get(t.Context(), client.ObjectKey{Name: Name}, now); err != nil {
				t.Fatal(err)
			}
			return now.ResourceVersion, string(now.Webhooks[0].ClientConfig.CABundle)
		}
		before, _ := version()
		if err := Trust(t.Context(), api, api, Name, []byte("old\n")); err != nil {
			t.Error(err)
		}
		if after, got := version(); got != c.want || (after == before) != (c.has == c.want) {
			t.Errorf("%q became %q; version %s became %s", c.has, got, before, after)
		}
	}
}
