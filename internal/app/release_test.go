package app_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"chancery.dev/api"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/install"
	"chancery.dev/internal/rig"
)

// newRelease names the release whose fixture is to be written (docs/release.md).
var newRelease = flag.String("release", "", "write the fixture of this release, of that name")

// The files of a fixture, in testdata/releases/NAME: the definitions and policies of a release, without descriptions;
// objects with all fields, which no controller looks after; and what controllers of that release have made, in a
// namespace that is called NAMESPACE there.
const (
	keptDefinitions = "definitions.json.gz"
	keptObjects     = "objects.yaml"
	keptLive        = "live.yaml"
)

// liveKinds are the kinds of the objects of keptLive, in the order in which they can be made again.
func liveKinds() []string {
	return []string{"v1/Secret", "cert-manager.io/v1/Issuer", "cert-manager.io/v1/ClusterIssuer", "cert-manager.io/v1/Certificate", "cert-manager.io/v1/CertificateRequest"}
}

// TestReleases: an upgrade from each release that is kept, and back to that release. Nothing is issued again, and no
// object is lost or rewritten. The fields that are new work after the upgrade. On the definitions of the old release,
// the controller says what they lack, and works.
func TestReleases(t *testing.T) {
	if *newRelease != "" {
		writeRelease(t, filepath.Join("testdata/releases", *newRelease))
	}
	releases, err := filepath.Glob("testdata/releases/*")
	if err != nil || len(releases) == 0 {
		t.Fatal(releases, err)
	}
	for _, dir := range releases {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			upgradeAndBack(t, dir)
		})
	}
}

