package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/api"
	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig"
	"chancery.dev/kubectl/internal/plugin"
)

// strange is text that a terminal obeys: an escape sequence, one of C1, one that turns the direction of text, an
// invisible character, and a line of its own.
const strange = "\x1b[31m\u009b2J\r\u202e\u2066\u200b\x7f\nforged\tline"

// obeyed returns the first character of a text that a terminal obeys, or that nobody sees; 0 if there is none.
func obeyed(text string) rune {
	for _, r := range text {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == unicode.ReplacementChar) {
			return r
		}
	}
	return 0
}

// plant adds strange text to every string of an object, also where the object has none, but for fields that are kept.
func plant(v reflect.Value, kept map[string]bool, depth int) {
	if depth > 12 {
		return
	}
	switch v.Kind() {
	case reflect.String:
		if v.CanSet() {
			v.SetString(v.String() + strange)
		}
	case reflect.Pointer:
		if v.IsNil() && v.CanSet() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		plant(v.Elem(), kept, depth+1)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && !kept[f.Name] {
				plant(v.Field(i), kept, depth+1)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		if v.Len() == 0 && v.CanSet() {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		}
		for i := range v.Len() {
			plant(v.Index(i), kept, depth+1)
		}
	case reflect.Map:
		texts, are := v.Interface().(map[string]string)
		if !are || !v.CanSet() {
			return
		}
		texts = maps.Clone(texts)
		if texts == nil {
			texts = map[string]string{}
		}
		for key, value := range texts {
			if key != certmanagerv1.CertificateNameAnnotation && key != certmanagerv1.CertificateRevisionAnnotation {
				texts[key] = value + strange
			}
		}
		texts["planted"] = strange
		v.Set(reflect.ValueOf(texts))
	}
}

// names are fields that the API server lets nobody fill with such text, or that lead from one object to the next.
func names(more ...string) map[string]bool {
	kept := map[string]bool{}
	for _, name := range append(more, "TypeMeta", "Name", "GenerateName", "Namespace", "UID", "OwnerReferences", "ManagedFields", "Finalizers",
		"SelfLink", "ResourceVersion", "DeletionTimestamp", "DeletionGracePeriodSeconds", "CreationTimestamp", "Kind", "Group", "SecretName", "Revision") {
		kept[name] = true
	}
	return kept
}

// chain are objects of all kinds, each of which belongs to the next.
func chain() map[string]client.Object {
	meta := func(name string, owner client.Object) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(fmt.Sprint("uid-", len(name), name)), ResourceVersion: "1"}
		if owner != nil {
			yes := true
			kind := owner.GetObjectKind().GroupVersionKind()
			m.OwnerReferences = []metav1.OwnerReference{{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Name: owner.GetName(), UID: owner.GetUID(), Controller: &yes}}
		}
		return m
	}
	ref := cmmeta.IssuerReference{Name: "ca", Kind: "Issuer"}
	crt := &certmanagerv1.Certificate{ObjectMeta: meta("web", nil), Spec: certmanagerv1.CertificateSpec{SecretName: "web-tls", DNSNames: []string{"a"}, IssuerRef: ref}}
	crt.Status.Conditions = []certmanagerv1.CertificateCondition{
		{Type: certmanagerv1.CertificateConditionReady, Status: cmmeta.ConditionFalse}, {Type: certmanagerv1.CertificateConditionIssuing, Status: cmmeta.ConditionTrue},
	}
	crt.SetGroupVersionKind(certmanagerv1.SchemeGroupVersion().WithKind("Certificate"))
	request := &certmanagerv1.CertificateRequest{ObjectMeta: meta("web-1", crt), Spec: certmanagerv1.CertificateRequestSpec{IssuerRef: ref}}
	request.Annotations = map[string]string{certmanagerv1.CertificateNameAnnotation: "web", certmanagerv1.CertificateRevisionAnnotation: "1"}
	request.Status.Conditions = []certmanagerv1.CertificateRequestCondition{
		{Type: certmanagerv1.CertificateRequestConditionApproved, Status: cmmeta.ConditionTrue}, {Type: certmanagerv1.CertificateRequestConditionReady, Status: cmmeta.ConditionFalse},
	}
	request.SetGroupVersionKind(certmanagerv1.SchemeGroupVersion().WithKind("CertificateRequest"))
	order := &acmev1.Order{ObjectMeta: meta("web-1-order", request), Spec: acmev1.OrderSpec{IssuerRef: ref}, Status: acmev1.OrderStatus{State: acmev1.Pending}}
	order.SetGroupVersionKind(acmev1.SchemeGroupVersion().WithKind("Order"))
	challenge := &acmev1.Challenge{ObjectMeta: meta("web-1-challenge", order), Spec: acmev1.ChallengeSpec{IssuerRef: ref}, Status: acmev1.ChallengeStatus{State: acmev1.Pending, Processing: true}}
	challenge.SetGroupVersionKind(acmev1.SchemeGroupVersion().WithKind("Challenge"))
	issuer := &certmanagerv1.Issuer{ObjectMeta: meta("ca", nil), Spec: certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{}}}
	issuer.Status.Conditions = []certmanagerv1.IssuerCondition{{Type: certmanagerv1.IssuerConditionReady, Status: cmmeta.ConditionFalse}}
	issuer.SetGroupVersionKind(certmanagerv1.SchemeGroupVersion().WithKind("Issuer"))
	cluster := &certmanagerv1.ClusterIssuer{ObjectMeta: meta("ca", nil), Spec: issuer.Spec, Status: issuer.Status}
	cluster.Namespace, cluster.UID = "", "uid-cluster"
	cluster.SetGroupVersionKind(certmanagerv1.SchemeGroupVersion().WithKind("ClusterIssuer"))
	csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: "cert-manager.io/ca"}}
	csr.SetGroupVersionKind(certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"))
	ingress := &networkingv1.Ingress{ObjectMeta: meta("web", nil), Spec: networkingv1.IngressSpec{TLS: []networkingv1.IngressTLS{{SecretName: "web-tls"}}}}
	ingress.SetGroupVersionKind(networkingv1.SchemeGroupVersion.WithKind("Ingress"))
	event := &corev1.Event{ObjectMeta: meta("web.1", nil), InvolvedObject: corev1.ObjectReference{Kind: "Certificate", Namespace: "shop", Name: "web"}}
	event.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Event"))
	return map[string]client.Object{
		"certificates": crt, "certificaterequests": request, "orders": order, "challenges": challenge, "issuers": issuer, "clusterissuers": cluster,
		"certificatesigningrequests": csr, "ingresses": ingress, "events": event,
	}
}

