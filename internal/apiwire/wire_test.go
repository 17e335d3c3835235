package apiwire

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/api"
	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
)

// apiServer answers every request with body, and tells what it was asked.
type apiServer struct {
	status int
	body   string
	asked  string // method, path and query
	sent   string
	kind   string // Content-Type
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	s.asked, s.sent, s.kind = r.Method+" "+r.URL.String(), string(text), r.Header.Get("Content-Type")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(s.status)
	_, _ = io.WriteString(w, s.body)
}

// serve starts an API server that answers with body.
func serve(t *testing.T, status int, body string) (*apiServer, *rest.Config, *http.Client) {
	t.Helper()
	s := &apiServer{status: status, body: body}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s, &rest.Config{Host: server.URL}, server.Client()
}

func newReader(t *testing.T, body string) (*apiServer, *reader) {
	t.Helper()
	scheme, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	s, config, http := serve(t, 200, body)
	like := &acmev1.Order{}
	k, _ := kindOf(like)
	return s, &reader{connection: newConnection(config, http, scheme), kind: k, like: like}
}

func order(name string) string {
	return fmt.Sprintf(`{"apiVersion":"acme.cert-manager.io/v1","kind":"Order","metadata":{"managedFields":%s,"name":%q}}`, managed, name)
}

// TestWatch reads a stream of events, whatever their length, and says what is wrong with it.
func TestWatch(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for name, c := range map[string]struct{ stream, want string }{
		"events": {
			`{"type":"ADDED","object":` + order("a") + "}\n" + `{"type":"MODIFIED","object":` + order(long) + "}\n" + `{"type":"DELETED","object":` + order("b") + "}\n",
			"ADDED a, MODIFIED " + long + ", DELETED b",
		},
		"ended in the midst of an event": {`{"type":"ADDED","object":` + order("a") + "}\n" + `{"type":"ADDED","obj`, "ADDED a"},
		"an event of another kind": {
			`{"type":"ADDED","object":{"apiVersion":"v1","kind":"Secret"}}` + "\n",
			`ERROR an error on the server ("unable to decode an event from the watch stream: ` +
				`the API server has answered with /v1, Kind=Secret, not acme.cert-manager.io/v1, Kind=Order") has prevented the request from succeeding`,
		},
		"nothing": {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, r := newReader(t, c.stream)
			events, err := r.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "7"})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for e := range events.ResultChan() {
				switch obj := e.Object.(type) {
				case *acmev1.Order:
					got = append(got, string(e.Type)+" "+obj.Name)
				case *metav1.Status:
					got = append(got, string(e.Type)+" "+obj.Message)
				}
			}
			if all := strings.Join(got, ", "); all != c.want {
				t.Errorf("got %.300q, want %.300q", all, c.want)
			}
			if want := "GET /apis/acme.cert-manager.io/v1/orders?allowWatchBookmarks=true&resourceVersion=7&watch=true"; s.asked != want {
				t.Errorf("asked %q, want %q", s.asked, want)
			}
		})
	}
}

// TestList asks for one page.
func TestList(t *testing.T) {
	s, r := newReader(t, `{"apiVersion":"acme.cert-manager.io/v1","items":[`+order("a")+`],"kind":"OrderList","metadata":{"continue":"more"}}`)
	page, err := r.ListWithContext(t.Context(), metav1.ListOptions{Limit: 500})
	if err != nil {
		t.Fatal(err)
	}
	if items, err := meta.ExtractList(page); err != nil || len(items) != 1 {
		t.Errorf("%d objects: %v", len(items), err)
	}
	if about, err := meta.ListAccessor(page); err != nil || about.GetContinue() != "more" {
		t.Errorf("it goes on at %q: %v", about.GetContinue(), err)
	}
	if want := "GET /apis/acme.cert-manager.io/v1/orders?limit=500"; s.asked != want {
		t.Errorf("asked %q, want %q", s.asked, want)
	}
}

