// Package requesterwebhook is a webhook for API servers that do not run MutatingAdmissionPolicies. When a user makes a
// CertificateRequest, the webhook writes the user into the spec of the CertificateRequest. The webhook itself checks
// nothing: with or without it, a ValidatingAdmissionPolicy refuses a CertificateRequest that names another user.
package requesterwebhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubejson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/limits"
)

// Name is that of the Service, the Deployment and the MutatingWebhookConfiguration, as of cert-manager's (spec §11.1).
const Name = "cert-manager-webhook"

const (
	// atOnce is how many requests are decoded at a time. Of those above limits.SmallReview, largeAtOnce are read, and
	// largeWaiting may wait.
	atOnce       = 8
	largeAtOnce  = 2
	largeWaiting = 16
	// within is how long a request waits for its turn: as long as the API server does, where chancery install has
	// installed the webhook.
	within = 5 * time.Second
	// uidBytes bounds the UID of a request, which the answer repeats: the API server's have 36 bytes.
	uidBytes = 128
)

// Handler answers the API server. Anybody in the cluster may ask, so what requests take is bounded: their size, how
// many large ones are read at a time, and how many are decoded at a time.
type Handler struct {
	waiting, large, turns chan struct{}
}

// NewHandler makes a Handler.
func NewHandler() *Handler {
	return &Handler{waiting: make(chan struct{}, largeWaiting), large: make(chan struct{}, largeAtOnce), turns: make(chan struct{}, atOnce)}
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), within)
	defer cancel()
	switch {
	case r.ContentLength < 0:
		http.Error(w, "the webhook reads no request without a Content-Length", http.StatusLengthRequired)
		return
	case r.ContentLength > limits.Review:
		http.Error(w, fmt.Sprintf("the webhook reads no request of more than %d bytes: make the object smaller", limits.Review), http.StatusRequestEntityTooLarge)
		return
	case r.ContentLength > limits.SmallReview:
		if !h.takeLarge(ctx) {
			http.Error(w, "the webhook reads other large requests: try again", http.StatusServiceUnavailable)
			return
		}
		defer func() { <-h.large }()
	}
	body := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer, code, err := h.inTurn(ctx, body)
	if err != nil {
		http.Error(w, err.Error(), code)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer)
}

// inTurn is the answer to a request, or the status that says why there is none. The turn ends before the answer is
// written: who reads slowly holds up nobody.
func (h *Handler) inTurn(ctx context.Context, body []byte) (answer []byte, code int, err error) {
	if !take(ctx, h.turns) {
		return nil, http.StatusServiceUnavailable, errors.New("the webhook answers other requests: try again")
	}
	defer func() { <-h.turns }()
	answer, err = answerTo(body)
	return answer, http.StatusBadRequest, err
}

// takeLarge takes the place of a large request. Few wait for it: nobody sees meanwhile that a client has gone.
func (h *Handler) takeLarge(ctx context.Context) bool {
	select {
	case h.waiting <- struct{}{}:
		defer func() { <-h.waiting }()
		return take(ctx, h.large)
	default:
		return false
	}
}

// take takes a place; false if there was none in time.
func take(ctx context.Context, places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// review is what the webhook decodes of an AdmissionReview: the rest may have any number of parts. What is handed on
// stays as it is.
type review struct {
	metav1.TypeMeta

	Request struct {
		UID       types.UID                   `json:"uid"`
		Operation admissionv1.Operation       `json:"operation"`
		Resource  metav1.GroupVersionResource `json:"resource"`
		UserInfo  struct {
			Username json.RawMessage `json:"username"`
			UID      json.RawMessage `json:"uid"`
			Groups   json.RawMessage `json:"groups"`
			Extra    json.RawMessage `json:"extra"`
		} `json:"userInfo"`
		Object struct {
			Spec json.RawMessage `json:"spec"`
		} `json:"object"`
	} `json:"request"`
}

// answerTo is the answer to an AdmissionReview: the user who makes a CertificateRequest is written into it, whatever it
// says itself, as the policy certificaterequest-identity.chancery.dev does (spec §3.1).
func answerTo(body []byte) ([]byte, error) {
	var r review
	if err := kubejson.Unmarshal(body, &r); err != nil { // as the API server reads it: capitals tell names apart
		return nil, fmt.Errorf("this is no AdmissionReview: %w", err)
	}
	if r.APIVersion != admissionv1.SchemeGroupVersion.String() || r.Kind != "AdmissionReview" || len(r.Request.UID) > uidBytes {
		return nil, fmt.Errorf("this is no AdmissionReview of %s", admissionv1.SchemeGroupVersion)
	}
	answer := &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: r.APIVersion, Kind: r.Kind}, Response: &admissionv1.AdmissionResponse{UID: r.Request.UID, Allowed: true},
	}
	// The schema refuses a spec that is no object.
	if r.Request.Operation == admissionv1.Create && r.Request.Resource.Resource == "certificaterequests" && bytes.HasPrefix(r.Request.Object.Spec, []byte("{")) {
		patch, err := r.patch()
		if err != nil {
			return nil, err
		}
		answer.Response.Patch, answer.Response.PatchType = patch, new(admissionv1.PatchTypeJSONPatch)
	}
	return json.Marshal(answer)
}

// patch is the JSON patch (RFC 6902) that writes the user into the spec.
func (r *review) patch() ([]byte, error) {
	type operation struct {
		Op    string          `json:"op"`
		Path  string          `json:"path"`
		Value json.RawMessage `json:"value,omitempty"`
	}
	var spec struct {
		Extra json.RawMessage `json:"extra"`
	}
	if err := kubejson.Unmarshal(r.Request.Object.Spec, &spec); err != nil {
		return nil, err
	}
	or := func(value json.RawMessage, missing string) json.RawMessage {
		if len(value) == 0 {
			return json.RawMessage(missing)
		}
		return value
	}
	user := r.Request.UserInfo
	patch := []operation{
		{"add", "/spec/username", or(user.Username, `""`)}, {"add", "/spec/uid", or(user.UID, `""`)}, {"add", "/spec/groups", or(user.Groups, "[]")},
	}
	switch {
	case len(user.Extra) > 0:
		patch = append(patch, operation{"add", "/spec/extra", user.Extra})
	case len(spec.Extra) > 0:
		patch = append(patch, operation{Op: "remove", Path: "/spec/extra"})
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // which makes six bytes of one
	err := encoder.Encode(patch)
	return text.Bytes(), err
}

// Trust makes the API server trust a bundle of CAs when it calls the webhook by the configuration of that name.
func Trust(ctx context.Context, read client.Reader, write client.Writer, name string, bundle []byte) error {
	config := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := read.Get(ctx, client.ObjectKey{Name: name}, config); err != nil {
		return fmt.Errorf("write the CA of the webhook: %w: chancery install --webhook makes the configuration", err)
	}
	before := config.DeepCopy()
	missing := false
	for i := range config.Webhooks {
		// Another replica may have written a newer CA, with this one.
		if told := &config.Webhooks[i].ClientConfig.CABundle; !bytes.Contains(*told, bundle) {
			*told, missing = bundle, true
		}
	}
	if !missing {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := write.Patch(ctx, config, patch, client.FieldOwner("chancery-webhook")); err != nil {
		return fmt.Errorf("write the CA of the webhook: %w", err)
	}
	return nil
}
