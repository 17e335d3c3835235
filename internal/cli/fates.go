package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Fate is what becomes of a switch that cert-manager runs with: a flag, a field of its configuration file, or a feature
// gate.
type Fate struct {
	// Switch is the flag or the gate, as it is set.
	Switch string `json:"switch"`
	// Refused says that chancery does not start with the switch.
	Refused bool `json:"refused,omitempty"`
	// Unmet says that the switch asks for something that chancery does not do.
	Unmet bool `json:"unmet,omitempty"`
	// Why says why the switch is refused, or has no effect; empty for a switch that means the same.
	Why string `json:"why,omitempty"`
}

// Switches are what a component of cert-manager runs with.
type Switches struct {
	// Fates are those of all switches, in the order in which they are set.
	Fates []Fate
	cmd   *cobra.Command
}

// SwitchesOf reads the arguments and the configuration file of cert-manager's controller, or of its cainjector. The
// file may be empty; the argument --config itself is not followed.
func SwitchesOf(cainjector bool, args []string, file []byte) *Switches {
	cmd, p := newControllerProcess()
	if cainjector {
		cmd, p = newInjectorProcess()
	}
	s := &Switches{cmd: cmd}
	for _, arg := range joined(cmd, args) {
		s.Fates = append(s.Fates, s.take(arg))
	}
	if err := applyConfig(cmd, p.of, file); err != nil && len(file) > 0 {
		s.Fates = append(s.Fates, Fate{Switch: "--config", Refused: true, Why: err.Error()})
	}
	for _, g := range slices.Sorted(maps.Keys(p.switches.gates)) {
		s.Fates = append(s.Fates, Fate{Switch: fmt.Sprintf("%s=%t", g, p.switches.gates[g])})
	}
	p.switches.resolve()
	for what, why := range p.switches.unmet {
		at := slices.IndexFunc(s.Fates, func(f Fate) bool {
			return f.Switch == what || strings.HasPrefix(what, "--") && strings.HasPrefix(f.Switch+"=", what+"=")
		})
		if at < 0 {
			s.Fates = append(s.Fates, Fate{Switch: what, Unmet: true, Why: why})
			continue
		}
		s.Fates[at].Unmet, s.Fates[at].Why = true, why
	}
	refused := slices.ContainsFunc(s.Fates, func(f Fate) bool { return f.Refused })
	if err := p.validate(); err != nil && !refused {
		s.Fates = append(s.Fates, Fate{Switch: "all together", Refused: true, Why: err.Error()})
	}
	return s
}

// take reads one argument.
func (s *Switches) take(arg string) Fate {
	name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
	if !strings.HasPrefix(arg, "-") {
		return Fate{Switch: arg, Refused: true, Why: "it is no flag"}
	}
	if err := s.cmd.ParseFlags([]string{arg}); err != nil {
		return Fate{Switch: arg, Refused: true, Why: s.cmd.FlagErrorFunc()(s.cmd, err).Error()}
	}
	fate := Fate{Switch: arg}
	if f := s.cmd.Flags().Lookup(name); f != nil {
		if a, without := f.Value.(*accepted); without {
			fate.Why = a.why
		}
	}
	return fate
}

// Sets reports whether the arguments or the file set a flag.
func (s *Switches) Sets(flag string) bool { return s.cmd.Flags().Changed(flag) }

// Value is the value of a flag, as it is set or by default.
func (s *Switches) Value(flag string) string { return s.cmd.Flags().Lookup(flag).Value.String() }

// joined writes each flag and its value as one argument.
func joined(cmd *cobra.Command, args []string) (out []string) {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		f := cmd.Flags().Lookup(strings.TrimPrefix(arg, "--"))
		if len(arg) == 2 && arg[0] == '-' {
			f = cmd.Flags().ShorthandLookup(arg[1:])
		}
		if strings.HasPrefix(arg, "-") && f != nil && f.NoOptDefVal == "" && i+1 < len(args) {
			i++
			arg += "=" + args[i]
		}
		out = append(out, arg)
	}
	return out
}
