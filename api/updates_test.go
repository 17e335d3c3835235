package api_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// updateCase is an object that is made, is given a status, and is then changed; in its status or
// elsewhere, as the paths say.
type updateCase struct {
	ruleCase
	status map[string]any
}

func condition(kind, status string) map[string]any {
	return map[string]any{"type": kind, "status": status}
}

func conditions(cs ...any) map[string]any {
	return map[string]any{"conditions": cs}
}

// placedOrder is the status of an Order that the server knows.
func placedOrder() map[string]any {
	return map[string]any{
		"url":         "https://acme.example.com/order/1",
		"finalizeURL": "https://acme.example.com/order/1/finalize",
		"certificate": somePEM,
		"authorizations": []any{
			map[string]any{
				"url": "https://acme.example.com/authz/1", "identifier": "www.example.com", "wildcard": false, "initialState": "pending",
				"challenges": []any{map[string]any{"url": "https://acme.example.com/chall/1", "token": "t", "type": "dns-01"}},
			},
			map[string]any{"url": "https://acme.example.com/authz/2"},
		},
	}
}

// authorizations are as many entries of an Order's status, read or not.
func authorizations(n int, read bool) (out []any) {
	for i := range n {
		entry := map[string]any{"url": fmt.Sprintf("https://acme.example.com/acme/authz/%040d", i)}
		if read {
			entry["identifier"], entry["wildcard"], entry["initialState"] = fmt.Sprintf("%d.example.com", i), false, "pending"
			entry["challenges"] = []any{map[string]any{"url": fmt.Sprintf("https://acme.example.com/chall/%d", i), "token": "t", "type": "dns-01"}}
		}
		out = append(out, entry)
	}
	return out
}

func updateCases() []updateCase {
	const (
		both     = "conditions: Approved and Denied exclude each other"
		onlyTrue = "conditions: Approved and Denied may only have the status True"
		fixed    = "conditions: Approved and Denied cannot be changed or removed once set"
		authz    = "status.authorizations.0."
		known    = "identifier, wildcard and initialState of an entry cannot be changed"
	)
	approved := conditions(condition("Approved", "True"))
	cases := []updateCase{
		{ruleCase{"another issuer", "request", changes{"spec.issuerRef.name": "other"}, "spec: cannot be changed once the CertificateRequest is created"}, nil},
		{ruleCase{"another user", "request", changes{"spec.username": "other"}, "spec: cannot be changed once the CertificateRequest is created"}, nil},
		{ruleCase{"a label", "request", changes{"metadata.labels": map[string]any{"a": "b"}}, ""}, nil},
		{ruleCase{"approve", "request", changes{"status": approved}, ""}, nil},
		{ruleCase{"approve and more", "request", changes{"status": conditions(condition("Approved", "True"), condition("Ready", "False"))}, ""}, approved},
		{ruleCase{"approve not", "request", changes{"status": conditions(condition("Approved", "False"))}, onlyTrue}, nil},
		{ruleCase{"deny not", "request", changes{"status": conditions(condition("Denied", "Unknown"))}, onlyTrue}, nil},
		{ruleCase{"approve and deny", "request", changes{"status": conditions(condition("Approved", "True"), condition("Denied", "True"))}, both}, nil},
		{ruleCase{"deny after approval", "request", changes{"status": conditions(condition("Approved", "True"), condition("Denied", "True"))}, both}, approved},
		{ruleCase{"approve twice", "request", changes{"status": conditions(condition("Approved", "True"), condition("Approved", "True"))}, "Duplicate value"}, nil},
		{ruleCase{"take approval back", "request", changes{"status": conditions(condition("Ready", "False"))}, fixed}, approved},
		{ruleCase{"take conditions away", "request", changes{"status": map[string]any{}}, fixed}, approved},
		{ruleCase{"take status away", "request", changes{"status": nil}, "status.conditions: Approved and Denied cannot be removed once set"}, approved},
		{ruleCase{"change approval", "request", changes{"status": conditions(map[string]any{"type": "Approved", "status": "True", "reason": "Other"})}, fixed}, approved},

		{ruleCase{"other names", "order", changes{"spec.dnsNames": strs("other.example.com")}, "spec: cannot be changed once the Order is created"}, nil},
		{ruleCase{"a profile", "order", changes{"spec.profile": "short"}, "spec: cannot be changed once the Order is created"}, nil},
		{ruleCase{"a label", "order", changes{"metadata.labels": map[string]any{"a": "b"}}, ""}, nil},
		{ruleCase{"first status", "order", changes{"status": placedOrder()}, ""}, nil},
		{ruleCase{"another state", "order", changes{"status.state": "valid"}, ""}, placedOrder()},
		{ruleCase{"another url", "order", changes{"status.url": "x"}, "url: cannot be changed once it is set"}, placedOrder()},
		{ruleCase{"no url", "order", changes{"status.url": nil}, "url: cannot be changed once it is set"}, placedOrder()},
		{ruleCase{"another finalizeURL", "order", changes{"status.finalizeURL": "x"}, "finalizeURL: cannot be changed once it is set"}, placedOrder()},
		{ruleCase{"another certificate", "order", changes{"status.certificate": notPEM}, "certificate: cannot be changed once it is set"}, placedOrder()},
		{ruleCase{"no status", "order", changes{"status": nil}, "status: Invalid value: url: cannot be changed once it is set"}, placedOrder()},
		{ruleCase{"no authorizations", "order", changes{"status.authorizations": nil}, "none can be added or removed"}, placedOrder()},
		{ruleCase{"another authorization", "order", changes{authz + "url": "x"}, "the url of an entry cannot be changed"}, placedOrder()},
		{ruleCase{"another identifier", "order", changes{authz + "identifier": "x"}, known}, placedOrder()},
		{ruleCase{"no identifier", "order", changes{authz + "identifier": nil}, known}, placedOrder()},
		{ruleCase{"another wildcard", "order", changes{authz + "wildcard": true}, known}, placedOrder()},
		{ruleCase{"no wildcard", "order", changes{authz + "wildcard": nil}, known}, placedOrder()},
		{ruleCase{"another initial state", "order", changes{authz + "initialState": "valid"}, known}, placedOrder()},
		{ruleCase{"another token", "order", changes{authz + "challenges": []any{map[string]any{"url": "https://acme.example.com/chall/1", "token": "u", "type": "dns-01"}}}, "the challenges of an entry cannot be changed"}, placedOrder()},
		{ruleCase{"the second authorization read", "order", changes{
			"status.authorizations.1.identifier": "example.com", "status.authorizations.1.wildcard": true, "status.authorizations.1.initialState": "valid",
			"status.authorizations.1.challenges": []any{map[string]any{"url": "c", "token": "", "type": "dns-01"}},
		}, ""}, placedOrder()},

		{ruleCase{"a thousand authorizations read", "order", changes{"status.authorizations": authorizations(1000, true)}, ""}, map[string]any{"authorizations": authorizations(1000, false)}},
		{ruleCase{"a thousand authorizations ready", "order", changes{"status.state": "ready"}, ""}, map[string]any{"authorizations": authorizations(1000, true)}},
		{ruleCase{"another one of a thousand authorizations", "order", changes{"status.authorizations.0.url": "x"}, "the url of an entry cannot be changed"}, map[string]any{"authorizations": authorizations(1000, true)}},

		{ruleCase{"another token", "challenge", changes{"spec.token": "other"}, "spec: cannot be changed once the Challenge is created"}, nil},
		{ruleCase{"another config", "challenge", changes{"spec.solver.dns01.webhook.config": map[string]any{"zone": "other"}}, "spec: cannot be changed once the Challenge is created"}, nil},
		{ruleCase{"a finalizer", "challenge", changes{"metadata.finalizers": strs("example.com/f")}, ""}, nil},
		{ruleCase{"processing", "challenge", changes{"status": map[string]any{"processing": true, "presented": false}}, ""}, nil},
		{ruleCase{"unknown state", "challenge", changes{"status": map[string]any{"state": "lost"}}, "Unsupported value"}, nil},
	}
	return append(cases, annotationCases()...)
}

