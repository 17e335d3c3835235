package app_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"os"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/app"
	"chancery.dev/internal/clientside/inventory"
	"chancery.dev/internal/controller/trustbundles"
	"chancery.dev/internal/kube/podapi"
	"chancery.dev/internal/machine/podrequest"
	"chancery.dev/internal/machine/trustbundle"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/slow"
)

// TestPodsInBeta: where the API server has the kinds for Pods as v1beta1 alone, as Kubernetes 1.36 has them, requests
// are signed, and roots are written. Requests with a key alone, as kubelets of 1.35 make them, are signed there, and
// also where v1 is served, too, as in an upgrade.
func TestPodsInBeta(t *testing.T) {
	slow.Test(t, slow.Versions)
	t.Parallel()
	const flag = "--kube-apiserver-arg="
	switchedOn := betaFlags(t, flag)
	for name, c := range map[string]struct {
		version string
		flags   []string
	}{
		"Kubernetes 1.36": {podapi.V1Beta, append([]string{flag + "--emulated-version=1.36"}, switchedOn...)},
		"an upgrade":      {podapi.V1, switchedOn[:1]},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			world := rig.NewWorldOn(t, rig.OwnCluster(t, c.flags...))
			direct := world.Client
			world.Client = in(c.version, direct)
			if err := direct.List(t.Context(), podapi.RequestList(podapi.V1)); (err == nil) != (c.version == podapi.V1) {
				t.Fatalf("v1: %v", err)
			}
			world.Allow(t, "bundles", rig.ToController(), bundleRights()...)
			w := newPodWorldRun(t, world, func(w *rig.World, cfg app.Config) {
				cfg.TrustBundles = trustbundles.ClusterIssuers
				w.Run(t, cfg)
			})
			w.kubelet = in(c.version, w.kubelet)
			signerName := "issuers.cert-manager.io/" + w.Namespace + ".pods"
			w.annotate(t, "pods", certmanagerv1.PodCertificatesForAnnotation, "all")

			pcr, key := w.PodRequest(t, "web-0", "web", signerName, x509.CertificateRequest{})
			if err := w.kubelet.Create(t.Context(), pcr); err != nil {
				t.Fatal(err)
			}
			w.issued(t, pcr, key)
			beta, key := keyAlone(t, w, "web-1", signerName)
			if err := w.kubelet.Create(t.Context(), beta); err != nil {
				t.Fatal(err)
			}
			pcr.Name = beta.Name
			w.issued(t, pcr, key)
			beta, _ = keyAlone(t, w, "web-2", "cert-manager.io/"+w.ClusterName("pods"))
			if err := w.kubelet.Create(t.Context(), beta); err != nil {
				t.Fatal(err)
			}
			w.told(t, "web-2", podrequest.ReasonForbidden)

			w.seesRequests(t, direct, "web-0", "web-1", "web-2")
			w.personIsRefused(t, signerName)
			w.hasBundle(t)
		})
	}
}

// betaFlags are the two flags with which docs/pods.md switches the beta of an API server on, each after a prefix.
func betaFlags(t *testing.T, prefix string) (flags []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/pods.md")
	if err != nil {
		t.Fatal(err)
	}
	_, row, _ := strings.Cut(string(page), "\n| API server |")
	row, _, _ = strings.Cut(row, "\n")
	for i, flag := range strings.Split(row, "`") {
		if i%2 == 1 {
			flags = append(flags, prefix+flag)
		}
	}
	if len(flags) != 2 {
		t.Fatalf("the page has the flags %q", flags)
	}
	return flags
}

// in is a client that reads and writes the kinds for Pods in a version.
func in(version string, c client.Client) client.Client {
	as := podapi.New(c)
	as.Take(podapi.RequestKind(), version)
	as.Take(podapi.BundleKind(), version)
	return as
}

