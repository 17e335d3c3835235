package metrics_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	chancerymetrics "chancery.dev/internal/metrics"
)

// TestRefused: writes that the API server refuses are counted by their class, and no others.
func TestRefused(t *testing.T) {
	t.Parallel()
	failed, err := chancerymetrics.NewRefused()
	if err != nil {
		t.Fatal(err)
	}
	kind := "Kind" + time.Now().Format("150405.000000000") // the counts are the process's
	failed(kind, "create", apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "web", errors.New("exceeded quota: few")))
	failed(kind, "create", apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, "web", errors.New("second")))
	failed(kind, "create", errors.New("connection refused"))
	got, all := gathered(t, metrics.Registry), 0.0
	for name, value := range got {
		if strings.Contains(name, kind) {
			all += value
		}
	}
	if want := "chancery_refused_writes_total Quota " + kind + " create"; got[want] != 1 || all != 1 {
		t.Errorf("%s is %v, of %v", want, got[want], all)
	}
}