// annotationCases are about the annotations of a CertificateRequest.
func annotationCases() []updateCase {
	const fixed = " cannot be added, changed or removed once the CertificateRequest is created"
	var cases []updateCase
	for key, want := range map[string]string{
		"cert-manager.io/certificate-name":     "metadata.annotations: cert-manager.io/certificate-name" + fixed,
		"cert-manager.iodine":                  "metadata.annotations: cert-manager.iodine" + fixed,
		"acme.cert-manager.io/x":               "metadata.annotations: acme.cert-manager.io/x" + fixed,
		"chancery.dev/acme-profile":            "metadata.annotations: chancery.dev/acme-profile" + fixed,
		"venafi.cert-manager.io/custom-fields": "metadata.annotations: venafi.cert-manager.io/custom-fields" + fixed,
		"venafi.cert-manager.io/pickup-id":     "",
		"chancery.dev/issuance-budget":         "metadata.annotations: chancery.dev/issuance-budget" + fixed,
		"chancery.dev/anything":                "",
	} {
		cases = append(cases, updateCase{ruleCase{"annotation " + key, "request", changes{"metadata.annotations": map[string]any{key: "v"}}, want}, nil})
	}
	return cases
}

// isStatus reports whether all changes are of the status.
func (c updateCase) isStatus() bool {
	for path := range c.set {
		if path != "status" && !strings.HasPrefix(path, "status.") {
			return false
		}
	}
	return true
}

func TestUpdateRules(t *testing.T) {
	d := client(t)
	for _, c := range updateCases() {
		t.Run(c.base+"/"+c.name, func(t *testing.T) {
			o := base(t, c.base)
			o.SetName("")
			o.SetGenerateName("update-")
			r := resourceFor(d, o)
			o, err := r.Create(t.Context(), o, metav1.CreateOptions{})
			if err == nil && c.status != nil {
				o.Object["status"] = c.status
				o, err = r.UpdateStatus(t.Context(), o, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
			}
			if err != nil {
				t.Fatal(err)
			}
			edit(t, o, c.set)
			update := r.Update
			if c.isStatus() {
				update = func(ctx context.Context, o *unstructured.Unstructured, opts metav1.UpdateOptions, _ ...string) (*unstructured.Unstructured, error) {
					return r.UpdateStatus(ctx, o, opts)
				}
			}
			_, err = update(t.Context(), o, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
			check(t, err, c.want)
		})
	}
}
