package takeover

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cli"
	"chancery.dev/internal/rig/slow"
)

// moment says when a command is killed: after that many writes, or at the record of a step.
type moment int

const (
	beforeRecord moment = -1 // a step is done, and not recorded
	afterRecord  moment = -2 // a step is recorded, and the next one is not begun
)

// atRecords kills the n-th run of a command before or after it records a step.
func atRecords(n int) moment { return []moment{beforeRecord, afterRecord}[n%2] }

// amid kills the n-th run of a command in the middle of a step, each run later than the one before.
func amid(n int) moment { return moment(3 + 9*n) }

var errKilled = errors.New("killed")

// lethal is a connection that ends for good at a moment.
type lethal struct {
	next   http.RoundTripper
	when   moment
	writes *atomic.Int64
	dead   *atomic.Bool
}

// RoundTrip implements http.RoundTripper.
func (l lethal) RoundTrip(r *http.Request) (*http.Response, error) {
	if l.dead.Load() {
		return nil, errKilled
	}
	if r.Method == http.MethodGet || strings.Contains(r.URL.RawQuery, "dryRun") {
		return l.next.RoundTrip(r)
	}
	isRecord := strings.HasSuffix(r.URL.Path, "/secrets/"+recordName)
	if l.when > 0 && l.writes.Add(1) > int64(l.when) || l.when == beforeRecord && isRecord {
		l.dead.Store(true)
		return nil, errKilled
	}
	answer, err := l.next.RoundTrip(r)
	if l.when == afterRecord && isRecord {
		l.dead.Store(true)
	}
	return answer, err
}

// killed runs a command again and again, and kills each run, until the command is done.
func (o *original) killed(when func(int) moment, args ...string) (deaths int) {
	o.t.Helper()
	for ; deaths < 100; deaths++ {
		dead, writes := &atomic.Bool{}, &atomic.Int64{}
		out, code := o.runBy(func(rc *rest.Config) *rest.Config {
			rc = unlimited(rc)
			rc.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return lethal{next: next, when: when(deaths), writes: writes, dead: dead}
			})
			return rc
		}, args...)
		if code == 0 {
			return deaths
		}
		if !dead.Load() {
			o.t.Fatalf("%v ended with %d by itself:\n%s", args, code, out)
		}
		if !strings.Contains(out, errKilled.Error()) {
			o.t.Fatalf("%v does not say why it ended:\n%s", args, out)
		}
	}
	o.t.Fatalf("%v did not come to an end in %d tries", args, deaths)
	return deaths
}

// TestKilled: apply and rollback go on where they were, wherever they are killed. Nothing is issued again, writes are
// admitted all the time, and at the end everything is as it was.
func TestKilled(t *testing.T) {
	slow.Test(t, slow.Takeover)
	t.Parallel()
	o := newOriginal(t)
	f := o.fill(40)
	o.startPods()
	o.leader(t, false)
	settled(o)
	objects, customer, before := o.installedObjects(), f.customer(), o.snapshot()

	for i, c := range []struct {
		when            func(int) moment
		apply, rollback int // the least deaths
	}{{atRecords, 12, 10}, {amid, 7, 4}} {
		applied := o.killed(c.when, "apply", "--image="+ourImage)
		o.leader(t, true)
		f.probe(i)
		before.compare(t, o.snapshot(), "after apply")
		rolled := o.killed(c.when, "rollback")
		o.leader(t, false)
		before.compare(t, o.snapshot(), "after rollback")
		sameObjects(t, objects, o.installedObjects())
		t.Logf("apply was killed %d times, rollback %d times", applied, rolled)
		if applied < c.apply || rolled < c.rollback {
			t.Errorf("apply was killed %d times and rollback %d times: want %d and %d", applied, rolled, c.apply, c.rollback)
		}
	}
	customer.served(t)
	if left, err := (cluster{o.client}).saved(context.WithoutCancel(t.Context())); err != nil || len(left) > 0 {
		t.Errorf("%d saved objects are left, %v", len(left), err)
	}
}

// TestRollbackOfApplyBegun: an apply that was ended early is rolled back, too.
func TestRollbackOfApplyBegun(t *testing.T) {
	t.Parallel()
	o := newOriginal(t)
	o.startPods()
	o.leader(t, false)
	settled(o)
	objects := o.installedObjects()
	dead := &atomic.Bool{}
	_, code := o.runBy(func(rc *rest.Config) *rest.Config {
		rc.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return until{next, "MutatingWebhookConfiguration", dead}
		})
		return unlimited(rc)
	}, "apply", "--image="+ourImage)
	if code != 1 || !dead.Load() {
		t.Fatalf("apply was not ended, but ended with %d", code)
	}
	lost := &corev1.Secret{}
	saved := &corev1.SecretList{}
	if err := o.client.List(t.Context(), saved, client.InNamespace(home), client.HasLabels{savedLabel}); err != nil || len(saved.Items) < 2 {
		t.Fatalf("%d Secrets, %v", len(saved.Items), err)
	}
	saved.Items[1].DeepCopyInto(lost)
	if err := o.client.Delete(t.Context(), lost.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	if out, code := o.run("rollback"); code != 1 || !strings.Contains(out, "restore the others from a backup") {
		t.Fatalf("without a Secret that was saved, rollback ended with %d:\n%s", code, out)
	}
	lost.ResourceVersion, lost.UID = "", ""
	if err := o.client.Create(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	if out, code := o.run("rollback"); code != 0 {
		t.Fatalf("rollback ended with %d:\n%s", code, out)
	}
	sameObjects(t, objects, o.installedObjects())
}

// until is a connection that ends with the first deletion of an object of a kind.
type until struct {
	next http.RoundTripper
	kind string
	dead *atomic.Bool
}

// RoundTrip implements http.RoundTripper.
func (u until) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodDelete && strings.Contains(r.URL.Path, strings.ToLower(u.kind)+"s/") || u.dead.Load() {
		u.dead.Store(true)
		return nil, errKilled
	}
	return u.next.RoundTrip(r)
}

