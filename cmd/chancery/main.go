// Command chancery issues and renews TLS certificates in Kubernetes.
package main

import (
	"os"

	"chancery.dev/internal/cli"
	"chancery.dev/internal/printable"
)

func main() {
	cli.LimitMemory(os.Getenv)
	root := cli.New()
	root.SetOut(printable.NewWriter(os.Stdout))
	root.SetErr(printable.NewWriter(os.Stderr))
	if err := root.ExecuteContext(cli.UntilStopped()); err != nil {
		root.PrintErrln("error:", err)
		os.Exit(1)
	}
}
