package demo

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cli/terminal"
	"chancery.dev/internal/clientside/explain"
	"chancery.dev/internal/machine/podrequest"
)

// story is a board whose clock the test steps, with one Certificate in it.
type story struct {
	*board
	clock time.Time
}

func newStory() *story {
	s := &story{clock: time.Unix(1_000_000_000, 0)}
	web := target{kind: kindCertificate, NamespacedName: types.NamespacedName{Namespace: "demo", Name: "web"}}
	s.board = newBoard([]target{web}, func() time.Time { return s.clock })
	s.start()
	return s
}

func meta(name string, owner string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: "demo", Name: name, UID: types.UID(name)}
	if owner != "" {
		m.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(owner)}}
	}
	return m
}

func certificate(ready cmmeta.ConditionStatus, issuing cmmeta.ConditionStatus) *certmanagerv1.Certificate {
	c := &certmanagerv1.Certificate{ObjectMeta: meta("web", "")}
	c.Spec.IssuerRef = cmmeta.IssuerReference{Kind: cmmeta.ClusterIssuerKind, Name: "acme"}
	c.Status.Conditions = []certmanagerv1.CertificateCondition{
		{Type: certmanagerv1.CertificateConditionReady, Status: ready, Reason: "DoesNotExist", Message: "no Secret"},
		{Type: certmanagerv1.CertificateConditionIssuing, Status: issuing, Reason: "Failed", Message: "the request\nfailed"},
	}
	return c
}

func challenge(status acmev1.ChallengeStatus) *acmev1.Challenge {
	return &acmev1.Challenge{
		ObjectMeta: meta("challenge", "order"),
		Spec:       acmev1.ChallengeSpec{DNSName: "example.test", Wildcard: true, Type: acmev1.ChallengeTypeDNS01},
		Status:     status,
	}
}

