// Command chancery-dns writes the records of DNS-01 challenges with the providers of
// lego. Chancery runs it on demand, or reaches it over a Unix socket, and speaks the
// provider protocol with it (docs/dns-providers.md). It holds no credentials, reads no
// configuration and needs no rights in the cluster.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"

	"chancery.dev/dnsproviders/internal/adapter"
	"chancery.dev/dnsproviders/internal/catalog"
	"chancery.dev/internal/solver/dns01/wire"
)

// version is set at link time.
var version = "unknown"

// maxConnections bounds the processes that a socket's clients may cause.
const maxConnections = 32

const usage = `chancery-dns writes DNS records of ACME challenges, for Chancery.

  chancery-dns                    speak the provider protocol on standard input and output
  chancery-dns serve SOCKET       speak it on a Unix socket
  chancery-dns list               list the DNS providers
  chancery-dns describe NAME      say what a provider needs
  chancery-dns version            print the version

Start the controller with --dns01-provider-programs='*=/path/to/chancery-dns'.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "chancery-dns:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	switch {
	case len(args) == 0:
		if info, err := os.Stdin.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			_, err := io.WriteString(stdout, usage)
			return err
		}
		return wire.Serve(ctx, os.Stdin, stdout, &adapter.Adapter{})
	case len(args) == 2 && args[0] == "serve":
		return serve(ctx, args[1])
	case len(args) == 1 && args[0] == "list":
		return list(stdout)
	case len(args) == 2 && args[0] == "describe":
		return describe(stdout, args[1])
	case len(args) == 1 && args[0] == "version":
		_, err := fmt.Fprintln(stdout, version)
		return err
	case len(args) == 1 && slices.Contains([]string{"help", "--help", "-h"}, args[0]):
		_, err := io.WriteString(stdout, usage)
		return err
	}
	return fmt.Errorf("arguments %q are not known\n\n%s", args, usage)
}

// serve runs a process of its own for each connection: lego's configuration is the
// environment, which two credentials cannot share.
func serve(ctx context.Context, socket string) error {
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
			if err := converse(ctx, self, conn); err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "chancery-dns:", err)
			}
		}()
	}
}

// converse gives a connection to a process of its own. It is that of the process alone,
// and so ends with it, whatever the other side still waits for.
func converse(ctx context.Context, self string, conn *net.UnixConn) error {
	file, err := conn.File()
	if err = errors.Join(err, conn.Close()); err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // nothing is lost with a connection that is over
	cmd := exec.CommandContext(ctx, self)
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
