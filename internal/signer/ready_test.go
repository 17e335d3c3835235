package signer

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
)

func TestReadyStatus(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)
	issuer := &certmanagerv1.ClusterIssuer{ObjectMeta: metav1.ObjectMeta{Generation: 4}}
	issuer.Status.Conditions = []certmanagerv1.IssuerCondition{{Type: "Other", Status: cmmeta.ConditionTrue}}
	for _, step := range []struct {
		ready bool
		after time.Duration // when it is decided
		since time.Duration // what lastTransitionTime must be
	}{{false, 0, 0}, {false, time.Hour, 0}, {true, 2 * time.Hour, 2 * time.Hour}, {true, 3 * time.Hour, 2 * time.Hour}} {
		before := issuer.DeepCopy()
		status := ReadyStatus(issuer, now.Add(step.after), step.ready, "Word", "words")
		if len(issuer.Status.Conditions) != len(before.Status.Conditions) || issuer.Status.Conditions[0] != before.Status.Conditions[0] {
			t.Fatal("the issuer was changed")
		}
		if len(status.Conditions) != 2 {
			t.Fatalf("conditions %+v: want Ready beside the other", status.Conditions)
		}
		c := certmanagerv1.FindIssuerCondition(status.Conditions, certmanagerv1.IssuerConditionReady)
		want := now.Add(step.since).Truncate(time.Second)
		if (c.Status == cmmeta.ConditionTrue) != step.ready || c.Reason != "Word" || c.Message != "words" || c.ObservedGeneration != 4 || !c.LastTransitionTime.Time.Equal(want) {
			t.Errorf("after %s: %+v", step.after, c)
		}
		issuer.Status = status
	}
}
