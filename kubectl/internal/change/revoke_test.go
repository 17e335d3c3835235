package change

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/machine/revocation"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/pebble"
)

// newACMEStage is a namespace with an ACME server that believes everything, an issuer of it, one that signs itself, and
// a Certificate of each. Controllers do not run yet.
func newACMEStage(t *testing.T) (w *stage, run func()) {
	t.Helper()
	w = &stage{World: rig.NewWorld(t)}
	w.kubeconfig = rig.Kubeconfig(t, w.Admin, w.Namespace)
	ca, err := pebble.Start(t.Context(), pebble.Options{AlwaysValid: true})
	if err != nil {
		t.Fatal(err)
	}
	acme := &acmev1.ACMEIssuer{
		Server: ca.DirectoryURL, CABundle: ca.TLSBundle, Email: "ops@example.com", PrivateKey: cmmeta.SecretKeySelector{Name: "account"},
		Solvers: []acmev1.ACMEChallengeSolver{{
			HTTP01:                 &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{}},
			WaitInsteadOfSelfCheck: &metav1.Duration{},
		}},
	}
	w.Create(t,
		&certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "self"}, Spec: certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}},
		&certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "acme"}, Spec: certmanagerv1.IssuerSpec{ACME: acme}})
	for name, issuer := range map[string]string{"web": "acme", "shop": "self"} {
		w.Create(t, &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certmanagerv1.CertificateSpec{
			SecretName: name, DNSNames: []string{name + ".example.com"}, IssuerRef: cmmeta.IssuerReference{Name: issuer},
			PrivateKey: &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm},
		}})
	}
	return w, func() {
		cfg := w.Config()
		cfg.ACME.HTTP01Address = rig.FreeAddress(t).String()
		w.Run(t, cfg)
	}
}

// says runs a command, which must succeed or not, and say something.
func (w *stage) says(t *testing.T, command string, succeeds bool, want ...string) {
	t.Helper()
	said, err := w.run(t.Context(), command)
	if err != nil {
		said += err.Error()
	}
	if (err == nil) != succeeds {
		t.Errorf("%s: %v\n%s", command, err, said)
	}
	for _, part := range want {
		if !strings.Contains(said, part) {
			t.Errorf("%s lacks %q:\n%s", command, part, said)
		}
	}
}

// saysInTime is says of a command with --wait that is to fail when its time is over: no sooner than it has begun to
// wait, which a busy machine may not reach within the first of the times.
func (w *stage) saysInTime(t *testing.T, command, want string) {
	t.Helper()
	said := ""
	for timeout := 100 * time.Millisecond; timeout < rig.Patience; timeout *= 4 {
		out, err := w.run(t.Context(), fmt.Sprintf("%s --wait --timeout %s", command, timeout))
		if err == nil {
			t.Errorf("%s succeeds within %s", command, timeout)
			return
		}
		if said = out + err.Error(); strings.Contains(said, fmt.Sprintf(want, timeout)) {
			return
		}
	}
	t.Errorf("%s lacks %q:\n%s", command, want, said)
}

// TestRevoke: revoke --wait ends with the outcome of this revocation, whatever an earlier one has left, and says before
// what will happen.
func TestRevoke(t *testing.T) {
	t.Parallel()
	w, run := newACMEStage(t)
	for command, want := range map[string]string{
		"revoke web":                              "at least one of the flags in the group [reason cancel]",
		"revoke web --reason stolen":              `--reason is keyCompromise, superseded`,
		"revoke web --cancel":                     "nothing to call off",
		"revoke web --cancel --reason superseded": "none of the others can be",
		"revoke none --reason superseded":         "not found",
	} {
		w.says(t, command, false, want)
	}
	w.saysInTime(t, "revoke web --reason superseded", "the controller has not begun, after %s: if the condition Revoking does not change")
	w.says(t, "revoke web --cancel", true, "is called off")
	run()
	w.awaitRevision(t, "web", 1)
	w.awaitRevision(t, "shop", 1)
	w.says(t, "revoke web --reason keyCompromise --wait", true, `the certificate in Secret "web" is replaced, with a new private key.`,
		"Then Issuer acme revokes the certificate (keyCompromise)", "was replaced and revoked (keyCompromise) at")
	w.awaitRevision(t, "web", 2)
	// Once more on the same day: the user means the certificate that is there now.
	w.says(t, "revoke web --reason keyCompromise --wait", true, "was replaced and revoked (keyCompromise) at")
	w.awaitRevision(t, "web", 3)
	w.says(t, "revoke shop --reason superseded --wait", false, "Issuer self cannot revoke", "but not revoked: its issuer cannot revoke certificates")
	w.awaitRevision(t, "shop", 2)

	// What an annotation by hand has left is taken away.
	crt := &certmanagerv1.Certificate{}
	if err := w.Get(t.Context(), "web", crt); err != nil {
		t.Fatal(err)
	}
	if err := annotate(t.Context(), w.Client, crt, map[string]any{revocation.Annotation: "stolen"}); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the controller refuses it", func(ctx context.Context) string {
		if err := w.Get(ctx, "web", crt); err != nil || refusedRevocation(crt) == nil {
			return fmt.Sprintf("%v %+v", err, crt.Status.Conditions)
		}
		return ""
	})
	w.says(t, "revoke web --reason superseded --wait", true, "was replaced and revoked (superseded) at")
	w.awaitRevision(t, "web", 4)
	w.says(t, "renew web --wait", true, "is renewed")
	w.awaitRevision(t, "web", 5)
}