// upgradeAndBack tests one release. Its definitions lack two fields more than they did: this is how the next release
// differs from the last one that is kept, also where that is the present one.
func upgradeAndBack(t *testing.T, dir string) {
	t.Helper()
	w := rig.NewWorldOn(t, rig.BareCluster(t))
	w.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: api.ExternalIssuersNamespace}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kept"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: api.ExternalIssuersNamespace, Name: api.ExternalIssuersName}})
	applyKept(t, w, dir)
	r := &restored{World: w, uids: map[types.UID]types.UID{}}
	r.restore(t, dir, keptObjects)
	r.restore(t, dir, keptLive)
	before := r.requests(t)
	as := rig.As(w.Admin, rig.Controller, "system:serviceaccounts", "system:serviceaccounts:cert-manager")

	if err := install.Install(t.Context(), w.Admin, func(string) {}); err != nil {
		t.Fatal(err)
	}
	later := &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: "later"}, Spec: certmanagerv1.CertificateSpec{
		SecretName: "later", DNSNames: []string{"later.example.com"}, IssuerRef: cmmeta.IssuerReference{Name: "ca"},
		Renewal: &certmanagerv1.CertificateRenewal{Policy: certmanagerv1.RenewalPolicyDisabled},
	}}
	rig.Eventually(t, "the new field is known", func(ctx context.Context) string {
		try := later.DeepCopy()
		try.Namespace = w.Namespace
		if err := w.Client.Create(ctx, try, client.DryRunAll); err != nil {
			return err.Error()
		}
		if try.Spec.Renewal == nil {
			return "it is dropped"
		}
		return ""
	})
	w.Create(t, later)
	stop := w.RunAs(t, w.Config(), as)
	certificateReady(t, w, "later")
	if err := w.Get(t.Context(), "later", later); err != nil || later.Status.RenewalTime != nil {
		t.Errorf("with spec.renewal, the Certificate is to be renewed at %v, %v", later.Status.RenewalTime, err)
	}
	stop()
	r.same(t, "after the upgrade")
	r.accepted(t)
	if now := r.requests(t); now != before+1 {
		t.Errorf("there were %d requests before the upgrade, and now there are %d, one of them new", before, now)
	}

	applyKept(t, w, dir)
	rig.Eventually(t, "the new field is gone", func(ctx context.Context) string {
		if err := w.Get(ctx, "later", later); err != nil || later.Spec.Renewal != nil {
			return fmt.Sprint("it is there: ", err)
		}
		return ""
	})
	for _, object := range r.objects {
		label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"example.com/back":"true"}}}`))
		if err := w.Client.Patch(t.Context(), object.DeepCopy(), label); err != nil {
			t.Errorf("after the way back, %s %s cannot be written: %v", object.GetKind(), object.GetName(), err)
		}
	}
	j := &journal{}
	w.RunLogged(t, w.Config(), as, j.logger())
	j.await(t, "those of another version", "the field Certificate.spec.renewal", "the field Order.status.failureClass")
	w.Create(t, &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: "last"}, Spec: certmanagerv1.CertificateSpec{
		SecretName: "last", DNSNames: []string{"last.example.com"}, IssuerRef: cmmeta.IssuerReference{Name: w.ClusterName("ca"), Kind: "ClusterIssuer"},
	}})
	certificateReady(t, w, "last")
	r.same(t, "after the way back")
	if now := r.requests(t); now != before+2 {
		t.Errorf("there were %d requests before the upgrade, and after the way back there are %d, two of them new", before, now)
	}
}

// applyKept applies the definitions and policies of a release, without two fields, as "chancery install" of that
// release did.
func applyKept(t *testing.T, w *rig.World, dir string) {
	t.Helper()
	for _, object := range readKept(t, dir, keptDefinitions) {
		if versions, _, _ := unstructured.NestedSlice(object.Object, "spec", "versions"); versions != nil {
			for name, path := range map[string][]string{"certificates": {"spec", "properties", "renewal"}, "orders": {"status", "properties", "failureClass"}} {
				if version, is := versions[0].(map[string]any); is && strings.HasPrefix(object.GetName(), name+".") {
					unstructured.RemoveNestedField(version, append([]string{"schema", "openAPIV3Schema", "properties"}, path...)...)
				}
			}
			if err := unstructured.SetNestedSlice(object.Object, versions, "spec", "versions"); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object), client.ForceOwnership, client.FieldOwner("chancery-install")); err != nil {
			t.Fatal(err)
		}
	}
}

// readKept reads a file of a fixture.
func readKept(t *testing.T, dir, name string) (objects []*unstructured.Unstructured) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err == nil && strings.HasSuffix(name, ".gz") {
		var unzip *gzip.Reader
		if unzip, err = gzip.NewReader(bytes.NewReader(text)); err == nil {
			text, err = io.ReadAll(unzip)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	// What fills in the user cannot be evaluated on API servers of 1.37, which are newer than that release.
	mended := strings.NewReplacer("request.userInfo.?groups.orValue([])}", "request.userInfo.?groups.orValue([]).map(g, g)}",
		"value: request.userInfo.extra}", "value: request.userInfo.extra.transformMap(k, v, v.map(e, e))}").Replace(string(text))
	for document := range strings.SplitSeq(mended, "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), object); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		objects = append(objects, object)
	}
	return objects
}

// restored is a world in which the objects of a fixture are.
type restored struct {
	*rig.World

	objects []*unstructured.Unstructured
	uids    map[types.UID]types.UID // those in the fixture, and what they are now
}

// restore makes the objects of a file again, as the release has left them. Objects of keptLive are in the namespace of
// the world.
func (r *restored) restore(t *testing.T, dir, name string) {
	t.Helper()
	for _, object := range readKept(t, dir, name) {
		text, err := object.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if err := object.UnmarshalJSON(bytes.ReplaceAll(text, []byte("NAMESPACE"), []byte(r.Namespace))); err != nil {
			t.Fatal(err)
		}
		uid, status := object.GetUID(), object.Object["status"]
		object.SetUID("")
		owners := object.GetOwnerReferences()
		for i := range owners {
			owners[i].UID = r.uids[owners[i].UID]
		}
		object.SetOwnerReferences(owners)
		rig.Eventually(t, object.GetKind()+" "+object.GetName()+" is stored", func(ctx context.Context) string {
			if err := r.Client.Create(ctx, object); err != nil {
				return err.Error() // a definition or a policy is a moment old
			}
			return ""
		})
		if status != nil {
			rig.Eventually(t, object.GetKind()+" "+object.GetName()+" has its status", func(ctx context.Context) string {
				object.Object["status"] = status
				if err := r.Client.Status().Update(ctx, object); err != nil {
					return err.Error()
				}
				return ""
			})
		}
		r.uids[uid] = object.GetUID()
		object.SetManagedFields(nil)
		object.SetResourceVersion("")
		r.objects = append(r.objects, object)
	}
}

// same fails the test if an object of the fixture is gone, or lacks something that it had or has it otherwise.
func (r *restored) same(t *testing.T, when string) {
	t.Helper()
	for _, object := range r.objects {
		now := object.DeepCopy()
		if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(object), now); err != nil {
			t.Errorf("%s: %v", when, err)
			continue
		}
		for _, field := range rewritten(object.Object, now.Object, "") {
			t.Errorf("%s, %s %s is rewritten: %s", when, object.GetKind(), object.GetName(), field)
		}
	}
}

// accepted fails the test if an object of the fixture could not be created any more, as from a manifest of its user.
// Requests are created without the user who has made them, which nobody else may name.
func (r *restored) accepted(t *testing.T) {
	t.Helper()
	for _, object := range r.objects {
		again := object.DeepCopy()
		again.SetName(again.GetName() + "-again")
		again.SetUID("")
		unstructured.RemoveNestedField(again.Object, "status")
		if again.GetKind() == certmanagerv1.CertificateRequestKind {
			for _, field := range []string{"username", "uid", "groups", "extra"} {
				unstructured.RemoveNestedField(again.Object, "spec", field)
			}
		}
		if err := r.Client.Create(t.Context(), again, client.DryRunAll); err != nil {
			t.Errorf("after the upgrade, a copy of %s %s is refused: %v", object.GetKind(), object.GetName(), err)
		}
	}
}

// rewritten returns the fields of an object that are not there any more, or otherwise. More fields are none.
func rewritten(before, now any, path string) (fields []string) {
	if was, is := before.(map[string]any); is {
		has, _ := now.(map[string]any)
		for name, value := range was {
			fields = append(fields, rewritten(value, has[name], path+"."+name)...)
		}
		return fields
	}
	was, is := before.([]any)
	if has, still := now.([]any); is && still && len(was) == len(has) {
		for i := range was {
			fields = append(fields, rewritten(was[i], has[i], fmt.Sprintf("%s[%d]", path, i))...)
		}
		return fields
	}
	if !reflect.DeepEqual(before, now) {
		return []string{fmt.Sprintf("%s was %v and is %v", path, before, now)}
	}
	return nil
}

// requests counts the requests of the world.
func (r *restored) requests(t *testing.T) int {
	t.Helper()
	list := &certmanagerv1.CertificateRequestList{}
	if err := r.Client.List(t.Context(), list, client.InNamespace(r.Namespace)); err != nil {
		t.Fatal(err)
	}
	return len(list.Items)
}

// writeRelease writes the fixture of the present release.
func writeRelease(t *testing.T, dir string) {
	t.Helper()
	w := rig.NewWorldOn(t, rig.OwnCluster(t))
	stop := w.Run(t, w.Config())
	century := &metav1.Duration{Duration: 100 * 365 * 24 * time.Hour}
	certificate := func(name string, issuer cmmeta.IssuerReference) *certmanagerv1.Certificate {
		return &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certmanagerv1.CertificateSpec{
			SecretName: name, CommonName: name, IsCA: name == "root", DNSNames: []string{name + ".example.com"}, IssuerRef: issuer,
			Duration: century, RenewBefore: &metav1.Duration{Duration: time.Hour}, // a time without a share that comes of the UID
			PrivateKey:     &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm},
			SecretTemplate: &certmanagerv1.CertificateSecretTemplate{Labels: map[string]string{"example.com/team": "web"}},
		}}
	}
	ca := certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "root"}}
	w.Create(t,
		&certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "self"}, Spec: certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}},
		&certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "ca"}, Spec: ca},
		&certmanagerv1.ClusterIssuer{ObjectMeta: metav1.ObjectMeta{Name: w.ClusterName("ca")}, Spec: ca},
		certificate("root", cmmeta.IssuerReference{Name: "self"}), certificate("web", cmmeta.IssuerReference{Name: "ca"}),
		certificate("api", cmmeta.IssuerReference{Name: w.ClusterName("ca"), Kind: "ClusterIssuer"}))
	for _, name := range []string{"root", "web", "api"} {
		certificateReady(t, w, name)
	}
	stop()
	live := [][]byte{}
	for _, kind := range liveKinds() {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(kind[:strings.LastIndex(kind, "/")])
		list.SetKind(kind[strings.LastIndex(kind, "/")+1:] + "List")
		if err := w.Client.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		for _, object := range list.Items {
			if namespace := object.GetNamespace(); namespace != "" && namespace != w.Namespace {
				continue
			}
			for _, field := range []string{"managedFields", "resourceVersion", "creationTimestamp", "generation"} {
				unstructured.RemoveNestedField(object.Object, "metadata", field)
			}
			live = append(live, bytes.ReplaceAll(yamlOf(t, &object), []byte(w.Namespace), []byte("NAMESPACE")))
		}
	}
	full, err := filepath.Glob("../../api/testdata/full/*.yaml")
	if err != nil || len(full) == 0 {
		t.Fatal(full, err)
	}
	objects := [][]byte{}
	for _, file := range full {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
			object := &unstructured.Unstructured{}
			if err := yaml.Unmarshal(document, object); err != nil {
				t.Fatal(err)
			}
			object.SetNamespace("kept")
			objects = append(objects, yamlOf(t, object))
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	separator := []byte("---\n")
	for name, text := range map[string][]byte{
		keptLive: bytes.Join(live, separator), keptObjects: bytes.Join(objects, separator), keptDefinitions: definitionsNow(t),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func yamlOf(t *testing.T, object *unstructured.Unstructured) []byte {
	t.Helper()
	text, err := yaml.Marshal(object.Object)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// definitionsNow returns the definitions and policies of the present release, a document each, compressed.
func definitionsNow(t *testing.T) []byte {
	t.Helper()
	crds, err := api.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	policies, err := api.Policies()
	if err != nil {
		t.Fatal(err)
	}
	documents := [][]byte{}
	for _, crd := range crds {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
		if err != nil {
			t.Fatal(err)
		}
		object["apiVersion"], object["kind"] = apiextensionsv1.SchemeGroupVersion.String(), "CustomResourceDefinition"
		delete(object, "status")
		policies = slices.Insert(policies, 0, &unstructured.Unstructured{Object: object})
	}
	for _, object := range policies {
		withoutDescriptions(object.Object)
		text, err := json.Marshal(object.Object)
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, text)
	}
	var zipped bytes.Buffer
	zip, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	if err == nil {
		_, err = zip.Write(bytes.Join(documents, []byte("\n---\n")))
	}
	if err == nil {
		err = zip.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return zipped.Bytes()
}

// withoutDescriptions removes the descriptions of fields. A field of that name stays.
func withoutDescriptions(value any) {
	switch value := value.(type) {
	case map[string]any:
		if _, is := value["description"].(string); is {
			delete(value, "description")
		}
		for _, v := range value {
			withoutDescriptions(v)
		}
	case []any:
		for _, v := range value {
			withoutDescriptions(v)
		}
	}
}
