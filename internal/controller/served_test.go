package controller

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// starting is a manager that starts.
type starting struct {
	manager.Manager

	runs []manager.Runnable
}

func (m *starting) Add(r manager.Runnable) error {
	m.runs = append(m.runs, r)
	return nil
}

// TestLateBegins: what comes late is set up after the head start, and everything is settled then, or when the process
// stops before.
func TestLateBegins(t *testing.T) {
	for name, stops := range map[string]bool{"goes on": false, "stops": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &starting{}
				d := &Deps{Manager: m, HeadStart: time.Second}
				var after time.Duration
				began := time.Now()
				err := d.Late(func(context.Context) error {
					after = time.Since(began)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				settled := d.AllSetUp()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if stops {
					cancel()
				}
				for _, r := range m.runs {
					go func() { _ = r.Start(ctx) }()
				}
				<-settled
				if !stops && after != time.Second || stops && after != 0 {
					t.Errorf("set up after %s", after)
				}
			})
		})
	}
}
