package certificates

import (
	"context"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
)

// keepWithin bounds how long a stop is held up for private keys. Those that were not stored then are made again.
const keepWithin = 3 * time.Second

// keepHeldKeys waits until the process is to stop, and for the passes under way. Then it brings to an end what is on
// the short way, or else stores the private keys that are in memory only.
func (r *certificates) keepHeldKeys(ctx context.Context) error {
	<-ctx.Done()
	r.passes.Lock()
	defer r.passes.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepWithin)
	defer cancel()
	for name, m := range r.memos.All() {
		if m.held == nil {
			continue
		}
		crt := &certmanagerv1.Certificate{}
		err := r.Client.Get(ctx, name, crt)
		if err == nil {
			_, _, err = r.pass(ctx, m, crt)
		}
		if err == nil && m.held != nil {
			m.held.Refused = true
			_, _, err = r.pass(ctx, m, crt)
		}
		if err != nil {
			ctrl.LoggerFrom(ctx).Info("A private key was not stored before the stop: its CertificateRequest will be made again",
				"namespace", name.Namespace, "certificate", name.Name, "cause", err.Error())
		}
	}
	return nil
}
