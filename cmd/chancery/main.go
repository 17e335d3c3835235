// Command chancery issues and renews TLS certificates in Kubernetes.
package main

import (
	"os"

	"chancery.dev/internal/cli"
	"chancery.dev/internal/cli/terminal"
)

func main() {
	cli.LimitMemory(os.Getenv)
	root := cli.New()
	root.SetOut(terminal.NewWriter(os.Stdout))
	root.SetErr(terminal.NewWriter(os.Stderr))
	if err := root.ExecuteContext(cli.UntilStopped()); err != nil {
		root.PrintErrln("error:", err)
		os.Exit(1)
	}
}
