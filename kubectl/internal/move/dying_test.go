package move

import (
	"context"
	"sync/atomic"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// mortal is a client of a command that is killed after so many writes.
type mortal struct {
	client.Client

	writes *atomic.Int64
}

func dying(t *testing.T, c client.Client, writes *atomic.Int64) client.Client {
	t.Helper()
	return &mortal{Client: c, writes: writes}
}

// write makes a write, and says that the process was killed after the last one: its answer is not seen.
func (m *mortal) write(do func() error) error {
	if m.writes.Load() <= 0 {
		return errKilled
	}
	err := do()
	if m.writes.Add(-1) == 0 {
		return errKilled
	}
	return err
}

func (m *mortal) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return m.write(func() error { return m.Client.Create(ctx, o, opts...) })
}

func (m *mortal) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	return m.write(func() error { return m.Client.Update(ctx, o, opts...) })
}

func (m *mortal) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	return m.write(func() error { return m.Client.Patch(ctx, o, p, opts...) })
}

func (m *mortal) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	return m.write(func() error { return m.Client.Delete(ctx, o, opts...) })
}

func (m *mortal) Status() client.SubResourceWriter {
	return &mortalStatus{SubResourceWriter: m.Client.Status(), m: m}
}

type mortalStatus struct {
	client.SubResourceWriter

	m *mortal
}

func (s *mortalStatus) Update(ctx context.Context, o client.Object, opts ...client.SubResourceUpdateOption) error {
	return s.m.write(func() error { return s.SubResourceWriter.Update(ctx, o, opts...) })
}
