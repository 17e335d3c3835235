package bundle

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/clientside/inventory"
	"chancery.dev/internal/machine/podrequest"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
)

// TestPods: the requests for certificates of Pods, the bundles of roots, and the events about such Pods are gathered,
// those of our signers alone.
func TestPods(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	root := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	request := func(name, signerName string) *certificatesv1.PodCertificateRequest {
		return &certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: signerName, PodName: name, PodUID: types.UID("uid-" + name), ServiceAccountName: "web", ServiceAccountUID: "u", NodeName: "n", NodeUID: "n", StubPKCS10Request: stub,
		}}
	}
	event := func(name, pod, reason, message string) *corev1.Event {
		about := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: w.Namespace, Name: pod, UID: types.UID("uid-" + pod)}
		return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: name}, InvolvedObject: about, Reason: reason, Message: message, Type: corev1.EventTypeWarning}
	}
	bundle := func(signerName, last string) *certificatesv1.ClusterTrustBundle {
		return &certificatesv1.ClusterTrustBundle{
			ObjectMeta: metav1.ObjectMeta{Name: strings.Replace(signerName, "/", ":", 1) + last},
			Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: signerName, TrustBundle: root},
		}
	}
	ours, theirs := "clusterissuers.cert-manager.io/"+w.ClusterName("pods"), "example.com/"+w.ClusterName("pods")
	w.Create(t, request("waits", ours), request("foreign", theirs), bundle(ours, ":chancery"), bundle(theirs, ":theirs"),
		event("mount", "waits", "FailedMount", ""), event("gone", "gone", podrequest.ReasonForbidden, ""), event("other", "foreign", "FailedMount", ""),
		event("denial", "waits", "Failed", "PodCertificateRequest r failed"), event("other-probe", "waits", "Unhealthy", ""), event("other-image", "waits", "Failed", "no image"))
	_, files := gather(t, w)
	for name, want := range map[string]struct{ has, not string }{
		"objects/podcertificaterequests.yaml": {"podName: waits", "foreign"},
		"objects/clustertrustbundles.yaml":    {"signerName: " + ours, theirs},
		"events.yaml":                         {"name: mount", "name: other"},
	} {
		if !strings.Contains(files[name], want.has) || strings.Contains(files[name], want.not) {
			t.Errorf("%s has to have %q, and not %q:\n%s", name, want.has, want.not, files[name])
		}
	}
	if !strings.Contains(files["events.yaml"], "name: gone") || !strings.Contains(files["events.yaml"], "name: denial") || !strings.Contains(files["objects/clustertrustbundles.yaml"], "BEGIN CERTIFICATE") {
		t.Errorf("the event about a Pod whose request is gone, or the root, is not there:\n%s", files["events.yaml"])
	}
}

// endless has objects without end, in pages.
type endless struct {
	client.Client

	pages int
	large string // in each object
}

func (e *endless) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	o := &client.ListOptions{}
	o.ApplyOptions(options)
	e.pages++
	items := make([]unstructured.Unstructured, o.Limit)
	for i := range items {
		items[i].Object = map[string]any{"spec": map[string]any{"signerName": [...]string{"cert-manager.io/pods", "example.com/pods"}[i%2], "large": e.large}}
	}
	list.(*unstructured.UnstructuredList).Items = items
	list.SetContinue(fmt.Sprint(e.pages))
	return nil
}

// TestRequestsWithoutEnd: requests are read in pages, up to a number and a size, and the archive says that there are
// more.
func TestRequestsWithoutEnd(t *testing.T) {
	t.Parallel()
	at := slices.IndexFunc(sources(), func(s source) bool { return s.file == "podcertificaterequests" })
	const size = 256 << 10
	for large, want := range map[string]int{"": mostOfPods, strings.Repeat("x", size): mostBytes/size - 1} {
		all := &endless{large: large}
		g := &gatherer{archive: &archive{}, client: all}
		taken, can := g.list(t.Context(), sources()[at], "")
		if !can || len(taken) != want || all.pages != 2*want/inventory.PageSize+1 || len(g.lacks) != 1 || !strings.Contains(g.lacks[0], "more than 10000, or than 64 MiB") {
			t.Errorf("%t: %d objects of %d pages, %q", can, len(taken), all.pages, g.lacks)
		}
	}
}

// older has a kind as v1beta1 alone, or not at all.
type older struct {
	client.Client

	served string
}

func (o older) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if kind := list.GetObjectKind().GroupVersionKind(); kind.Version != o.served {
		return &meta.NoKindMatchError{GroupKind: kind.GroupKind()}
	}
	list.(*unstructured.UnstructuredList).Items = []unstructured.Unstructured{{Object: map[string]any{"spec": map[string]any{"signerName": "cert-manager.io/pods"}}}}
	return nil
}

// TestOlderVersion: where the API server has the kinds for Pods as v1beta1 alone, they are gathered as that. Kinds that
// have no older version are not looked for, and it is said of each once that it is not there.
func TestOlderVersion(t *testing.T) {
	t.Parallel()
	for _, s := range sources() {
		g := &gatherer{archive: &archive{}, client: older{served: "v1beta1"}}
		taken, can := g.list(t.Context(), s, "")
		if forPods := s.file == "podcertificaterequests" || s.file == "clustertrustbundles"; can != forPods || can != (len(taken) == 1) || can != (len(g.lacks) == 0) {
			t.Errorf("%s: %t, %d objects, %q", s.file, can, len(taken), g.lacks)
		}
		g = &gatherer{archive: &archive{}, client: older{}}
		if _, can := g.list(t.Context(), s, ""); can || len(g.lacks) != 1 || !strings.Contains(g.lacks[0], "does not have this kind") {
			t.Errorf("%s is nowhere: %t, %q", s.file, can, g.lacks)
		}
	}
}
