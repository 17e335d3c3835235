// Package requesterwebhook is a webhook for API servers that do not run MutatingAdmissionPolicies. When a user makes a
// CertificateRequest, the webhook writes the user into the spec of the CertificateRequest. The webhook itself checks
// nothing: with or without it, a ValidatingAdmissionPolicy refuses a CertificateRequest that names another user.
package requesterwebhook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Name is that of the Service, the Deployment and the MutatingWebhookConfiguration, as of cert-manager's (spec §11.1).
const Name = "cert-manager-webhook"

// Fill writes the user who makes a CertificateRequest into the request, whatever that says itself, as the policy
// certificaterequest-identity.chancery.dev does (spec §3.1).
func Fill(_ context.Context, req admission.Request) admission.Response {
	if req.Operation != admissionv1.Create || req.Resource.Resource != "certificaterequests" {
		return admission.Allowed("")
	}
	var object map[string]any
	if err := json.Unmarshal(req.Object.Raw, &object); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	spec, has := object["spec"].(map[string]any)
	if !has {
		return admission.Allowed("") // the schema refuses it
	}
	user := req.UserInfo
	spec["username"], spec["uid"], spec["groups"] = user.Username, user.UID, append([]string{}, user.Groups...)
	delete(spec, "extra")
	if len(user.Extra) > 0 {
		spec["extra"] = user.Extra
	}
	filled, err := json.Marshal(object)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(req.Object.Raw, filled)
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
