package takeover

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/slow"
)

// snapshot is what the API server has of the fixture.
type snapshot struct {
	// requests and keys are by name: the UID of a request, and key and certificate of a Secret.
	requests map[string]string
	secrets  map[string][]byte
	// versions are those of Secrets and Certificates.
	versions map[string]string
}

func (o *original) snapshot() snapshot {
	t := o.t
	t.Helper()
	s := snapshot{requests: map[string]string{}, secrets: map[string][]byte{}, versions: map[string]string{}}
	requests, secrets, crts := &certmanagerv1.CertificateRequestList{}, &corev1.SecretList{}, &certmanagerv1.CertificateList{}
	for _, list := range []client.ObjectList{requests, secrets, crts} {
		if err := o.client.List(t.Context(), list, client.InNamespace("default")); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range requests.Items {
		s.requests[r.Name] = string(r.UID)
	}
	for _, secret := range secrets.Items {
		s.secrets[secret.Name] = slices.Concat(secret.Data["tls.key"], secret.Data["tls.crt"])
		s.versions["Secret "+secret.Name] = secret.ResourceVersion
	}
	for _, crt := range crts.Items {
		s.versions["Certificate "+crt.Name] = crt.ResourceVersion
	}
	return s
}

// compare fails the test if a certificate was issued, or a key replaced, and returns how many objects were written.
func (s snapshot) compare(t *testing.T, now snapshot, when string) (written int) {
	t.Helper()
	mine := func(name string, _ string) bool { return strings.HasPrefix(name, "probe-") }
	maps.DeleteFunc(now.requests, mine)
	if !maps.Equal(s.requests, now.requests) {
		t.Errorf("%s there are other CertificateRequests: %d, and %d before", when, len(now.requests), len(s.requests))
	}
	replaced := 0
	for name, data := range s.secrets {
		if !bytes.Equal(data, now.secrets[name]) {
			replaced++
		}
	}
	if replaced > 0 {
		t.Errorf("%s %d Secrets have another key or another certificate", when, replaced)
	}
	for name, version := range s.versions {
		if now.versions[name] != version {
			written++
		}
	}
	return written
}

// installedObjects reads everything that a takeover changes.
func (o *original) installedObjects() map[string]*unstructured.Unstructured {
	t := o.t
	t.Helper()
	objects, err := cluster{o.client}.changed(false)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*unstructured.Unstructured{}
	for _, ref := range objects {
		found := &unstructured.Unstructured{}
		found.SetGroupVersionKind(ref.gvk)
		if err := client.IgnoreNotFound(o.client.Get(t.Context(), ref.key, found)); err != nil {
			t.Fatal(err)
		}
		if found.GetName() != "" {
			out[ref.String()] = found
		}
	}
	return out
}

// sameObjects compares everything that a takeover changes, but for what servers write, with what was there before.
func sameObjects(t *testing.T, before, now map[string]*unstructured.Unstructured) {
	t.Helper()
	for name, was := range before {
		is := now[name]
		if is == nil {
			t.Errorf("%s is gone", name)
			continue
		}
		if !same(was, is) {
			a, _ := yaml.Marshal(bare(was).Object)
			b, _ := yaml.Marshal(bare(is).Object)
			t.Errorf("%s is not as it was:\n%.2000s\nnow\n%.2000s", name, a, b)
		}
		var managers, were []string
		for _, m := range is.GetManagedFields() {
			managers = append(managers, m.Manager)
		}
		for _, m := range was.GetManagedFields() {
			were = append(were, m.Manager)
		}
		if slices.Contains(managers, "chancery-install") || slices.Contains(managers, owner) {
			t.Errorf("%s is written by %v, and was by %v", name, managers, were)
		}
	}
	for name := range now {
		if before[name] == nil {
			t.Errorf("%s is left", name)
		}
	}
}

// probe gets a Certificate issued, twice: by then everything that was there before has been looked at.
func (f *fixture) probe(round int) {
	f.t.Helper()
	for i := range 2 {
		name := fmt.Sprintf("probe-%d-%d", round, i)
		f.create(&certmanagerv1.Certificate{ObjectMeta: objectMeta("default", name), Spec: certmanagerv1.CertificateSpec{
			SecretName: name, DNSNames: []string{"probe.example.com"}, IssuerRef: cmmeta.IssuerReference{Name: "ca", Kind: "ClusterIssuer"},
		}})
		rig.Eventually(f.t, name+" is issued", func(ctx context.Context) string {
			crt := &certmanagerv1.Certificate{}
			if err := f.client.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, crt); err != nil {
				return err.Error()
			}
			if !certmanagerv1.HasCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionReady, cmmeta.ConditionTrue) {
				return fmt.Sprint(crt.Status.Conditions)
			}
			return ""
		})
	}
}

// customer writes Certificates all the time, and counts what is refused.
type customer struct {
	tries, unasked atomic.Int64
	// unanswered is what was refused because the API server was told to ask a webhook that did not answer.
	unanswered atomic.Int64
	// row is the longest row of tries that were refused for any other reason, and reason that of the last one.
	row    atomic.Int64
	reason atomic.Value
}

// maxRow is how many writes in a row may be refused, each of which is a whole request: the API server may be taking in
// a definition or a policy.
const maxRow = 10