// keyAlone is the request of a kubelet of Kubernetes 1.35: a key, and the proof that the kubelet has it.
func keyAlone(t *testing.T, w *podWorld, pod, signerName string) (*certificatesv1beta1.PodCertificateRequest, crypto.Signer) {
	t.Helper()
	v1, key := w.PodRequest(t, pod, "web", signerName, x509.CertificateRequest{})
	v1.Spec.StubPKCS10Request = nil
	beta := podapi.In(podapi.V1Beta, v1).(*certificatesv1beta1.PodCertificateRequest)
	digest := sha256.Sum256([]byte(beta.Spec.PodUID))
	var inKey, inProof error
	beta.Spec.PKIXPublicKey, inKey = x509.MarshalPKIXPublicKey(key.Public())                               //nolint:staticcheck // kubelets of 1.35 send it
	beta.Spec.ProofOfPossession, inProof = ecdsa.SignASN1(rand.Reader, key.(*ecdsa.PrivateKey), digest[:]) //nolint:staticcheck // kubelets of 1.35 send it
	if err := errors.Join(inKey, inProof); err != nil {
		t.Fatal(err)
	}
	return beta, key
}

// seesRequests awaits that a person sees the requests, with what the API server has.
func (w *podWorld) seesRequests(t *testing.T, person client.Client, names ...string) {
	t.Helper()
	rig.Eventually(t, "the requests are listed", func(ctx context.Context) string {
		i, err := inventory.Read(ctx, person, inventory.Scope{Namespace: w.Namespace, PodRequests: true})
		if err != nil {
			return err.Error()
		}
		found := ""
		for _, o := range i.Objects() {
			if pcr, is := o.(*certificatesv1.PodCertificateRequest); is {
				found += " " + pcr.Name
			}
		}
		for _, name := range names {
			if !strings.Contains(found+" ", " "+name+" ") {
				return "found" + found
			}
		}
		return ""
	})
	if _, err := inventory.Pods(t.Context(), person, w.Namespace, labels.Everything()); err != nil {
		t.Error(err)
	}
	if _, err := inventory.PodVolumes(t.Context(), person, w.Namespace, "web-0", nil); err != nil {
		t.Errorf("the requests for one Pod: %v", err)
	}
}

// personIsRefused fails the test if somebody else than a kubelet can make a request as v1beta1.
func (w *podWorld) personIsRefused(t *testing.T, signerName string) {
	t.Helper()
	person, err := client.New(rig.As(w.Admin, "person", "people-"+w.Namespace), client.Options{Scheme: w.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	forged, _ := keyAlone(t, w, "forged", signerName)
	if err := person.Create(t.Context(), forged); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "cannot make PodCertificateRequests") {
		t.Errorf("a person makes a request: %v", err)
	}
}

// hasBundle awaits the roots of the ClusterIssuer pods, once it asks for a bundle, and that they go.
func (w *podWorld) hasBundle(t *testing.T) {
	t.Helper()
	issuer := &certmanagerv1.ClusterIssuer{ObjectMeta: metav1.ObjectMeta{Name: w.ClusterName("pods")}}
	b := &bundleWorld{World: w.World}
	changed(t, b, issuer, func(i *certmanagerv1.ClusterIssuer) { i.Annotations[certmanagerv1.TrustBundleAnnotation] = "true" })
	rig.Eventually(t, "there is a bundle", func(ctx context.Context) string {
		bundle := &certificatesv1.ClusterTrustBundle{}
		if err := w.Client.Get(ctx, client.ObjectKey{Name: trustbundle.Names(issuer)[0]}, bundle); err != nil {
			return err.Error()
		}
		if !strings.Contains(bundle.Spec.TrustBundle, "BEGIN CERTIFICATE") || bundle.Labels[certmanagerv1.TrustBundleLabel] != "true" {
			return "it is " + bundle.Spec.TrustBundle
		}
		return ""
	})
	changed(t, b, issuer, func(i *certmanagerv1.ClusterIssuer) { delete(i.Annotations, certmanagerv1.TrustBundleAnnotation) })
	b.awaits(t, issuer, "")
}
