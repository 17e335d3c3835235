// Command kubectl-chancery is the plugin of kubectl for Chancery: kubectl runs it as `kubectl chancery`.
package main

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"chancery.dev/internal/cli"
	"chancery.dev/internal/cli/manual"
	"chancery.dev/internal/cli/terminal"
	"chancery.dev/kubectl/internal/bundle"
	"chancery.dev/kubectl/internal/change"
	"chancery.dev/kubectl/internal/check"
	"chancery.dev/kubectl/internal/create"
	"chancery.dev/kubectl/internal/dashboard"
	"chancery.dev/kubectl/internal/inspect"
	"chancery.dev/kubectl/internal/issuers"
	"chancery.dev/kubectl/internal/list"
	"chancery.dev/kubectl/internal/move"
	"chancery.dev/kubectl/internal/plugin"
	"chancery.dev/kubectl/internal/preflight"
	"chancery.dev/kubectl/internal/status"
	"chancery.dev/kubectl/internal/takeover"
	"chancery.dev/kubectl/internal/waits"
)

//go:generate go test -count=1 -run ^TestReference$ . -update

// root is kubectl-chancery.
func root(streams plugin.Streams) *cobra.Command { return plugin.Helpful(commands(streams)) }

// commands is the root command with all commands.
func commands(streams plugin.Streams) *cobra.Command {
	streams.Out, streams.ErrOut = terminal.NewWriter(streams.Out), terminal.NewWriter(streams.ErrOut)
	cmd := plugin.New(streams)
	cmd.AddCommand(
		check.New(streams),
		check.NewVersion(streams),
		create.New(streams),
		create.NewExperimental(streams),
		dashboard.New(streams),
		inspect.New(streams),
		list.New(streams),
		move.New(streams),
		preflight.New(streams),
		status.New(streams),
		takeover.New(streams),
		waits.New(streams), issuers.New(streams), bundle.New(streams),
	)
	cmd.AddCommand(change.New(streams)...)
	plugin.AddCompletion(cmd)
	manual.Add(cmd)
	return cmd
}

func main() {
	os.Exit(run(cli.UntilStopped(), plugin.Streams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}, os.Args[1:]))
}

// run runs a command line, and returns the exit status.
func run(ctx context.Context, streams plugin.Streams, args []string) int {
	cmd := root(streams)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if message := err.Error(); message != "" {
		cmd.PrintErrln("error:", message)
	}
	var exit plugin.ExitError
	if errors.As(err, &exit) {
		return exit.Code
	}
	return 1
}