// TestRotate: rotate-account-key --wait ends when the account has another key.
func TestRotate(t *testing.T) {
	t.Parallel()
	w, run := newACMEStage(t)
	for command, want := range map[string]string{
		"rotate-account-key self":               "is not an ACME issuer",
		"rotate-account-key secret/acme":        "name an issuer, as in",
		"rotate-account-key none":               "not found",
		"rotate-account-key clusterissuer/none": "not found",
	} {
		w.says(t, command, false, want)
	}
	w.saysInTime(t, "rotate-account-key acme", "the controller has not looked at the issuer yet, after %s")
	run()
	issuer := &certmanagerv1.Issuer{}
	key := ""
	for range 2 {
		w.says(t, "rotate-account-key issuer/acme --wait", true, "Copies of the old key are worthless", "the account has its new key")
		if err := w.Get(t.Context(), "acme", issuer); err != nil {
			t.Fatal(err)
		}
		if now := issuer.Status.ACME.LastPrivateKeyHash; now == key {
			t.Error("the key is the same")
		} else {
			key = now
		}
	}
	for _, solver := range []acmev1.ACMEChallengeSolver{
		{DNSPersist01: &acmev1.DNSPersist01Solver{}}, {Selector: &acmev1.CertificateDNSNameSelector{DNSNames: []string{"shop.example.com"}}, DNSPersist01: &acmev1.DNSPersist01Solver{}},
	} {
		issuer.Spec.ACME.Solvers = []acmev1.ACMEChallengeSolver{solver}
		if err := w.Client.Update(t.Context(), issuer); err != nil {
			t.Fatal(err)
		}
		said, err := w.run(t.Context(), "rotate-account-key acme --wait")
		if listed := strings.Contains(said, "proved by a record that stays (dnsPersist01): web.example.com. If"); err != nil || listed != (solver.Selector == nil) {
			t.Errorf("by %+v: %v, %s", solver, err, said)
		}
		if err := w.Get(t.Context(), "acme", issuer); err != nil {
			t.Fatal(err)
		}
	}
	issuer.Spec.ACME.DisableAccountKeyGeneration = true
	if err := w.Client.Update(t.Context(), issuer); err != nil {
		t.Fatal(err)
	}
	w.says(t, "rotate-account-key acme", false, "has disableAccountKeyGeneration")
}

// TestRenewalFails: renew --wait says why a certificate has not come, and what shows more.
func TestRenewalFails(t *testing.T) {
	t.Parallel()
	w := newStage(t)
	w.eventually(t, "approve shop-1")
	w.awaitRevision(t, "shop", 1)
	w.saysInTime(t, "renew shop", "is being issued, after %s: see kubectl chancery status shop -n "+w.Namespace)
	w.eventually(t, "deny shop-2 --message no")
	key := client.ObjectKey{Namespace: w.Namespace, Name: "shop"}
	err := (&options{timeout: time.Minute}).await(t.Context(), w.Client, key, nil)
	if err == nil || !strings.Contains(err.Error(), "no: see kubectl chancery status shop") {
		t.Errorf("renew --wait says: %v", err)
	}
}