func (f *fixture) customer() *customer {
	c := &customer{}
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(done)
		for row := int64(0); ctx.Err() == nil; {
			crt := &certmanagerv1.Certificate{ObjectMeta: objectMeta("default", "customer"), Spec: certmanagerv1.CertificateSpec{
				SecretName: "customer", DNSNames: []string{"www.example.com"}, IssuerRef: cmmeta.IssuerReference{Name: "ca", Kind: "ClusterIssuer"},
			}}
			c.tries.Add(1)
			asked := f.asked(ctx)
			err := f.client.Create(ctx, crt, client.DryRunAll)
			switch {
			case ctx.Err() != nil:
				return
			case err == nil:
				row = 0
				continue
			case !strings.Contains(err.Error(), "failed calling webhook"):
				row++
				c.row.Store(max(row, c.row.Load()))
			case asked && f.asked(ctx):
				c.unanswered.Add(1)
			default:
				c.unasked.Add(1) // the API server has still to see that nobody is to be asked
			}
			c.reason.Store(err.Error())
		}
	}()
	f.t.Cleanup(func() {
		cancel()
		<-done
	})
	return c
}

// asked reports whether the API server is told to ask cert-manager's webhook.
func (o *original) asked(ctx context.Context) bool {
	for _, kind := range []string{injectedValidating, injectedMutating} {
		hook := &unstructured.Unstructured{}
		hook.SetGroupVersionKind(kindOf("admissionregistration.k8s.io", kind))
		if o.client.Get(ctx, client.ObjectKey{Name: webhookName}, hook) == nil {
			return true
		}
	}
	return false
}

// served fails the test if there was a time in which nothing could be written.
func (c *customer) served(t *testing.T) {
	t.Helper()
	t.Logf("of %d writes %d were refused while no webhook was to be asked any more, %d because it did not answer, and %d in a row for other reasons (%v)",
		c.tries.Load(), c.unasked.Load(), c.unanswered.Load(), c.row.Load(), c.reason.Load())
	if c.unanswered.Load() > 0 || c.row.Load() > maxRow {
		t.Errorf("%d writes were refused because the webhook did not answer, and %d in a row for other reasons: %v", c.unanswered.Load(), c.row.Load(), c.reason.Load())
	}
}

// TestTakeover: Chancery takes a cert-manager over and gives it back, by make test-slow-takeover three times. No
// certificate is issued again, no key is replaced, writes are admitted all the time, and each rollback leaves what was
// there.
func TestTakeover(t *testing.T) {
	t.Parallel()
	o := newOriginal(t)
	f := o.fill(fixtureSize(t))
	o.startPods()
	o.leader(t, false)
	settled(o)
	objects := o.installedObjects()
	customer := f.customer()
	before := o.snapshot()
	rounds := 1
	if slow.Runs(slow.Takeover) {
		rounds = 3
	}
	for round := range rounds {
		began := time.Now()
		if out, code := o.run("apply", "--image="+ourImage); code != 0 {
			t.Fatalf("round %d: apply ended with %d:\n%s", round, code, out)
		}
		applied := time.Since(began)
		o.leader(t, true)
		f.probe(round)
		written := before.compare(t, o.snapshot(), "after apply")
		if out, code := o.run("apply", "--image="+ourImage); code != 1 || !strings.Contains(out, "chancery runs here since") {
			t.Errorf("a second apply ended with %d:\n%s", code, out)
		}
		if got := o.reported(2).about(aboutInstallation); !strings.Contains(got, "runs Chancery already") {
			t.Errorf("after apply check says %s", got)
		}
		began = time.Now()
		if out, code := o.run("rollback"); code != 0 {
			t.Fatalf("round %d: rollback ended with %d:\n%s", round, code, out)
		}
		t.Logf("round %d: %d Certificates, apply %s, rollback %s, %d objects written", round, fixtureSize(t), applied, time.Since(began), written)
		o.leader(t, false)
		before.compare(t, o.snapshot(), "after rollback")
		sameObjects(t, objects, o.installedObjects())
	}
	customer.served(t)
	if out, code := o.run("rollback"); code != 1 || !strings.Contains(out, "nothing to roll back") {
		t.Errorf("a rollback of nothing ended with %d:\n%s", code, out)
	}
}

// settled waits until the Deployments have their statuses.
func settled(o *original) {
	o.t.Helper()
	rig.Eventually(o.t, "the Pods run", func(ctx context.Context) string {
		list := &appsv1.DeploymentList{}
		if err := o.client.List(ctx, list, client.InNamespace(home)); err != nil {
			return err.Error()
		}
		for _, d := range list.Items {
			if d.Status.ObservedGeneration < d.Generation {
				return d.Name
			}
		}
		return ""
	})
}

// TestPage: the commands of docs/takeover.md, one after the other, lead there and back.
func TestPage(t *testing.T) {
	slow.Test(t, slow.Takeover)
	t.Parallel()
	o := newOriginal(t)
	o.startPods()
	o.leader(t, false)
	settled(o)
	text, err := os.ReadFile("../../../docs/takeover.md")
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for line := range strings.Lines(string(text)) {
		command, is := strings.CutPrefix(line, "    kubectl chancery takeover ")
		if !is {
			continue
		}
		ran++
		if out, code := o.run(strings.Fields(command)...); code != 0 {
			t.Fatalf("kubectl chancery takeover %s: code %d\n%s", command, code, out)
		}
	}
	if ran != 4 {
		t.Errorf("%d commands were run", ran)
	}
	o.leader(t, false)
}
