package certificates_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig"
)

// installation is what a live cert-manager has left behind on an API server.
type installation struct {
	t      *testing.T
	client client.Client
	uids   map[string]string // those it had, and those it has here
}

// restore makes everything in a file again, owners first: with statuses and managed
// fields, but other UIDs.
func restore(t *testing.T, c client.Client, file string) *installation {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	i := &installation{t: t, client: c, uids: map[string]string{}}
	docs := strings.Split(string(text), "\n---\n")
	for _, kind := range []string{"Secret", "Issuer", "ClusterIssuer", "Certificate", "CertificateRequest", "Order", "Challenge"} {
		for _, doc := range docs {
			if strings.Contains(doc, "\nkind: "+kind+"\n") && (kind != "Secret" || !strings.Contains(doc, "ownerReferences")) {
				i.make(doc)
			}
		}
	}
	for _, doc := range docs {
		if strings.Contains(doc, "\nkind: Secret\n") && strings.Contains(doc, "ownerReferences") {
			i.make(doc)
		}
	}
	return i
}

func (i *installation) make(doc string) {
	i.t.Helper()
	for was, is := range i.uids {
		doc = strings.ReplaceAll(doc, was, is)
	}
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
		i.t.Fatal(err)
	}
	was, status, fields := o.GetUID(), o.Object["status"], o.GetManagedFields()
	o.SetUID("")
	o.SetResourceVersion("")
	if o.GetNamespace() != "" {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.GetNamespace()}}
		if err := client.IgnoreAlreadyExists(i.client.Create(i.t.Context(), ns)); err != nil {
			i.t.Fatal(err)
		}
	}
	if err := i.client.Create(i.t.Context(), o); err != nil {
		i.t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
	}
	i.uids[string(was)] = string(o.GetUID())
	// Managed fields are taken over from an update, not from a creation.
	o.SetManagedFields(fields)
	if err := i.client.Update(i.t.Context(), o); err != nil {
		i.t.Fatalf("managed fields of %s %s: %v", o.GetKind(), o.GetName(), err)
	}
	if status == nil {
		return
	}
	o.Object["status"] = status
	if err := i.client.Status().Update(i.t.Context(), o); err != nil {
		i.t.Fatalf("status of %s %s: %v", o.GetKind(), o.GetName(), err)
	}
}

// identity is which object has a name, and at which version it is.
type identity struct{ uid, version string }

// objects returns all Secrets, Certificates, requests and Orders, by kind and name.
func (i *installation) objects() map[string]identity {
	i.t.Helper()
	out := map[string]identity{}
	for kind, list := range map[string]client.ObjectList{
		"Secret": &corev1.SecretList{}, "Certificate": &certmanagerv1.CertificateList{}, "CertificateRequest": &certmanagerv1.CertificateRequestList{}, "Order": &acmev1.OrderList{},
	} {
		for _, ns := range []string{"cert-manager", "takeover"} {
			if err := i.client.List(i.t.Context(), list, client.InNamespace(ns)); err != nil {
				i.t.Fatal(err)
			}
			items, err := metaItems(list)
			if err != nil {
				i.t.Fatal(err)
			}
			for _, o := range items {
				out[fmt.Sprintf("%s %s/%s", kind, ns, o.GetName())] = identity{string(o.GetUID()), o.GetResourceVersion()}
			}
		}
	}
	return out
}

func metaItems(list client.ObjectList) ([]client.Object, error) {
	var out []client.Object
	switch l := list.(type) {
	case *corev1.SecretList:
		for i := range l.Items {
			out = append(out, &l.Items[i])
		}
	case *certmanagerv1.CertificateList:
		for i := range l.Items {
			out = append(out, &l.Items[i])
		}
	case *certmanagerv1.CertificateRequestList:
		for i := range l.Items {
			out = append(out, &l.Items[i])
		}
	case *acmev1.OrderList:
		for i := range l.Items {
			out = append(out, &l.Items[i])
		}
	default:
		return nil, fmt.Errorf("no %T", list)
	}
	return out, nil
}

// TestTakeover restores what a live cert-manager left behind and runs the controllers:
// nothing is reissued, no key is replaced, and what is in order is not written to.
func TestTakeover(t *testing.T) {
	t.Parallel()
	w := rig.NewWorldOn(t, rig.OwnCluster(t))
	i := restore(t, w.Client, "testdata/takeover.yaml")
	before := i.objects()
	keys := i.secretData()

	cfg := w.Config()
	cfg.ClusterResourceNamespace = "cert-manager"
	cfg.Scope.Namespaces, cfg.Scope.ClusterObject = nil, nil
	cfg.Now = func() time.Time { return time.Date(2026, 11, 21, 5, 0, 0, 0, time.UTC) } // soon after the export
	w.Run(t, cfg)
	// Two rounds, one after the other, of something that is to be done: by then everything that was
	// there at the start has been looked at.
	for _, name := range []string{"first", "second"} {
		probe := &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certmanagerv1.CertificateSpec{
			SecretName: name, DNSNames: []string{"probe.example.com"}, IssuerRef: cmmeta.IssuerReference{Name: "ca", Kind: "ClusterIssuer"},
		}}
		w.Create(t, probe)
		awaitReady(t, w, name)
	}

	after, stuck := i.objects(), 0
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if strings.Contains(name, "stuck-acme") {
			// Not in order: it is taken further, with the same key, request and Order.
			if stuck++; after[name].uid != before[name].uid {
				t.Errorf("%s was replaced, or is gone:\n%s", name, i.show(name))
			}
			continue
		}
		if after[name] != before[name] {
			t.Errorf("%s was written to, or is gone:\n%s", name, i.show(name))
		}
	}
	if stuck != 4 {
		t.Errorf("%d objects belong to the issuance under way, want its Certificate, key, request and Order", stuck)
	}
	for name := range after {
		if before[name].uid == "" {
			t.Errorf("%s was made", name)
		}
	}
	now := i.secretData()
	for name, data := range keys {
		if !bytes.Equal(data, now[name]) {
			t.Errorf("%s has another key or certificate", name)
		}
	}
}

// secretData returns key and certificate of every Secret.
func (i *installation) secretData() map[string][]byte {
	i.t.Helper()
	out := map[string][]byte{}
	for _, ns := range []string{"cert-manager", "takeover"} {
		list := &corev1.SecretList{}
		if err := i.client.List(i.t.Context(), list, client.InNamespace(ns)); err != nil {
			i.t.Fatal(err)
		}
		for _, s := range list.Items {
			out[ns+"/"+s.Name] = slices.Concat(s.Data["tls.key"], s.Data["tls.crt"])
		}
	}
	return out
}

// show returns an object in YAML, without private keys.
func (i *installation) show(name string) string {
	kind, key, _ := strings.Cut(name, " ")
	ns, n, _ := strings.Cut(key, "/")
	var o client.Object = &certmanagerv1.Certificate{}
	switch kind {
	case "Secret":
		o = &corev1.Secret{}
	case "CertificateRequest":
		o = &certmanagerv1.CertificateRequest{}
	case "Order":
		o = &acmev1.Order{}
	}
	if err := i.client.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: n}, o); err != nil {
		return err.Error()
	}
	if s, ok := o.(*corev1.Secret); ok {
		s.Data = nil
	}
	text, err := yaml.Marshal(o)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
