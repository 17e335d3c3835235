package logging_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"chancery.dev/internal/cli/logging"
)

// TestErrorsInTheLogCommandNoTerminal: an error quotes what a tenant has written.
func TestErrorsInTheLogCommandNoTerminal(t *testing.T) {
	const strange = "\x1b[31m\u009b2J\u202e\u200b\x7f\nforged=true"
	for _, format := range []string{"text", "json"} {
		var flags logging.Flags
		set := pflag.NewFlagSet("", pflag.ContinueOnError)
		flags.Add(set)
		if err := set.Set("logging-format", format); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		handler, err := flags.Handler(&out)
		if err != nil {
			t.Fatal(err)
		}
		slog.New(handler).Error("it failed: "+strange, "err", errors.New(strange), "object", strange)
		if said := out.String(); strings.ContainsAny(said, "\x1b\u009b\u202e\u200b\x7f") || strings.Count(said, "\n") != 1 || !strings.Contains(said, `x1b`) && !strings.Contains(said, `u001b`) {
			t.Errorf("%s: %q", format, said)
		}
	}
}