// serve is an API server that has these objects, one of each resource, and refuses writes with strange text.
func serve(t *testing.T, objects map[string]client.Object) *rest.Config {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
		var answer any = metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "no" + strange,
		}
		code := http.StatusForbidden
		for resource, o := range objects {
			at := slices.Index(parts, resource)
			if at < 0 || r.Method != http.MethodGet {
				continue
			}
			if code, answer = http.StatusOK, o; at == len(parts)-1 {
				kind := o.GetObjectKind().GroupVersionKind()
				answer = map[string]any{
					"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind + "List", "metadata": map[string]any{"resourceVersion": "1"}, "items": []any{o},
				}
			}
		}
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}
}

// TestStrangeTextReachesNoTerminal: what tenants write into their objects is printed so that no terminal obeys it, by
// each command, in tables, trees, documents for programs and errors.
func TestStrangeTextReachesNoTerminal(t *testing.T) {
	t.Parallel()
	if _, err := api.Scheme(); err != nil {
		t.Fatal(err)
	}
	for name, kept := range map[string]map[string]bool{
		"links and states stay": names("Type", "Status", "State", "Phase", "Duration", "Processing"),
		"only names stay":       names(),
	} {
		objects := chain()
		for _, o := range objects {
			plant(reflect.ValueOf(o).Elem(), kept, 0)
		}
		shown := map[string]bool{}
		kubeconfig := rig.Kubeconfig(t, serve(t, objects), "shop")
		for _, command := range []string{
			"status", "status web", "status ingress/web", "status csr/agent", "status -o json", "status -o yaml", "status secret/web-tls",
			"list", "list -A", "list -o wide", "list -o csv", "list -o json", "list -o yaml", "list --not-ready",
			"issuers", "issuers -o wide", "issuers -o csv", "issuers -o json",
			"preflight web", "preflight web -o json", "inspect csr web-1", "inspect csr agent", "inspect secret web-tls",
			"approve web-1", "deny web-1", "renew web", "check api", "takeover check --image x", "waits", "version",
		} {
			var out bytes.Buffer
			code := run(t.Context(), plugin.Streams{In: strings.NewReader(""), Out: &out, ErrOut: &out}, append(strings.Fields(command), "--kubeconfig", kubeconfig))
			said := out.String()
			if r := obeyed(said); r != 0 || said == "" {
				t.Errorf("%s: %s (exit status %d) prints %U:\n%q", name, command, code, r, said)
			}
			_, format, _ := strings.Cut(command, "-o ")
			if strings.Contains(said, "\nforged") && (format == "" || format == "wide") && !strings.Contains(said, "error: ") {
				t.Errorf("%s: %s: text of a tenant makes a line of its own:\n%s", name, command, said)
			}
			shown[strings.Fields(command)[0]] = shown[strings.Fields(command)[0]] || strings.Contains(said, `u001b[31m`)
		}
		for _, command := range []string{"status", "list", "issuers", "check"} {
			if !shown[command] {
				t.Errorf("%s: %s prints none of the text, so that this test shows nothing", name, command)
			}
		}
	}
}
