// Package logging defines the flags for the log, in the same words for each binary that has them.
//
// It makes handlers of log/slog; the caller chooses where the lines go.
package logging

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/pflag"

	"chancery.dev/internal/cli/terminal"
)

// Flags hold the values of the flags.
type Flags struct {
	level  int
	format string
}

// Add adds the flags to a set.
func (l *Flags) Add(f *pflag.FlagSet) {
	f.IntVarP(&l.level, "v", "v", 0, "how much to log: 0 decisions that change something, 1 each call and the machinery too, 2 to 10 ever more detail")
	f.StringVar(&l.format, "logging-format", "text", "form of a log line: text or json")
}

// Arguments sets the same flags on another command line.
func (l *Flags) Arguments() []string {
	return []string{fmt.Sprint("--v=", l.level), "--logging-format=" + l.format}
}

// Handler writes the log to w, without what a terminal would obey: errors quote text of tenants.
func (l *Flags) Handler(w io.Writer) (slog.Handler, error) {
	w = terminal.NewWriter(w)
	// logr's level n is slog's -n.
	options := &slog.HandlerOptions{Level: slog.Level(-l.level)}
	switch l.format {
	case "text":
		return slog.NewTextHandler(w, options), nil
	case "json":
		return slog.NewJSONHandler(w, options), nil
	default:
		return nil, fmt.Errorf("--logging-format: must be text or json, not %q", l.format)
	}
}
