package certificates

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
)

// keepWithin bounds how long a stop is held up for private keys. Those that were not stored then are made again.
const keepWithin = 3 * time.Second

// keepHeldKeys waits until the process is to stop. Then it brings to an end what is on the short way, or else has the
// private keys stored that are in memory only.
func keepHeldKeys(ctx context.Context, r *runner) error {
	<-ctx.Done()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepWithin)
	defer cancel()
	r.Finish(ctx, func(name types.NamespacedName, m *memory, err error) bool {
		if m.held == nil {
			return false
		}
		if m.lastPasses++; m.lastPasses > 2 {
			ctrl.LoggerFrom(ctx).Info("A private key was not stored before the stop: its CertificateRequest will be made again",
				"namespace", name.Namespace, "certificate", name.Name, "cause", err)
			return false
		}
		m.held.Refused = m.lastPasses == 2
		return true
	})
	return nil
}
