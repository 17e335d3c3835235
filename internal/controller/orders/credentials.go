package orders

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/signer"
)

// credentialIndex finds Challenges by the Secrets that their solvers name, as
// namespace/name.
const credentialIndex = "chancery.dev/credential"

// credentials is what credentialIndex has of a Challenge.
func (r *challenges) credentials(obj client.Object) []string {
	c, ok := obj.(*acmev1.Challenge)
	if !ok {
		return nil
	}
	var names []string
	for _, ref := range signer.DNS01Secrets(c.Spec.Solver.DNS01) {
		names = append(names, r.solverNamespace(c)+"/"+ref.Name)
	}
	return names
}

// withCredential lists the Challenges whose solver uses a Secret that has changed. What
// failed of them is tried again at once, and not when its back-off ends: whoever has
// changed a credential waits for the result.
func (r *challenges) withCredential(ctx context.Context, secret client.Object) []reconcile.Request {
	found := r.Indexed(ctx, &acmev1.ChallengeList{}, credentialIndex, secret.GetNamespace()+"/"+secret.GetName())
	r.scheduler.setCredentialChanged(ctx, found)
	return found
}
