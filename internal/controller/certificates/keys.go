package certificates

import (
	"context"
	"crypto"
	"fmt"
	"runtime"

	"chancery.dev/internal/engine"
	"chancery.dev/internal/machine/certificate"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/pki"
)

// keyCall is the call of the engine that makes a private key.
const keyCall = "make a private key"

// makesKey reports whether an Action needs a new private key of the given kind, and to make it takes long.
func makesKey(a certificate.Action, spec pki.KeySpec) bool {
	wanted := a.Step == certificate.StepCreateKey || a.Step == certificate.StepCreateRequest
	return wanted && !a.Held && a.Key == "" && !a.ReuseKey && spec.Slow()
}

// awaitKey makes the private key that an Action needs, beside the work on Certificates: an RSA key takes up to
// minutes of CPU, and a few of them would keep all other Certificates waiting. It reports whether the Action can be
// carried out.
func awaitKey(p *pass, a certificate.Action) bool {
	spec := facts.KeySpecOf(&p.Object.Spec)
	p.Memory.made = nil // of a step that has failed: the spec may be another one since
	if !makesKey(a, spec) {
		return true
	}
	answer := p.Ask(engine.Call{
		Name: keyCall, Inputs: fmt.Sprintf("%+v", spec),
		// One namespace has half of the processors, so that other namespaces get keys meanwhile.
		Lane: engine.Lane{Name: "private keys", Limit: max(runtime.GOMAXPROCS(0)/2, 1)},
		Run:  func(context.Context) (any, error) { return pki.GenerateKey(spec) },
	})
	if answer.Given {
		p.Memory.made, _ = answer.Value.(crypto.Signer)
		p.Forget(keyCall) // a key is used once
	}
	return answer.Given || answer.Err != nil // the step says what is wrong with the spec
}
