package secrets

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/machine/certificate"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/rig/growth"
)

// claiming returns Certificates that name one Secret, each a second younger than the one before.
func claiming(n int) []*certmanagerv1.Certificate {
	var out []*certmanagerv1.Certificate
	for i := range n {
		crt := &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("web-%05d", i)}}
		crt.CreationTimestamp = metav1.NewTime(time.Unix(int64(i), 0))
		crt.Spec.SecretName = "shared"
		out = append(out, crt)
	}
	return out
}

// TestClaims: of the Certificates that name a Secret, the oldest has it, whatever comes and goes, in whatever order.
func TestClaims(t *testing.T) {
	all := claiming(5)
	c := NewClaims()
	for _, i := range []int{3, 1, 4, 0, 2} {
		c.Note(all[i])
	}
	owner := func(of *certmanagerv1.Certificate, named string) string {
		facts := &facts.Secret{Named: named != "", CertificateName: named}
		return certificate.SecretOwner(c.PossibleOwners(of, named), facts)
	}
	expect := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	expect("the oldest", owner(all[4], ""), "web-00000")
	expect("the one that the Secret names", owner(all[4], "web-00003"), "web-00003")
	expect("a name of nobody", owner(all[4], "nobody"), "web-00000")
	moved, deleted := all[1].DeepCopy(), all[0].DeepCopy()
	deleted.DeletionTimestamp = &metav1.Time{}
	c.Note(deleted)
	expect("the oldest is being deleted", owner(all[4], ""), "web-00001")
	moved.Spec.SecretName = "own"
	c.Note(moved)
	expect("the oldest has moved", owner(all[4], ""), "web-00002")
	expect("the one that the Secret names has moved", owner(all[4], "web-00001"), "web-00002")
	expect("its own Secret", owner(moved, ""), "web-00001")
	c.Forget(client.ObjectKeyFromObject(all[2]))
	expect("the oldest is gone", owner(all[4], ""), "web-00003")
	expect("one that is not known yet", owner(all[2], ""), "web-00002")
	again := all[3].DeepCopy()
	again.UID, again.CreationTimestamp = "2", metav1.NewTime(time.Unix(9, 0))
	c.Note(again)
	expect("the oldest was made again, and nobody told that it was gone", owner(all[4], ""), "web-00004")
	for _, crt := range all {
		c.Forget(client.ObjectKeyFromObject(crt))
	}
	if len(c.known)+len(c.secrets) > 0 {
		t.Errorf("kept: %v, %v", c.known, c.secrets)
	}
}

// TestClaimsGrow: what thousands of Certificates of one Secret cost, as they come, are looked at, and go, the oldest
// first, grows with their number.
func TestClaimsGrow(t *testing.T) {
	growth.Linear(t, 10_000, func(n int) func() {
		all := claiming(n)
		come := slices.Clone(all)
		slices.Reverse(come)
		return func() {
			c := NewClaims()
			for _, crt := range come {
				c.Note(crt)
			}
			for _, crt := range all {
				if got := certificate.SecretOwner(c.PossibleOwners(crt, ""), nil); got != crt.Name {
					t.Fatalf("%s belongs to %s", crt.Name, got)
				}
				c.Forget(client.ObjectKeyFromObject(crt))
			}
		}
	})
}
