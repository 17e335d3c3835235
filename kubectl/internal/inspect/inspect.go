// Package inspect is the command that reads certificates and requests for certificates, and says what is wrong with
// them. The command checks the names, the private key, the chain, the validity and the revocation.
//
// The command changes nothing in the cluster, and never prints a private key.
package inspect

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"chancery.dev/internal/egress"
	"chancery.dev/internal/limits"
	"chancery.dev/kubectl/internal/plugin"
	"chancery.dev/kubectl/internal/status"
)

// found is the exit status if something is wrong.
const found = 2

// options are the flags of the three commands.
type options struct {
	flags      *genericclioptions.ConfigFlags
	in         io.Reader
	output     string
	offline    bool
	local      bool
	timeout    time.Duration
	rootsFile  string
	serverName string
}

// New returns the command inspect.
func New(streams plugin.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inspect",
		Short: "Takes certificates and requests for certificates apart, and says what is wrong with them",
		Long: "Takes certificates and requests for certificates apart, and says what is wrong with them. The exit status is 2 if\n" +
			"something is wrong, and 0 if nothing is. What cannot be found out is called unknown, and is not wrong.",
	}
	cmd.AddCommand(newSecret(streams), newChain(streams), newCSR(streams))
	return cmd
}

func newSecret(streams plugin.Streams) *cobra.Command {
	cmd, o := newCommand(streams, (*options).secret)
	cmd.Use, cmd.Short = "secret NAME", "Says whether the certificate in a Secret is good"
	cmd.Long = "Shows the certificates of a Secret, and says whether the names are those that the Certificate asks for, whether the\n" +
		"private key belongs to the certificate, whether the chain is in order, complete, and trusted by ca.crt or else by the\n" +
		"roots of this computer, whether a certificate is revoked, and when the ACME server wants the certificate to be renewed.\n" +
		"It needs the right to read the Secret. No private key is printed."
	cmd.Example = `  # Is everything right with the certificate in this Secret?
  kubectl chancery inspect secret web-tls

  # The same for programs, and nobody outside the cluster is asked
  kubectl chancery inspect secret web-tls --no-network -o json`
	o.networked(cmd)
	return cmd
}

func newChain(streams plugin.Streams) *cobra.Command {
	cmd, o := newCommand(streams, (*options).chain)
	cmd.Use, cmd.Short = "chain HOST[:PORT] | FILE | secret/NAME", "Says whether the chain that a server sends, or a file has, is good"
	cmd.Long = "Shows the certificates that a server sends, or that a file or a Secret has, and says whether the chain is in order,\n" +
		"complete and trusted, whether it is for the host name, and whether a certificate is revoked. - reads standard input."
	cmd.Example = `  # What does a server send?
  kubectl chancery inspect chain www.example.com
  kubectl chancery inspect chain 192.0.2.1:8443 --server-name www.example.com

  # A file, which a CA of your own has signed
  kubectl chancery inspect chain fullchain.pem --ca-file root.pem`
	o.networked(cmd)
	cmd.Flags().StringVar(&o.serverName, "server-name", "", "host name to ask the server for, and to find in the certificate")
	return cmd
}

func newCSR(streams plugin.Streams) *cobra.Command {
	cmd, _ := newCommand(streams, (*options).csr)
	cmd.Use, cmd.Short = "csr NAME | FILE", "Says what a request for a certificate asks for"
	cmd.Long = "Shows what a certificate signing request asks for, and says whether its own key has signed it, whether it asks for what\n" +
		"its Certificate does, and whether the certificate that was issued is for its key. NAME is a CertificateRequest of the\n" +
		"namespace, or else a CertificateSigningRequest. - reads standard input."
	cmd.Example = `  kubectl chancery inspect csr web-1
  kubectl chancery inspect csr request.pem`
	return cmd
}

// newCommand returns one of the three commands: look makes its report.
func newCommand(streams plugin.Streams, look func(*options, context.Context, string) (*Report, error)) (*cobra.Command, *options) {
	o := &options{flags: genericclioptions.NewConfigFlags(true), in: streams.In}
	cmd := &cobra.Command{
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains([]string{"", "json", "yaml"}, o.output) {
				return fmt.Errorf("--output is json or yaml, not %q", o.output)
			}
			p := plugin.StartProgress(streams, o.output != "", "look at "+args[0]+" and ask what is known of it")
			r, err := look(o, cmd.Context(), args[0])
			p.Stop()
			if err != nil {
				return err
			}
			if o.output == "" {
				r.print(streams.Out)
			} else if err := status.Encode(streams.Out, o.output, []*Report{r}); err != nil {
				return err
			}
			if slices.ContainsFunc(r.Checks, func(c Check) bool { return c.Result == Wrong }) {
				return plugin.ExitError{Code: found}
			}
			return nil
		},
	}
	o.flags.AddFlags(cmd.Flags())
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "json or yaml")
	return cmd, o
}

// networked adds the flags of commands that verify a chain.
func (o *options) networked(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.offline, "no-network", false, "leave out what only servers outside the cluster know: revocation and renewal information")
	f.BoolVar(&o.local, "allow-local", false, "ask the servers that certificates and Issuers name on this computer, on its link and in its cloud's metadata, too")
	f.DurationVar(&o.timeout, "timeout", 10*time.Second, "longest time that a server may take for one answer")
	f.StringVar(&o.rootsFile, "ca-file", "", "PEM file with the CA certificates to trust, in place of ca.crt and the roots of this computer")
}

// egress says to which addresses this program may connect for a server that a certificate or an Issuer names. Without
// it, the author of a certificate could make the user's computer ask services that trust this computer.
func (o *options) egress() *egress.Policy {
	if o.local {
		return nil
	}
	return egress.New(nil, nil)
}

// read returns what a file holds; - is standard input.
func (o *options) read(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(io.LimitReader(o.in, maxFile))
	}
	return os.ReadFile(name)
}

// maxFile bounds what is read from standard input, in bytes.
const maxFile = limits.InspectedFile
