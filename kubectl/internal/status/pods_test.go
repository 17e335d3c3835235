package status

import (
	"crypto/rand"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/machine/podrequest"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
)

// TestPodCertificate: status starts from a Pod with a podCertificate volume, and says why its certificate does not
// come, and then that it is there.
func TestPodCertificate(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	signerName := "issuers.cert-manager.io/" + w.Namespace + ".pods"
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "web"}, Spec: corev1.PodSpec{
		ServiceAccountName: "web", AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "a", Image: "a"}},
		Volumes: []corev1.Volume{{Name: "identity", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{PodCertificate: &corev1.PodCertificateProjection{SignerName: signerName, KeyType: "ECDSAP256", CredentialBundlePath: "c.pem"}}},
		}}}},
	}}
	issuer := &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "pods"}, Spec: certmanagerv1.IssuerSpec{CA: &certmanagerv1.CAIssuer{SecretName: "root"}}}
	w.Create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, pod, issuer)
	says := func() (state, cause string) {
		t.Helper()
		reports, err := Gather(t.Context(), w.Client, Query{Namespace: w.Namespace, Args: []string{"pod/web"}, Selector: labels.Everything()}, time.Now())
		if err != nil || len(reports) != 1 {
			t.Fatalf("%v %+v", err, reports)
		}
		return reports[0].State, reports[0].Cause
	}
	if _, cause := says(); !strings.Contains(cause, "not ready") {
		t.Errorf("an issuer without a status: %q", cause)
	}
	issuer.Status.Conditions = []certmanagerv1.IssuerCondition{{Type: certmanagerv1.IssuerConditionReady, Status: cmmeta.ConditionTrue}}
	if err := w.Client.Status().Update(t.Context(), issuer); err != nil {
		t.Fatal(err)
	}
	if state, cause := says(); state != "waiting" || cause != "" {
		t.Errorf("nothing is known: %s %q", state, cause)
	}
	about := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: w.Namespace, Name: "web", UID: pod.UID, FieldPath: podrequest.FieldPath(signerName)}
	event := func(name, reason, message string, ago time.Duration) *corev1.Event {
		return &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}, InvolvedObject: about, Type: corev1.EventTypeWarning, Reason: reason, Message: message,
			LastTimestamp: metav1.NewTime(time.Now().Add(-ago)),
		}
	}
	w.Create(t, event("a", "FailedMount", "MountVolume.SetUp failed for volume \"other\": no such ConfigMap", 0), event("b", podrequest.ReasonForbidden, "no right", time.Minute), event("c", podrequest.ReasonIssuerMissing, "missing", time.Hour))
	if _, cause := says(); cause != "no right" {
		t.Errorf("the newest warning of ours: %q", cause)
	}
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		t.Fatal(err)
	}
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	pcr := &certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "r"}, Spec: certificatesv1.PodCertificateRequestSpec{
		SignerName: signerName, PodName: "web", PodUID: pod.UID, ServiceAccountName: "web", ServiceAccountUID: "u", NodeName: "n", NodeUID: "n", StubPKCS10Request: stub,
	}}
	w.Create(t, pcr)
	if _, cause := says(); cause != "" {
		t.Errorf("a request that was made after all warnings: %q", cause)
	}
	w.Create(t, event("d", podrequest.ReasonForbidden, "still no right", -time.Minute))
	if _, cause := says(); cause != "still no right" {
		t.Errorf("a request that waits: %q", cause)
	}
	pcr.Status.Conditions = []metav1.Condition{{
		Type: certificatesv1.PodCertificateRequestConditionTypeDenied, Status: metav1.ConditionTrue, Reason: podrequest.ReasonStubNames, Message: "names", LastTransitionTime: metav1.Now(),
	}}
	if err := w.Client.Status().Update(t.Context(), pcr); err != nil {
		t.Fatal(err)
	}
	if state, cause := says(); state != "denied" || cause != podrequest.ReasonStubNames+": names" {
		t.Errorf("a request that is denied: %s %q", state, cause)
	}
}
