package injection

import (
	"encoding/base64"
	"fmt"
	"strings"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
)

// The kinds of injectables.
const (
	KindValidatingWebhook = "ValidatingWebhookConfiguration"
	KindMutatingWebhook   = "MutatingWebhookConfiguration"
	KindAPIService        = "APIService"
	KindDefinition        = "CustomResourceDefinition"
)

// Slot is a place of an injectable that a bundle goes to.
type Slot struct {
	// Path leads to the slot, as a JSON pointer (RFC 6901).
	Path string
	// Bundle is what the slot has now.
	Bundle []byte
}

// Target is what is read of an injectable.
type Target struct {
	Slots []Slot
	// Obstacle says why the injectable cannot have a bundle, and what helps; empty if it can.
	Obstacle string
	// Held says that FieldManager has applied bundles, and Fields are the managed fields without that. As long as it is
	// so, nobody can take a webhook out of an injectable by applying it: the server would keep the name and the bundle
	// of the webhook, and refuse the rest as incomplete.
	Held   bool
	Fields []any
}

// FieldManager is who writes bundles (spec §7).
const FieldManager = "cert-manager-cainjector"

// Read reads an injectable of a kind, as the API server has it.
func Read(kind string, object map[string]any) Target {
	var t Target
	switch kind {
	case KindAPIService:
		t = readAPIService(within(object, "spec"))
	case KindDefinition:
		t = readDefinition(within(object, "spec", "conversion"))
	default:
		t = readWebhooks(object)
	}
	fields, _ := within(object, "metadata")["managedFields"].([]any)
	for _, one := range fields {
		if of, _ := one.(map[string]any); of["manager"] == FieldManager && of["operation"] == "Apply" {
			t.Held = true
		} else {
			t.Fields = append(t.Fields, one)
		}
	}
	return t
}

func readWebhooks(object map[string]any) Target {
	var t Target
	all, _ := object["webhooks"].([]any)
	for i, one := range all {
		webhook, _ := one.(map[string]any)
		t.Slots = append(t.Slots, Slot{fmt.Sprintf("/webhooks/%d/clientConfig/caBundle", i), bytesOf(within(webhook, "clientConfig"))})
	}
	if len(t.Slots) == 0 {
		t.Obstacle = "it has no webhooks: add one, or remove the annotation"
	}
	return t
}

func readAPIService(spec map[string]any) Target {
	switch insecure, _ := spec["insecureSkipTLSVerify"].(bool); {
	case within(spec, "service") == nil:
		return Target{Obstacle: "it has no spec.service, the API server itself serves it: remove the annotation"}
	case insecure:
		return Target{Obstacle: "its spec.insecureSkipTLSVerify is true, and excludes a bundle: set it to false, or remove the annotation"}
	}
	return Target{Slots: []Slot{{"/spec/caBundle", bytesOf(spec)}}}
}

func readDefinition(conversion map[string]any) Target {
	config := within(conversion, "webhook", "clientConfig")
	if strategy, _ := conversion["strategy"].(string); strategy != "Webhook" || config == nil {
		return Target{Obstacle: "its spec.conversion.strategy is not Webhook, so there is no webhook to trust: remove the annotation, or set the strategy"}
	}
	return Target{Slots: []Slot{{"/spec/conversion/webhook/clientConfig/caBundle", bytesOf(config)}}}
}

// within returns the map at a path; nil if there is none.
func within(object map[string]any, path ...string) map[string]any {
	for _, key := range path {
		object, _ = object[key].(map[string]any)
	}
	return object
}

func bytesOf(config map[string]any) []byte {
	text, _ := config["caBundle"].(string)
	bundle, _ := base64.StdEncoding.DecodeString(text) // the API server takes nothing else
	return bundle
}

// Operation is one of a JSON patch (RFC 6902).
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Patch returns the writes of an action, which the API server refuses if the injectable has another version by then: a
// webhook may have gone, or another CA may have come.
func Patch(t *Target, a Action, resourceVersion string) []Operation {
	out := []Operation{{"replace", "/metadata/resourceVersion", resourceVersion}}
	if fields := t.Fields; t.Held {
		if len(fields) == 0 {
			fields = []any{map[string]any{}} // an empty list would change nothing
		}
		out = append(out, Operation{"replace", "/metadata/managedFields", fields})
	}
	for _, slot := range a.Write {
		out = append(out, Operation{"add", slot.Path, slot.Bundle})
	}
	switch path := "/metadata/annotations/" + strings.ReplaceAll(certmanagerv1.OldCAsAnnotation, "/", "~1"); {
	case a.Old == nil:
	case *a.Old == "":
		out = append(out, Operation{Op: "remove", Path: path})
	default:
		out = append(out, Operation{"add", path, *a.Old})
	}
	return out
}