// TestPrograms: what the operator has chosen for the controller stays, and chancery-dns comes beside the controller,
// without a token.
func TestPrograms(t *testing.T) {
	t.Parallel()
	d := &appsv1.Deployment{ObjectMeta: objectMeta(home, controllerName)}
	d.Spec.Template.Spec.Containers = []corev1.Container{
		{Name: "sidecar", Image: "theirs"},
		{
			Name: "cert-manager-controller", Image: "quay.io/jetstack/cert-manager-controller:v1.21.0", Command: []string{"/app"},
			Args: []string{"--cluster-resource-namespace=$(POD_NAMESPACE)", "--feature-gates=ExperimentalCertificateSigningRequestControllers=true"},
			Env: []corev1.EnvVar{
				{Name: "HTTPS_PROXY", Value: "http://proxy"},
				{Name: "POD_NAMESPACE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}},
			},
		},
	}
	in := &installation{controller: d.DeepCopy(), switches: cli.SwitchesOf(false, argsOf(d), nil)}
	runController(d, in, &record{Image: ourImage, DNSImage: "dns"})
	pod := d.Spec.Template.Spec
	c := pod.Containers[1]
	want := "controller --cluster-resource-namespace=$(POD_NAMESPACE) --feature-gates=ExperimentalCertificateSigningRequestControllers=true --csr-needs-feature-gate " +
		"--acme-http01-responder=cert-manager/chancery-responder --acme-http01-solver-image=" + ourImage + " --dns01-provider-programs=*=unix:/run/chancery/dns.sock"
	if got := strings.Join(c.Args, " "); got != want || c.Command != nil || c.Image != ourImage {
		t.Errorf("the controller runs %s of %s with\n%s\nwant\n%s", c.Command, c.Image, got, want)
	}
	if c.ReadinessProbe == nil || c.ReadinessProbe.HTTPGet.Port.IntValue() != 9403 || pod.Containers[0].Image != "theirs" {
		t.Errorf("readiness: %v, the first container: %v", c.ReadinessProbe, pod.Containers[0])
	}
	dns := pod.Containers[2]
	if dns.Image != "dns" || len(dns.VolumeMounts) != 2 || dns.VolumeMounts[1].Name != noToken || dns.Env[0].Value != "http://proxy" || len(pod.Volumes) != 2 {
		t.Errorf("chancery-dns: %+v with the volumes %v", dns, pod.Volumes)
	}
	for _, f := range cli.SwitchesOf(false, argsOf(d), nil).Fates {
		if f.Refused {
			t.Errorf("Chancery does not start: %+v", f)
		}
	}
}

// TestRollbackNamesWhatIsLost: cert-manager's definitions refuse ML-DSA keys, so rollback names the Certificates with
// such keys, and goes back only if it is forced to.
func TestRollbackNamesWhatIsLost(t *testing.T) {
	t.Parallel()
	o := newOriginal(t)
	o.startPods()
	o.leader(t, false)
	settled(o)
	if out, code := o.run("apply", "--image="+ourImage); code != 0 {
		t.Fatalf("apply ended with %d:\n%s", code, out)
	}
	for i := range maxNamed + 2 {
		crt := &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("new-%02d", i)}}
		crt.Spec = certmanagerv1.CertificateSpec{
			SecretName: crt.Name, CommonName: "x", IssuerRef: cmmeta.IssuerReference{Name: "none"},
			PrivateKey: &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.MLDSA65KeyAlgorithm},
		}
		if err := o.client.Create(t.Context(), crt); err != nil {
			t.Fatal(err)
		}
	}
	out, code := o.run("rollback")
	if code != 1 || !strings.Contains(out, "default/new-00, ") || !strings.Contains(out, "default/new-09, 2 others: ") || !strings.Contains(out, "--force") {
		t.Fatalf("rollback ended with %d:\n%s", code, out)
	}
	if got := o.reported(2).about(aboutInstallation); !strings.Contains(got, "runs Chancery already") {
		t.Errorf("rollback has changed something: %s", got)
	}
	if out, code := o.run("rollback", "--force"); code != 0 {
		t.Fatalf("rollback --force ended with %d:\n%s", code, out)
	}
	o.leader(t, false)
}