// TestRefusedWatch and lists keep what the API server says, which reflectors go by.
func TestRefusedWatch(t *testing.T) {
	s, r := newReader(t, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old","reason":"Expired","code":410}`)
	s.status = http.StatusGone
	if _, err := r.WatchWithContext(t.Context(), metav1.ListOptions{}); !apierrors.IsResourceExpired(err) {
		t.Errorf("the watch failed with %v", err)
	}
	if _, err := r.ListWithContext(t.Context(), metav1.ListOptions{}); !apierrors.IsResourceExpired(err) {
		t.Errorf("the list failed with %v", err)
	}
}

// write is one of the ways to write an Order.
type write struct {
	do             func(client.Client, client.Object) error
	asked, content string
}

func writes(t *testing.T) map[string]write {
	t.Helper()
	patch := client.RawPatch(types.JSONPatchType, []byte(`[]`))
	const orders = "/apis/acme.cert-manager.io/v1/namespaces/ns/orders"
	return map[string]write{
		"create": {func(c client.Client, o client.Object) error {
			return c.Create(t.Context(), o, client.FieldOwner("me"))
		}, "POST " + orders + "?fieldManager=me", "application/json"},
		"patch": {func(c client.Client, o client.Object) error {
			return c.Patch(t.Context(), o, patch, client.FieldOwner("me"))
		}, "PATCH " + orders + "/old?fieldManager=me", "application/json-patch+json"},
		"status": {func(c client.Client, o client.Object) error {
			return c.Status().Patch(t.Context(), o, patch, client.FieldOwner("me"))
		}, "PATCH " + orders + "/old/status?fieldManager=me", "application/json-patch+json"},
	}
}

func newWriter(t *testing.T, status int, body string) (*apiServer, client.Client) {
	t.Helper()
	scheme, err := api.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	s, config, http := serve(t, status, body)
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	c, err := NewClient(config, client.Options{HTTPClient: http, Scheme: scheme, Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

// TestWrites sends what controller-runtime's client would, and has nothing in the object
// afterwards but the answer.
func TestWrites(t *testing.T) {
	for name, w := range writes(t) {
		t.Run(name, func(t *testing.T) {
			s, c := newWriter(t, 200, order("new"))
			o := &acmev1.Order{Spec: acmev1.OrderSpec{CommonName: "left over"}}
			o.Namespace, o.Name = "ns", "old"
			if err := w.do(c, o); err != nil {
				t.Fatal(err)
			}
			if s.asked != w.asked || s.kind != w.content {
				t.Errorf("sent %q of %q, want %q of %q", s.asked, s.kind, w.asked, w.content)
			}
			if o.Name != "new" || o.Spec.CommonName != "" || o.ManagedFields != nil || o.Kind != "" {
				t.Errorf("the answer has become %+v", o)
			}
			if name == "create" && !strings.HasPrefix(s.sent, `{"apiVersion":"acme.cert-manager.io/v1","kind":"Order"`) && !strings.HasPrefix(s.sent, `{"kind":"Order","apiVersion":"acme.cert-manager.io/v1"`) {
				t.Errorf("sent %s", s.sent)
			}
		})
	}
}

// TestRefusedWrites leave the object as it was, and keep what the API server says.
func TestRefusedWrites(t *testing.T) {
	const refusal = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"somebody was faster","reason":"Conflict","details":{"name":"old","kind":"orders"},"code":409}`
	for name, w := range writes(t) {
		t.Run(name, func(t *testing.T) {
			_, c := newWriter(t, 409, refusal)
			o := &acmev1.Order{}
			o.Namespace, o.Name = "ns", "old"
			err := w.do(c, o)
			if !apierrors.IsConflict(err) || err.Error() != "somebody was faster" {
				t.Errorf("got %v", err)
			}
			if o.Name != "old" {
				t.Errorf("the object has become %+v", o)
			}
		})
	}
}

// TestClusterScoped: ClusterIssuers, and kinds that are not ours, go where they belong.
func TestClusterScoped(t *testing.T) {
	s, c := newWriter(t, 200, `{"apiVersion":"cert-manager.io/v1","kind":"ClusterIssuer","metadata":{"name":"i"}}`)
	issuer := &certmanagerv1.ClusterIssuer{}
	issuer.Name = "i"
	if err := c.Status().Patch(t.Context(), issuer, client.RawPatch(types.JSONPatchType, []byte(`[]`))); err != nil {
		t.Fatal(err)
	}
	if want := "PATCH /apis/cert-manager.io/v1/clusterissuers/i/status"; s.asked != want {
		t.Errorf("asked %q, want %q", s.asked, want)
	}
	s.body = `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","managedFields":` + managed + `}}`
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name = "ns", "s"
	if err := c.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if want := "POST /api/v1/namespaces/ns/secrets"; s.asked != want || len(secret.ManagedFields) != 1 {
		t.Errorf("asked %q, want %q, and got %+v", s.asked, want, secret)
	}
}

// TestEventsAreOurOwn: what one event is decoded into does not change with the next, which
// is read into the same buffer.
func TestEventsAreOurOwn(t *testing.T) {
	_, r := newReader(t, `{"type":"ADDED","object":`+order("first")+"}\n"+`{"type":"ADDED","object":`+order("other")+"}\n")
	events, err := r.WatchWithContext(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var all []watch.Event
	for e := range events.ResultChan() {
		all = append(all, e)
	}
	if len(all) != 2 || all[0].Object.(*acmev1.Order).Name != "first" || all[1].Object.(*acmev1.Order).Name != "other" {
		t.Errorf("got %+v", all)
	}
}
