package stories_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/rig"
)

// waitingIssuer is the world's issuer, whose CA is told to validate names below
// wait.example.com only some time after the answer is there.
func (w *acmeWorld) waitingIssuer(d time.Duration) *certmanagerv1.ClusterIssuer {
	issuer := w.issuer()
	waits := *issuer.Spec.ACME.Solvers[0].DeepCopy()
	waits.Selector = &acmev1.CertificateDNSNameSelector{DNSZones: []string{"wait.example.com"}}
	waits.WaitInsteadOfSelfCheck = &metav1.Duration{Duration: d}
	issuer.Spec.ACME.Solvers = append(issuer.Spec.ACME.Solvers, waits)
	return issuer
}

// rotate asks for another account key, and waits until it is in place.
func (w *acmeWorld) rotate(t *testing.T, value string) {
	t.Helper()
	issuer := &certmanagerv1.ClusterIssuer{}
	issuer.Name = w.ClusterName("acme")
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, acmev1.RotateAccountKeyAnnotation, value)
	if err := w.Client.Patch(t.Context(), issuer, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the account's key is replaced", func(ctx context.Context) string {
		if err := w.Get(ctx, issuer.Name, issuer); err != nil {
			return err.Error()
		}
		if issuer.Status.ACME == nil || issuer.Status.ACME.LastKeyRotation != value {
			return fmt.Sprintf("%+v", issuer.Status.Conditions)
		}
		return ""
	})
}

func (w *acmeWorld) accountSecret(t *testing.T) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{}
	if err := w.Get(t.Context(), "account", secret); err != nil {
		t.Fatal(err)
	}
	return secret
}

// presented waits for the one Challenge that there is to be presented.
func (w *acmeWorld) presented(t *testing.T) *acmev1.Challenge {
	t.Helper()
	list := &acmev1.ChallengeList{}
	rig.Eventually(t, "the Challenge is presented", func(ctx context.Context) string {
		if err := w.Client.List(ctx, list, client.InNamespace(w.Namespace)); err != nil {
			return err.Error()
		}
		if len(list.Items) != 1 || !list.Items[0].Status.Presented || list.Items[0].DeletionTimestamp != nil {
			return fmt.Sprintf("%+v", list.Items)
		}
		return ""
	})
	return &list.Items[0]
}

// TestAccountKeyIsReplacedDuringIssuances: no issuance fails for it. What answers with the old
// key is made again; its Order stays.
func TestAccountKeyIsReplacedDuringIssuances(t *testing.T) {
	t.Parallel()
	w := newACMEWorld(t, nil)
	cfg := w.Config()
	cfg.ACME.AccountKeyAlgorithm = pki.ECDSA
	stop := w.Run(t, cfg)
	w.Create(t, w.waitingIssuer(30*time.Second), certificate(w.World, "slow", "acme", "a.wait.example.com"))
	old, before := w.presented(t), w.accountSecret(t)
	names := []string{"slow"}
	for i := range 4 {
		name := fmt.Sprintf("web-%d", i)
		names = append(names, name)
		w.Create(t, certificate(w.World, name, "acme", name+".example.com", name+".http.example.com"))
	}
	w.rotate(t, "1")
	if again := w.madeAgain(t, old); again.Spec.Key == old.Spec.Key || again.Name != old.Name {
		t.Errorf("Challenge %s has the key %s, had %s", again.Name, again.Spec.Key, old.Spec.Key)
	}
	for _, name := range names {
		awaitReady(t, w.World, name)
	}
	w.rotate(t, "2")
	stop()
	w.Run(t, cfg)
	w.Create(t, certificate(w.World, "late", "acme", "late.example.com"))
	awaitReady(t, w.World, "late")
	w.NothingLeft(t, w.dns.TXT)

	orders := w.orders(t)
	if len(orders) != len(names)+1 {
		t.Errorf("%d Orders for %d certificates", len(orders), len(names)+1)
	}
	issuer := &certmanagerv1.ClusterIssuer{}
	if err := w.Get(t.Context(), w.ClusterName("acme"), issuer); err != nil {
		t.Fatal(err)
	}
	if n := w.ca.Orders(issuer.Status.ACME.URI); n != len(orders) {
		t.Errorf("%d orders of the account at the CA, %d Orders", n, len(orders))
	}
	if after := w.accountSecret(t); len(after.Data) != 1 || string(after.Data["tls.key"]) == string(before.Data["tls.key"]) {
		t.Errorf("the Secret has %d entries", len(after.Data))
	}
}

// madeAgain waits for the Challenge that takes the place of another.
func (w *acmeWorld) madeAgain(t *testing.T, old *acmev1.Challenge) *acmev1.Challenge {
	t.Helper()
	again := &acmev1.Challenge{}
	rig.Eventually(t, "the Challenge is made again", func(ctx context.Context) string {
		if err := w.Get(ctx, old.Name, again); err != nil {
			return err.Error()
		}
		if again.UID == old.UID {
			return fmt.Sprintf("%+v", again.Status)
		}
		return ""
	})
	return again
}
