// Command chancery-dns writes the records of DNS-01 challenges with lego's DNS providers. Chancery starts it on
// demand, or reaches it over a Unix socket; the two speak the provider protocol (docs/dns-providers.md). The command
// holds no credentials, reads no configuration and needs no rights in the cluster.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"

	legolog "github.com/go-acme/lego/v5/log"
	"github.com/spf13/cobra"

	"chancery.dev/dnsproviders/internal/adapter"
	"chancery.dev/dnsproviders/internal/catalog"
	"chancery.dev/internal/cli/logging"
	"chancery.dev/internal/cli/manual"
	"chancery.dev/internal/cli/terminal"
	"chancery.dev/internal/cli/version"
	"chancery.dev/internal/solver/dns01/wire"
)

// maxConnections bounds the processes that a socket's clients may cause.
const maxConnections = 32

//go:generate go test -count=1 -run ^TestReference$ . -update

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newCommand()
	root.SetOut(terminal.NewWriter(os.Stdout))
	root.SetErr(terminal.NewWriter(os.Stderr))
	if err := root.ExecuteContext(ctx); err != nil {
		root.PrintErrln("chancery-dns:", err)
		stop()
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	var log logging.Flags
	root := &cobra.Command{
		Use:   "chancery-dns",
		Short: "Writes DNS records of ACME challenges, for Chancery",
		Long: `Chancery-dns writes DNS records of ACME challenges, for Chancery. Without a command, it speaks the provider protocol on
standard input and output. Start the controller with --dns01-provider-programs='*=/path/to/chancery-dns'.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			handler, err := log.Handler(cmd.ErrOrStderr())
			if err == nil {
				legolog.SetDefault(slog.New(handler))
			}
			return err
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if info, err := os.Stdin.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
				return cmd.Help()
			}
			return speak(cmd.Context())
		},
	}
	root.CompletionOptions.DisableDefaultCmd = true
	log.Add(root.PersistentFlags())
	root.AddCommand(
		&cobra.Command{
			Use: "serve SOCKET", Short: "Speak the provider protocol on a Unix socket", Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error { return serve(cmd.Context(), args[0], log.Arguments()) },
		},
		&cobra.Command{
			Use: "list", Short: "List the DNS providers", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return list(cmd.OutOrStdout()) },
		},
		&cobra.Command{
			Use: "describe NAME", Short: "Say what a provider needs", Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error { return describe(cmd.OutOrStdout(), args[0]) },
		},
	)
	version.Add(root)
	manual.Add(root)
	return root
}

// speak speaks the provider protocol on standard input and output. Some providers print there too, such as the answer
// that they have got: that goes to standard error.
func speak(ctx context.Context) error {
	out := os.Stdout
	os.Stdout = os.Stderr
	return wire.Serve(ctx, os.Stdin, out, &adapter.Adapter{})
}

// serve runs a process of its own, with these flags, for each connection: lego's configuration is the
// environment, which two credentials cannot share.
func serve(ctx context.Context, socket string, flags []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("an old socket is in the way: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return err
	}
	if err := os.Chmod(socket, 0o660); err != nil { //nolint:gosec // a group is how another container of the Pod gets in
		return errors.Join(err, listener.Close())
	}
	context.AfterFunc(ctx, func() { _ = listener.Close() }) // Accept says it
	places := make(chan struct{}, maxConnections)
	for {
		conn, err := listener.AcceptUnix()
		switch {
		case err != nil && ctx.Err() == nil:
			return err
		case err != nil:
			return nil //nolint:nilerr // it was asked to end
		}
		places <- struct{}{}
		go func() {
			defer func() { <-places }()
			if err := converse(ctx, conn, self, flags); err != nil && ctx.Err() == nil {
				fmt.Fprintln(terminal.NewWriter(os.Stderr), "chancery-dns:", err)
			}
		}()
	}
}

// converse gives a connection to a process of its own. It is that of the process alone,
// and so ends with it, whatever the other side still waits for.
func converse(ctx context.Context, conn *net.UnixConn, self string, flags []string) error {
	file, err := conn.File()
	if err = errors.Join(err, conn.Close()); err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // nothing is lost with a connection that is over
	cmd := exec.CommandContext(ctx, self, flags...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = file, file, os.Stderr
	return cmd.Run()
}

func list(w io.Writer) error {
	all, err := catalog.Entries()
	if err != nil {
		return err
	}
	for _, e := range all {
		if _, err := fmt.Fprintf(w, "%-20s %s\n", e.Name, e.Title); err != nil {
			return err
		}
	}
	return nil
}

func describe(w io.Writer, name string) error {
	e, err := catalog.Find(name)
	if err != nil {
		return err
	}
	p := func(format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(w, format, args...)
		}
	}
	p("%s: %s\n%s\n", e.Name, e.Title, e.URL)
	if !e.Judged() {
		p("\nIts library has code for connections of its own, which the limits for Issuers (--issuer-egress-deny) may not hold.\n" +
			"Where Issuers may use it, a NetworkPolicy has to.\n")
	}
	for _, part := range []struct {
		title     string
		variables map[string]string
	}{{"Credentials, entries of the Secret", e.Credentials}, {"Settings, entries of config", e.Settings}} {
		if len(part.variables) == 0 {
			continue
		}
		p("\n%s:\n", part.title)
		for _, v := range slices.Sorted(maps.Keys(part.variables)) {
			p("  %-36s %s\n", v, part.variables[v])
		}
	}
	p("\nIn an issuer's solver:\n\n  dns01:\n    exec:\n      name: %s\n      config: {}\n      secretRef:\n        name: %s-credentials\n", e.Name, e.Name)
	return err
}
