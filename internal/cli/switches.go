package cli

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"chancery.dev/internal/app"
	"chancery.dev/internal/machine/request"
)

// switches are the feature gates, the names of controllers and the flags of cert-manager (spec §9.3, §9.5) that a user
// has set. A switch is carried out, or it is true by nature, or resolve puts it into Config.Unmet.
type switches struct {
	of          component
	cfg         *app.Config
	gates       map[string]bool
	controllers []string
	// csrNeedsGate says that the signers of CertificateSigningRequests are off by default, as cert-manager's are.
	csrNeedsGate bool
	// unmet says, by switch, what was asked for and cannot be done.
	unmet map[string]string
}

// addSwitches adds --feature-gates, --controllers and the flags of a component of cert-manager that are accepted
// without effect. The other flags of the command have to be there already. Call resolve once the flags are read.
func addSwitches(cmd *cobra.Command, cfg *app.Config, of component) *switches {
	s := &switches{of: of, cfg: cfg, gates: map[string]bool{}, unmet: map[string]string{}}
	addListFlag(cmd, "feature-gates", "cert-manager's feature gates, NAME=true|false: "+strings.Join(names(of.gates), ", "), "", s.setGates)
	if of.kind == configKind {
		addListFlag(cmd, "controllers", "which of cert-manager's controllers to run; * stands for all, -NAME switches one off: "+
			strings.Join(controllerNames(), ", "), "*", s.setControllers)
		cmd.Flags().BoolVar(&s.csrNeedsGate, "csr-needs-feature-gate", false, "sign CertificateSigningRequests only where the feature gate "+csrGate+
			" or --controllers says so, as cert-manager does. All of them are approved by others then, unless --csr-approval says otherwise")
	}
	for _, k := range of.flags {
		if k.accepts != nil && cmd.Flags().Lookup(k.name) == nil {
			f := cmd.Flags().VarPF(&accepted{known: k, switches: s, text: fmt.Sprint(k.accepts)}, k.name, "", "accepted without effect: "+k.why)
			if _, is := k.accepts.(bool); is {
				f.NoOptDefVal = "true"
			}
		}
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		name, unknown := strings.CutPrefix(err.Error(), "unknown flag: --")
		// Of a short word hardly a letter may be wrong.
		if near := nearest(name, flagNames(cmd)); unknown && distance(name, near) <= len(name)/3 {
			return fmt.Errorf("%w: did you mean --%s?", err, near)
		}
		return err
	})
	return s
}

func names[T interface{ switchName() string }](all []T) []string {
	out := make([]string, 0, len(all))
	for _, one := range all {
		out = append(out, one.switchName())
	}
	return out
}

// accepted is the value of a flag that is accepted without effect.
type accepted struct {
	known

	switches *switches
	text     string
}

// String implements pflag.Value.
func (a *accepted) String() string { return a.text }

// Type implements pflag.Value.
func (a *accepted) Type() string { return strings.TrimPrefix(fmt.Sprintf("%T", a.accepts), "time.") }

// Set implements pflag.Value.
func (a *accepted) Set(text string) (err error) {
	var value any = text
	switch a.accepts.(type) {
	case bool:
		value, err = strconv.ParseBool(text)
	case int:
		value, err = strconv.Atoi(text)
	case float64:
		value, err = strconv.ParseFloat(text, 64)
	case time.Duration:
		value, err = time.ParseDuration(text)
	}
	if err != nil {
		return fmt.Errorf("must be of the form %v: %w", a.accepts, err)
	}
	a.text = text
	delete(a.switches.unmet, "--"+a.name)
	if a.lacks && value != a.accepts {
		a.switches.unmet["--"+a.name] = a.why
	}
	return nil
}

