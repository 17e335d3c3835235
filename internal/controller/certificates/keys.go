package certificates

import (
	"crypto"

	"chancery.dev/internal/controller"
	"chancery.dev/internal/machine/certificate"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/pki"
)

// makesKey reports whether an Action needs a new private key of the given kind, and to make it takes long.
func makesKey(a certificate.Action, spec pki.KeySpec) bool {
	wanted := a.Step == certificate.StepCreateKey || a.Step == certificate.StepCreateRequest
	return wanted && !a.Held && a.Key == "" && !a.ReuseKey && spec.Slow()
}

// awaitKey makes the private key that an Action needs, beside the work on Certificates. It reports whether the Action
// can be carried out.
func awaitKey(p *pass, a certificate.Action) bool {
	spec := facts.KeySpecOf(&p.Object.Spec)
	p.Memory.made = nil // of a step that has failed: the spec may be another one since
	if !makesKey(a, spec) {
		return true
	}
	call := controller.KeyCall(spec)
	answer := p.Ask(call)
	if answer.Given {
		p.Memory.made, _ = answer.Value.(crypto.Signer)
		p.Forget(call.Name) // a key is used once
	}
	return answer.Given || answer.Err != nil // the step says what is wrong with the spec
}
