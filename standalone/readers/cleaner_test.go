package readers_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller/certificates/cleaner"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/rig"
)

// cleanerAge is how old a request is when the cluster removes it.
const cleanerAge = 15 * time.Minute

// TestCleaner: the cluster's own cleaner removes a request that waits, and the kubelet asks anew. The same Pod gets its
// certificate when what was missing is there.
func TestCleaner(t *testing.T) {
	t.Parallel()
	w, signerName := podsWorld(t, rig.Cluster(t))
	missing := &certmanagerv1.ClusterIssuer{}
	if err := w.Client.Get(t.Context(), client.ObjectKey{Name: w.ClusterName("pods")}, missing); err != nil {
		t.Fatal(err)
	}
	missing.ObjectMeta = metav1.ObjectMeta{Name: w.ClusterName("later"), Annotations: missing.Annotations}
	web := pod(t, w, "web", strings.Replace(signerName, w.ClusterName("pods"), missing.Name, 1))
	k := newNode(t, w, web)
	first := request(t, w, "")
	rig.Eventually(t, "the Pod says what its request waits for", func(ctx context.Context) string {
		events := &corev1.EventList{}
		err := w.Client.List(ctx, events, client.InNamespace(w.Namespace), client.MatchingFields{"involvedObject.uid": string(web.UID), "reason": "IssuerMissing"})
		if err != nil || len(events.Items) == 0 {
			return fmt.Sprint("it does not: ", err)
		}
		return ""
	})
	clean(t, w, first)
	k.clock.Step(cleanerAge + time.Hour) // it waits for a while, in case that its watch is late
	k.TrackPod(t.Context(), web)
	request(t, w, first)
	w.Create(t, missing)
	if pair := k.files(web, tls.Certificate{}); len(pair.Certificate) == 0 {
		t.Error("no certificate")
	}
	k.noTrouble(w)
}

// request awaits a request of a Pod that is not the one before, and returns its name.
func request(t *testing.T, w *rig.World, before string) (name string) {
	t.Helper()
	rig.Eventually(t, "the kubelet asks", func(ctx context.Context) string {
		all := &certificatesv1.PodCertificateRequestList{}
		if err := w.Client.List(ctx, all, client.InNamespace(w.Namespace)); err != nil || len(all.Items) == 0 || all.Items[0].Name == before {
			return fmt.Sprint(len(all.Items), " requests ", err)
		}
		name = all.Items[0].Name
		return ""
	})
	return name
}

// clean runs the cluster's cleaner when the requests of a world are old, until one of them is gone.
func clean(t *testing.T, w *rig.World, name string) {
	t.Helper()
	clients, err := kubernetes.NewForConfig(w.Admin)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	watched := informers.NewSharedInformerFactoryWithOptions(clients, 0, informers.WithNamespace(w.Namespace))
	c := cleaner.NewPCRCleanerController(clients, watched.Certificates().V1().PodCertificateRequests(),
		testingclock.NewFakePassiveClock(time.Now().Add(cleanerAge)), cleanerAge, time.Second)
	watched.Start(ctx.Done())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(ctx, 1)
	}()
	rig.Eventually(t, "the cleaner removes the request "+name, func(ctx context.Context) string {
		if err := w.Get(ctx, name, &certificatesv1.PodCertificateRequest{}); !apierrors.IsNotFound(err) {
			return fmt.Sprint("it is there: ", err)
		}
		return ""
	})
	stop()
	<-ended
	watched.Shutdown()
}