// An issuance from its first sight to its failure, as lines, as a picture, and as reasons.
func TestBoardTellsTheStory(t *testing.T) {
	s := newStory()
	var out bytes.Buffer
	plain := newDisplay(Options{Out: &out}, s.board)
	s.seen(certificate(cmmeta.ConditionFalse, cmmeta.ConditionTrue))
	acme := cmmeta.IssuerReference{Kind: cmmeta.ClusterIssuerKind, Name: "acme"}
	s.seen(&certmanagerv1.CertificateRequest{ObjectMeta: meta("web-1", "web"), Spec: certmanagerv1.CertificateRequestSpec{IssuerRef: acme}})
	s.seen(&acmev1.Order{ObjectMeta: meta("order", "web-1"), Status: acmev1.OrderStatus{State: acmev1.Pending}})
	s.clock = s.clock.Add(time.Second)
	s.seen(challenge(acmev1.ChallengeStatus{}))
	s.seen(challenge(acmev1.ChallengeStatus{State: acmev1.Pending, Processing: true, Presented: true, Reason: "waiting for\nns1"}))
	s.seen(challenge(acmev1.ChallengeStatus{State: acmev1.Pending, Processing: true, Presented: true, Reason: "waiting for\nns1"}))
	if plain.show() {
		t.Error("all is settled while a Certificate is being issued")
	}
	want := []string{
		"0.0 s Certificate demo/web issuing: the request failed",
		"0.0 s CertificateRequest demo/web-1 new",
		"0.0 s Order demo/order pending",
		"1.0 s Challenge *.example.test by DNS-01 new, queued",
		"1.0 s Challenge *.example.test by DNS-01 pending, processing, presented: waiting for ns1",
	}
	if got := squeezed(out.String()); !slices.Equal(got, want) {
		t.Errorf("lines:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	picture := newDisplay(Options{}, s.board).picture([]standing{s.standing(s.targets[0])})
	want = []string{
		"⠋ Certificate demo/web 1.0 s issuing: the request failed",
		"CertificateRequest demo/web-1 new",
		"Order demo/order pending",
		"Challenge *.example.test by DNS-01 pending, processing, presented: waiting for ns1",
		"0 of 1 issued",
	}
	if got := squeezed(strings.Join(picture, "\n")); !slices.Equal(got, want) {
		t.Errorf("picture:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	over := certificate(cmmeta.ConditionFalse, cmmeta.ConditionFalse)
	over.Status.LastFailureTime = &metav1.Time{Time: s.clock}
	s.seen(challenge(acmev1.ChallengeStatus{State: acmev1.Invalid, Reason: "no such record"}))
	s.seen(over)
	s.clock = s.clock.Add(time.Hour)
	if got := s.standing(s.targets[0]); got.outcome != explain.Failed || got.took != time.Second || !plain.show() {
		t.Errorf("after the failure: %+v", got)
	}
	want = []string{
		"failed: ClusterIssuer acme does not exist",
		"what to do: Create the issuer, or correct spec.issuerRef of the Certificate (name, kind, group)",
		"next try: as soon as it exists",
		"  ClusterIssuer acme: does not exist",
		"  CertificateRequest demo/web-1: new",
		"    Order demo/order: pending",
		"      Challenge *.example.test by DNS-01: invalid: no such record",
	}
	if got := s.reasons(s.targets[0]); !slices.Equal(got, want) {
		t.Errorf("reasons:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := s.reasons(target{kind: kindCertificate, NamespacedName: types.NamespacedName{Name: "none"}}); !slices.Equal(got, []string{"Certificate none does not exist"}) {
		t.Errorf("reasons of what is not there: %q", got)
	}
	issuer := &certmanagerv1.ClusterIssuer{ObjectMeta: metav1.ObjectMeta{Name: "acme", UID: "acme"}}
	issuer.Status.Conditions = []certmanagerv1.IssuerCondition{{Type: certmanagerv1.IssuerConditionReady, Status: cmmeta.ConditionTrue}}
	s.seen(issuer)
	failed := acmev1.OrderStatus{State: acmev1.Invalid, Reason: "no such record", FailureClass: "Validation"}
	s.seen(&acmev1.Order{ObjectMeta: meta("order", "web-1"), Status: failed})
	s.seen(challenge(acmev1.ChallengeStatus{State: acmev1.Invalid, Reason: "no such record", FailureClass: "Validation"}))
	if got := s.reasons(s.targets[0]); !strings.Contains(got[0], "no such record") {
		t.Errorf("reasons:\n%s\nthe first is not the cause", strings.Join(got, "\n"))
	}
	s.gone(challenge(acmev1.ChallengeStatus{}))
	report, _ := s.report(s.cluster(), s.targets[0])
	if got := len(below(report.Children, "")); got != 2 {
		t.Errorf("%d objects below the Certificate after the Challenge is gone, want 2", got)
	}
}

// squeezed returns the lines that hold something, with single spaces.
func squeezed(text string) (lines []string) {
	for line := range strings.Lines(text) {
		if line = terminal.Line(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// A Certificate that changed after it became ready is not ready.
func TestReadyOfAnEarlierGenerationDoesNotCount(t *testing.T) {
	c := certificate(cmmeta.ConditionTrue, cmmeta.ConditionTrue)
	if got := explain.Describe(c); got.Outcome != explain.Issued {
		t.Errorf("ready: %+v", got)
	}
	c.Generation = 1
	if got := explain.Describe(c); got.Outcome != explain.Waiting {
		t.Errorf("ready for the generation before: %+v", got)
	}
}

func TestSigningRequestOutcomes(t *testing.T) {
	condition := func(kind certificatesv1.RequestConditionType) certificatesv1.CertificateSigningRequestCondition {
		return certificatesv1.CertificateSigningRequestCondition{Type: kind, Status: corev1.ConditionTrue}
	}
	csr := &certificatesv1.CertificateSigningRequest{}
	for _, step := range []struct {
		add  certificatesv1.RequestConditionType
		pem  string
		want explain.Outcome
	}{
		{certificatesv1.CertificateApproved, "", explain.Waiting},
		{certificatesv1.CertificateApproved, "certificate", explain.Issued},
		{certificatesv1.CertificateFailed, "", explain.Failed},
	} {
		csr.Status.Conditions = append(csr.Status.Conditions, condition(step.add))
		csr.Status.Certificate = []byte(step.pem)
		if got := explain.Describe(csr); got.Outcome != step.want {
			t.Errorf("%s %q: %+v, want %d", step.add, step.pem, got, step.want)
		}
	}
}

// A terminal gets no more lines than it has, and none that it would wrap.
func TestDrawingFitsTheTerminal(t *testing.T) {
	s := newStory()
	s.seen(certificate(cmmeta.ConditionFalse, cmmeta.ConditionTrue))
	var out bytes.Buffer
	d := newDisplay(Options{Out: &out, Size: func() (int, int) { return 20, 3 }}, s.board)
	d.show()
	first := out.String()
	d.show()
	second := strings.TrimPrefix(out.String(), first)
	if n := strings.Count(first, "\n"); n != 2 || !strings.HasPrefix(second, "\x1b[2A") {
		t.Errorf("%d lines on 3 rows, and then %q", n, second)
	}
	for line := range strings.Lines(strings.NewReplacer("\r", "", "\x1b[K", "", "\x1b[J", "").Replace(first)) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 19 {
			t.Errorf("%d characters in %q", n, line)
		}
	}
}

func TestManifestErrorsNameTheFile(t *testing.T) {
	good := "apiVersion: v1\nkind: Certificate\nmetadata: {name: a}\n"
	for text, want := range map[string]string{
		good + "spec: ${OTHER}\n":                "${OTHER}",
		good + "---\nkind: Certificate\n":        "no kind or no metadata.name",
		good + "spec: [\n":                       "yaml",
		"# nothing\n---\n# at all\n":             "nothing to issue",
		strings.Replace(good, "Cert", "Sert", 1): "nothing to issue",
	} {
		_, err := read(fstest.MapFS{"a.yaml": {Data: []byte(text)}}, map[string]string{"ONE": "1"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
		if err != nil && !strings.Contains(want, "nothing") && !strings.HasPrefix(err.Error(), "a.yaml: ") {
			t.Errorf("the error does not name the file: %v", err)
		}
	}
}

func TestApplyErrorEndsTheWait(t *testing.T) {
	s := newStory()
	applied := make(chan error, 1)
	refused := errors.New("refused")
	applied <- refused
	d := newDisplay(Options{Out: &bytes.Buffer{}}, s.board)
	if err := d.until(t.Context(), time.Hour, applied); !errors.Is(err, refused) {
		t.Errorf("error %v, want %v", err, refused)
	}
}

// TestPodOnTheBoard: a Pod is done when it runs, and has failed when a request for it is denied; while it waits, its
// events say why, and are no news of their own.
func TestPodOnTheBoard(t *testing.T) {
	s := newStory()
	s.targets = []target{{kind: kindPod, NamespacedName: types.NamespacedName{Namespace: "demo", Name: "web"}}}
	pod := &corev1.Pod{ObjectMeta: meta("web", "")}
	pod.Spec.Volumes = []corev1.Volume{{Name: "identity", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{PodCertificate: &corev1.PodCertificateProjection{SignerName: "cert-manager.io/pods"}}},
	}}}}
	issuer := &certmanagerv1.ClusterIssuer{ObjectMeta: metav1.ObjectMeta{Name: "pods", UID: "pods"}}
	issuer.Status.Conditions = []certmanagerv1.IssuerCondition{{Type: certmanagerv1.IssuerConditionReady, Status: cmmeta.ConditionTrue}}
	pcr := &certificatesv1.PodCertificateRequest{ObjectMeta: meta("req", "web"), Spec: certificatesv1.PodCertificateRequestSpec{PodUID: pod.UID, SignerName: "cert-manager.io/pods"}}
	s.seen(issuer)
	s.seen(pod)
	s.seen(pcr)
	s.takeNews()
	about := corev1.ObjectReference{UID: pod.UID, FieldPath: podrequest.FieldPath("cert-manager.io/pods")}
	s.seen(&corev1.Event{ObjectMeta: meta("event", ""), InvolvedObject: about, Type: corev1.EventTypeWarning, Reason: "SignerForbidden", Message: "no right"})
	if got := s.standing(s.targets[0]); got.outcome != explain.Waiting || len(s.takeNews()) > 0 || s.reasons(s.targets[0])[0] != "waiting: no right" {
		t.Errorf("a Pod that waits: %+v, %q", got, s.reasons(s.targets[0]))
	}
	denied := pcr.DeepCopy()
	denied.Status.Conditions = []metav1.Condition{{Type: certificatesv1.PodCertificateRequestConditionTypeDenied, Reason: "UnsupportedKeyType", Message: "unknown"}}
	s.seen(denied)
	if got := s.standing(s.targets[0]); got.outcome != explain.Failed || s.reasons(s.targets[0])[0] != "denied: UnsupportedKeyType: unknown" {
		t.Errorf("a Pod whose request is denied: %+v, %q", got, s.reasons(s.targets[0]))
	}
	s.seen(pcr)
	running := pod.DeepCopy()
	running.Status.Phase = corev1.PodRunning
	s.seen(running)
	if got := s.standing(s.targets[0]); got.outcome != explain.Issued || got.words != "running" {
		t.Errorf("a Pod that runs: %+v", got)
	}
}