func (s *switches) setGates(list string) error {
	for text := range strings.SplitSeq(list, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(text), "=")
		on, err := strconv.ParseBool(value)
		known := append(names(s.of.gates), allAlpha, allBeta)
		switch {
		case name == "" && value == "":
			continue
		case !slices.Contains(known, name):
			return fmt.Errorf("there is no feature gate %q: did you mean %s?", name, nearest(name, known))
		case err != nil:
			return fmt.Errorf("must be NAME=true or NAME=false, not %q", text)
		}
		s.gates[name] = on
	}
	return nil
}

func (s *switches) setControllers(list string) error {
	known := controllerNames()
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if bare := strings.TrimPrefix(name, "-"); name != "*" && !slices.Contains(known, bare) {
			return fmt.Errorf("there is no controller %q: did you mean %s?", bare, nearest(bare, known))
		}
		s.controllers = append(s.controllers, name)
	}
	return nil
}

// resolve puts what the switches mean into the configuration.
func (s *switches) resolve() {
	for _, g := range s.of.gates {
		on, set := s.gate(g)
		switch {
		case !set:
		case g.set != nil:
			g.set(s.cfg, on)
		case on != g.here:
			s.unmet[fmt.Sprintf("%s=%t", g.name, on)] = g.why
		}
	}
	s.resolveControllers()
	s.resolveCSRs()
	for _, name := range slices.Sorted(maps.Keys(s.unmet)) {
		s.cfg.Unmet = append(s.cfg.Unmet, name+" ("+s.unmet[name]+")")
	}
}

// gate is the value of a gate, if the user has set it. AllAlpha and AllBeta count where they change cert-manager's
// default.
func (s *switches) gate(g gate) (on, set bool) {
	if on, set = s.gates[g.name]; set {
		return on, true
	}
	if g.stage == alpha && s.gates[allAlpha] {
		return true, true
	}
	all, set := s.gates[allBeta]
	return false, set && g.stage == beta && !all
}

// resolveControllers switches off what --controllers leaves out. The gateway-shim has a flag of its own, and the
// signers of CertificateSigningRequests a gate: they add to a list of names.
func (s *switches) resolveControllers() {
	if len(s.controllers) == 0 {
		return
	}
	all, signing := slices.Contains(s.controllers, "*"), s.gates[csrGate]
	var off, steps []string
	for _, name := range controllerNames() {
		added := name == app.ControllerGatewayShim || signing && strings.HasPrefix(name, app.SigningRequestControllers)
		if slices.Contains(s.controllers, "-"+name) || !all && !added && !slices.Contains(s.controllers, name) {
			off = append(off, name)
			if slices.Contains(app.CertificateControllers(), name) {
				steps = append(steps, name)
			}
		}
	}
	if len(steps) > 0 && len(steps) < len(app.CertificateControllers()) {
		s.unmet["--controllers=-"+strings.Join(steps, ",-")] = "the certificates-… controllers are one here, and run together"
		off = slices.DeleteFunc(off, func(name string) bool { return slices.Contains(steps, name) })
	}
	s.cfg.SwitchOff(off...)
}

// resolveCSRs switches off the signers of CertificateSigningRequests that nobody has switched on, if they are off by
// default, and leaves the approval of the other signers' requests to others.
func (s *switches) resolveCSRs() {
	if !s.csrNeedsGate {
		return
	}
	if on, _ := s.gate(gate{name: csrGate, stage: alpha}); !on {
		s.cfg.SwitchOff(slices.DeleteFunc(app.SigningRequestControllerNames(), func(name string) bool {
			return slices.Contains(s.controllers, name) || slices.Contains(s.cfg.Off(), name)
		})...)
	}
	if _, set := s.cfg.CSRApprovers[request.FormCSR]; !set {
		s.cfg.CSRApprovers[request.FormCSR] = request.ApproveExternal
	}
}

// nearest is the name that differs least from what was written.
func nearest(written string, known []string) string {
	return slices.MinFunc(known, func(a, b string) int { return distance(written, a) - distance(written, b) })
}

// distance is how many letters have to be added, removed or replaced to get from one word to the other; upper and lower
// case are the same.
func distance(a, b string) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal, row[j+1] = row[j+1], min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
