// Command kubectl-chancery is the plugin of kubectl for Chancery: kubectl runs it as `kubectl chancery`.
package main

import (
	"errors"
	"fmt"
	"os"

	"chancery.dev/internal/cli"
	"chancery.dev/kubectl/internal/move"
	"chancery.dev/kubectl/internal/plugin"
	"chancery.dev/kubectl/internal/status"
	"chancery.dev/kubectl/internal/takeover"
)

func main() {
	streams := plugin.Streams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	root := plugin.New(streams)
	root.AddCommand(takeover.New(streams), move.New(streams), status.New(streams))
	err := root.ExecuteContext(cli.UntilStopped())
	if err == nil {
		return
	}
	code := 1
	var exit plugin.ExitError
	if errors.As(err, &exit) {
		code = exit.Code
	}
	if message := err.Error(); message != "" {
		fmt.Fprintln(os.Stderr, "error:", message)
	}
	os.Exit(code)
}
