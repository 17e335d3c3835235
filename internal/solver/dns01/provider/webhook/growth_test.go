package webhook

import (
	"io"
	"net/http"
	"strings"
	"testing"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/bounds"
	"chancery.dev/internal/rig/growth"
	"chancery.dev/internal/solver/dns01"
)

// dripping is a body of which little comes at a time.
type dripping struct{ *strings.Reader }

// Read implements io.Reader.
func (d *dripping) Read(to []byte) (int, error) { return d.Reader.Read(to[:min(len(to), 4096)]) }

// answering is a server that answers everything with a body.
type answering struct {
	code int
	body string
}

// RoundTrip implements http.RoundTripper.
func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.code, Header: http.Header{}, Body: io.NopCloser(&dripping{strings.NewReader(a.body)}), Request: r}, nil
}

// TestAnswersOfWebhooksCostNoSquare: a webhook sends as much as is read, in the form that costs the most.
func TestAnswersOfWebhooksCostNoSquare(t *testing.T) {
	const begin, end = `{"response":{"success":false,"status":{`, `}}}`
	// filled repeats a part between two others as often as the size allows.
	filled := func(before, part, after string) func(size int) string {
		return func(size int) string {
			return before + strings.TrimSuffix(strings.Repeat(part, (size-len(before)-len(after))/len(part)), ",") + after
		}
	}
	bounds.Holds(t, "answer of a webhook", func(n int) limits.Outcome {
		const success = `{"response":{"success":true}}`
		p := &Provider{
			http: &http.Client{Transport: answering{200, success + strings.Repeat(" ", n-len(success))}}, address: "https://webhook.example/", name: "webhook",
			direct: true, config: &acmev1.WebhookProvider{}, explain: func(*Provider, int) error { return nil },
		}
		return bounds.Refusal(t, p.ask(t.Context(), "Present", dns01.Record{}), "the answer is longer than 1 MiB")
	})
	for name, tc := range map[string]struct {
		code int
		body func(size int) string
	}{
		"a long message":         {200, filled(begin+`"message":"`, `\u0000`, `"`+end)},
		"a message of an error":  {500, filled(`{"message":"`, `\ud83d\ude00`, `"}`)},
		"no UTF-8":               {500, filled(`{"message":"`, "\xff", `"}`)},
		"many causes":            {200, filled(begin+`"message":"m","details":{"causes":[`, `{},`, `]}`+end)},
		"many fields":            {200, filled(`{`, `"":0,`, `,"response":{"success":false}}`)},
		"the response each time": {200, filled(`{`, `"response":{},`, `}`)},
		"deep":                   {200, func(size int) string { return strings.Repeat("[", size) }},
		"deep within a response": {200, func(size int) string { return strings.Repeat(`{"response":`, size/len(`{"response":`)) }},
	} {
		t.Run(name, func(t *testing.T) {
			growth.Linear(t, limits.WebhookBody, func(size int) func() {
				body := tc.body(size)
				if len(body) > limits.WebhookBody {
					t.Fatal("not all of it is read")
				}
				p := &Provider{
					http: &http.Client{Transport: answering{tc.code, body}}, address: "https://webhook.example/", name: "webhook", direct: true,
					config: &acmev1.WebhookProvider{}, explain: func(*Provider, int) error { return nil },
				}
				return func() {
					if p.ask(t.Context(), "Present", dns01.Record{}) == nil {
						t.Fatal("it does not fail")
					}
				}
			})
		})
	}
}
