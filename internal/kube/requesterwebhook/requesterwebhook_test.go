package requesterwebhook

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/bounds"
	"chancery.dev/internal/rig/growth"
)

// ask sends a request to a Handler, as the API server does.
func ask(ctx context.Context, h http.Handler, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/mutate", strings.NewReader(body)))
	return w
}

// reviewOf is an AdmissionReview.
func reviewOf(t *testing.T, req *admissionv1.AdmissionRequest) string {
	t.Helper()
	text, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: req,
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestFill: the user is written over whatever the request says; what is no creation of a request stays as it is.
func TestFill(t *testing.T) {
	ann := authenticationv1.UserInfo{Username: "ann", UID: "1", Groups: []string{"a", "b"}, Extra: map[string]authenticationv1.ExtraValue{"x/y": {"z"}}}
	for name, c := range map[string]struct {
		user      authenticationv1.UserInfo
		operation admissionv1.Operation
		resource  string
		object    string
		want      string
	}{
		"empty": {user: ann, object: `{"spec":{"request":"r"}}`, want: `[{"op":"add","path":"/spec/username","value":"ann"},{"op":"add","path":"/spec/uid","value":"1"},` +
			`{"op":"add","path":"/spec/groups","value":["a","b"]},{"op":"add","path":"/spec/extra","value":{"x/y":["z"]}}]`},
		"somebody else": {
			user:   authenticationv1.UserInfo{Username: "ann"},
			object: `{"spec":{"username":"bob","uid":"2","groups":["c"],"extra":{"x/y":["z"]}},"Spec":{}}`,
			want: `[{"op":"add","path":"/spec/username","value":"ann"},{"op":"add","path":"/spec/uid","value":""},{"op":"add","path":"/spec/groups","value":[]},` +
				`{"op":"remove","path":"/spec/extra"}]`,
		},
		"no spec":      {user: ann, object: `{}`},
		"a wrong spec": {user: ann, object: `{"spec":["x"]}`},
		"an update":    {user: ann, object: `{"spec":{}}`, operation: admissionv1.Update},
		"a deletion":   {user: ann, object: `null`, operation: admissionv1.Delete},
		"another kind": {user: ann, object: `{"spec":{}}`, resource: "certificates"},
	} {
		t.Run(name, func(t *testing.T) {
			w := ask(t.Context(), NewHandler(), reviewOf(t, &admissionv1.AdmissionRequest{
				UID: "u", Operation: cmp.Or(c.operation, admissionv1.Create), Resource: metav1.GroupVersionResource{Resource: cmp.Or(c.resource, "certificaterequests")},
				UserInfo: c.user, Object: runtime.RawExtension{Raw: []byte(c.object)},
			}))
			got := &admissionv1.AdmissionReview{}
			if err := json.Unmarshal(w.Body.Bytes(), got); err != nil {
				t.Fatal(err)
			}
			if got.APIVersion != "admission.k8s.io/v1" || got.Kind != "AdmissionReview" || got.Response == nil || got.Response.UID != "u" || !got.Response.Allowed {
				t.Fatalf("%d: %s", w.Code, w.Body)
			}
			if patch := strings.TrimSpace(string(got.Response.Patch)); patch != c.want || (patch == "") != (got.Response.PatchType == nil) {
				t.Errorf("got  %s\nwant %s", patch, c.want)
			}
		})
	}
}

// TestWhatIsNoReviewIsRefused: nothing is answered to it but an error.
func TestWhatIsNoReviewIsRefused(t *testing.T) {
	for body, code := range map[string]int{
		"": http.StatusBadRequest, "{": http.StatusBadRequest, "{}": http.StatusBadRequest, `{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"}`: http.StatusBadRequest,
		`{"apiVersion":"admission.k8s.io/v1","kind":"<"}`:                                           http.StatusBadRequest,
		reviewOf(t, &admissionv1.AdmissionRequest{UID: types.UID(strings.Repeat("<", uidBytes+1))}): http.StatusBadRequest,
		reviewOf(t, &admissionv1.AdmissionRequest{UID: types.UID(strings.Repeat("<", uidBytes))}):   http.StatusOK,
	} {
		if w := ask(t.Context(), NewHandler(), body); w.Code != code {
			t.Errorf("%s: %d: %s", body, w.Code, w.Body)
		}
	}
	w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mutate", io.MultiReader(strings.NewReader("{}")))
	if NewHandler().ServeHTTP(w, r); w.Code != http.StatusLengthRequired {
		t.Errorf("of unknown length: %d: %s", w.Code, w.Body)
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

// TestReviewsAreBounded: a longer request is refused, and is not read.
func TestReviewsAreBounded(t *testing.T) {
	bounds.Holds(t, "review", func(n int) limits.Outcome {
		empty := reviewOf(t, &admissionv1.AdmissionRequest{})
		w := ask(t.Context(), NewHandler(), empty+strings.Repeat(" ", n-len(empty)))
		if w.Code == http.StatusRequestEntityTooLarge {
			return bounds.Refusal(t, errors.New(w.Body.String()), "make the object smaller")
		}
		if w.Code != http.StatusOK {
			t.Errorf("%d: %s", w.Code, w.Body)
		}
		return limits.Taken
	})
}

// body gives its bytes when it is told to.
type body struct {
	*strings.Reader

	wait <-chan struct{}
}

// Read implements io.Reader.
func (b body) Read(p []byte) (int, error) {
	<-b.wait
	return b.Reader.Read(p)
}

// slow is a connection whose client does not read the answer until it is told to.
type slow struct {
	*httptest.ResponseRecorder

	wait <-chan struct{}
}

// Write implements http.ResponseWriter.
func (s slow) Write(p []byte) (int, error) {
	<-s.wait
	return s.ResponseRecorder.Write(p)
}

// TestReviewsTakeTurns: clients that send slowly, or read slowly, hold up nobody, however many they are, but for those
// that send as much as they do. Nobody waits for longer than the API server does.
func TestReviewsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, now, never := NewHandler(), make(chan struct{}), make(chan struct{})
		close(now)
		small := reviewOf(t, &admissionv1.AdmissionRequest{UID: "u"})
		large := small + strings.Repeat(" ", limits.SmallReview)
		send := func(text string, sends, reads <-chan struct{}) <-chan int {
			code, w := make(chan int, 1), httptest.NewRecorder()
			go func() {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mutate", body{strings.NewReader(text), sends})
				r.ContentLength = int64(len(text))
				h.ServeHTTP(slow{w, reads}, r)
				code <- w.Code
			}()
			synctest.Wait()
			return code
		}
		for range 2 * atOnce {
			send(small, never, now)
			send(small, now, never)
		}
		slowly := [largeAtOnce]<-chan int{}
		for i := range slowly {
			slowly[i] = send(large, never, now)
		}
		if code := <-send(small, now, now); code != http.StatusOK {
			t.Errorf("a small one: %d", code)
		}
		waiting := [largeWaiting - 1]<-chan int{}
		for i := range waiting {
			waiting[i] = send(large, now, now)
		}
		began := time.Now()
		last := send(large, now, now)
		if code := <-send(large, now, now); code != http.StatusServiceUnavailable || time.Since(began) != 0 {
			t.Errorf("one more than may wait: %d after %s", code, time.Since(began))
		}
		if code := <-last; code != http.StatusServiceUnavailable || time.Since(began) != within {
			t.Errorf("a large one beside slow ones: %d after %s", code, time.Since(began))
		}
		for range atOnce {
			h.turns <- struct{}{} // they are being decoded
		}
		began = time.Now()
		if code := <-send(small, now, now); code != http.StatusServiceUnavailable || time.Since(began) != within {
			t.Errorf("one beside %d others: %d after %s", atOnce, code, time.Since(began))
		}
		<-h.turns
		close(never)
		for _, ends := range slowly {
			<-ends
		}
		if code := <-send(large, now, now); code != http.StatusOK {
			t.Errorf("a large one after them: %d", code)
		}
	})
}

