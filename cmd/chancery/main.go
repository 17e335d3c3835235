// Command chancery issues and renews TLS certificates in Kubernetes.
package main

import (
	"fmt"
	"os"

	"chancery.dev/internal/cli"
)

func main() {
	if err := cli.New().ExecuteContext(cli.UntilStopped()); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
