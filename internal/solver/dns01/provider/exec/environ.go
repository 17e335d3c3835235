package exec

import (
	"slices"
	"strings"

	"chancery.dev/internal/solver/dns01/wire"
)

// environ returns the environment of a program. The controller's variables that may hold
// credentials are passed on only where ambient ones are allowed.
func environ(own []string, ambient bool) []string {
	if ambient {
		return slices.Clone(own)
	}
	kept := wire.Environment()
	out := []string{}
	for _, e := range own {
		if name, _, ok := strings.Cut(e, "="); ok && slices.Contains(kept, name) {
			out = append(out, e)
		}
	}
	return out
}