// TestReviewsCostNoSquare, and little memory: of objects that are deep, or have many fields, and of users with many.
func TestReviewsCostNoSquare(t *testing.T) {
	many := func(n int, what func(i int) string) string {
		var text strings.Builder
		for i := 0; text.Len() < n; i++ {
			text.WriteString(what(i))
		}
		return text.String()
	}
	for name, of := range map[string]func(n int) string{
		"levels": func(n int) string {
			n = min(n, 900_000) / 100 // a decoder takes 10,000
			return `"object":{"spec":{},"a":` + strings.Repeat(`{"`+strings.Repeat("k", 95)+`":`, n) + "1" + strings.Repeat("}", n) + `}`
		},
		"fields of the spec": func(n int) string {
			return `"object":{"spec":{` + many(n, func(i int) string { return fmt.Sprintf(`"%x":1,`, i) }) + `"z":1}}`
		},
		"bytes that are no text": func(n int) string {
			return `"object":{"spec":{}},"userInfo":{"username":"` + strings.Repeat("\xff", n/2) + `","uid":"` + strings.Repeat("<", n/2) + `"}`
		},
		"groups": func(n int) string {
			return `"object":{"spec":{}},"userInfo":{"groups":[` + many(n, func(int) string { return `"",` }) + `""]}`
		},
		"extra fields": func(n int) string {
			return `"object":{"spec":{}},"userInfo":{"extra":{` + many(n, func(i int) string { return fmt.Sprintf(`"%x":[],`, i) }) + `"z":[]}}`
		},
	} {
		t.Run(name, func(t *testing.T) {
			var all func()
			growth.Linear(t, limits.Review, func(n int) func() {
				text := []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"operation":"CREATE","resource":{"resource":"certificaterequests"},` + of(n) + `}}`)
				if answer, err := answerTo(text); err != nil || !bytes.Contains(answer, []byte(`"patch":`)) || len(answer) > 4*len(text)+1000 {
					t.Fatalf("%d bytes, %v", len(answer), err)
				}
				all = func() { _, _ = answerTo(text) }
				return all
			})
			if taken := growth.Measure(all).Bytes; taken > 16*limits.Review {
				t.Errorf("%d bytes take %.0f", limits.Review, taken)
			}
		})
	}
}
