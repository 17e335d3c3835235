// Command chancery issues and renews TLS certificates in Kubernetes.
package main

import (
	"fmt"
	"os"

	"chancery.dev/internal/cli"
)

// version is set at link time (-X main.version=…).
var version = "unknown"

func main() {
	if err := cli.New(version).ExecuteContext(cli.UntilStopped()); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
