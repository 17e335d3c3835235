package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig"
)

// controllerOf runs `chancery controller` in the namespace of w, with more environment, and returns the
// address of its metrics.
func controllerOf(t *testing.T, w *rig.World, environment ...string) (metrics string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	metrics = rig.FreeAddress(t).String()
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Args = []string{
		"chancery", "controller", "--kubeconfig", writeKubeconfig(t, w.Admin), "--namespace", w.Namespace, "--leader-elect=false",
		"--metrics-listen-address", metrics, "--internal-healthz-listen-address", "0",
	}
	cmd.Env = append(os.Environ(), environment...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return metrics
}

// gauge returns the line of a metric that has no labels.
func gauge(ctx context.Context, address, name string) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		return err.Error()
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), name+" ") {
			return lines.Text()
		}
	}
	return "no " + name
}

// TestProcessorsOfAController: one that has nothing to do is left one processor, and gets all back when it
// has much to compute. Where GOMAXPROCS is set, it has that.
func TestProcessorsOfAController(t *testing.T) {
	t.Parallel()
	before := runtime.GOMAXPROCS(0)
	if before < 2 || os.Getenv("GOMAXPROCS") != "" {
		t.Skip("there is one CPU only, or this test has been told how many to use")
	}
	const processors = "go_sched_gomaxprocs_threads"
	w, chosen := rig.NewWorld(t), rig.NewWorld(t)
	metrics, ofChosen := controllerOf(t, w, "GOMAXPROCS="), controllerOf(t, chosen, "GOMAXPROCS=3")
	is := func(address, want string) func(context.Context) string {
		asked, got := 0, ""
		return func(ctx context.Context) string {
			if asked++; asked%10 == 1 { // to answer is work too
				got = gauge(ctx, address, processors)
			}
			if got != processors+" "+want {
				return got
			}
			return ""
		}
	}
	rig.Eventually(t, "the processors that the user has set", is(ofChosen, "3"))
	rig.Eventually(t, "one processor at rest", is(metrics, "1"))
	w.Create(t, &certmanagerv1.Issuer{
		ObjectMeta: metav1.ObjectMeta{Name: "self"},
		Spec:       certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}},
	})
	for i := range 30 {
		name := fmt.Sprint("rsa-", i)
		w.Create(t, &certmanagerv1.Certificate{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: certmanagerv1.CertificateSpec{
				SecretName: name, DNSNames: []string{name + ".example"}, IssuerRef: cmmeta.IssuerReference{Name: "self"},
			},
		})
	}
	rig.Eventually(t, "all processors for RSA keys", is(metrics, fmt.Sprint(before)))
	if got := gauge(t.Context(), ofChosen, processors); got != processors+" 3" {
		t.Errorf("the processors that the user has set: %s", got)
	}
}
