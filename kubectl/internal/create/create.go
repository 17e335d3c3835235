// Package create holds the commands that ask an issuer for a certificate and keep the private key in a file on the
// user's machine. A command makes a CertificateRequest, or a Kubernetes CertificateSigningRequest.
//
// Each command takes the flags of the cmctl command with the same name. The commands make requests in the same way as
// the controller does for Certificates.
package create

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/clientside/explain"
	"chancery.dev/internal/machine/certificate"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/pki"
	"chancery.dev/kubectl/internal/plugin"
)

// options are the flags.
type options struct {
	flags    *genericclioptions.ConfigFlags
	streams  plugin.Streams
	from     string
	names    []string
	issuer   string
	keyFile  string
	certFile string
	fetch    bool
	timeout  time.Duration
}

// request is a kind of request for a certificate.
type request interface {
	// object to create.
	object() client.Object
	// answer says what the request waits for; issued is the certificate once it has come. An error says that none
	// will come.
	answer() (waitsFor string, issued []byte, err error)
	// help says how to see what the request waits for, and how to approve it.
	help() string
}

// maker makes a request from what is asked for, which the CertificateRequest holds.
type maker func(*certmanagerv1.CertificateRequest) (request, error)

// New returns the command create.
func New(streams plugin.Streams) *cobra.Command {
	cmd := &cobra.Command{Use: "create", Short: "Asks an issuer for a certificate whose private key stays with you"}
	asked := newCommand(streams, newOwn)
	asked.Use, asked.Aliases, asked.Short = "request NAME", []string{"certificaterequest", "cr"}, "Makes a private key and a CertificateRequest for it"
	asked.Long = "Makes a private key, which stays in a file of yours, and a CertificateRequest for it: for names that you give, or for\n" +
		"what a Certificate in a file says. --fetch-certificate waits until the certificate is issued, and writes it into a file."
	asked.Example = `  # A certificate for a host outside the cluster
  kubectl chancery create request db --dns-names db.example.com --issuer clusterissuer/letsencrypt --fetch-certificate

  # What a Certificate asks for; the private key goes into web.key
  kubectl chancery create request web --from-certificate-file web.yaml`
	cmd.AddCommand(asked, newSigning(streams))
	return cmd
}

// NewExperimental returns the command experimental, where cmctl has the command for CertificateSigningRequests.
func NewExperimental(streams plugin.Streams) *cobra.Command {
	cmd := &cobra.Command{Use: "experimental", Aliases: []string{"x"}, Short: "Has create certificatesigningrequest, as cmctl does", Hidden: true}
	below := &cobra.Command{Use: "create", Short: "Makes requests"}
	below.AddCommand(newSigning(streams))
	cmd.AddCommand(below)
	return cmd
}

func newSigning(streams plugin.Streams) *cobra.Command {
	cmd := newCommand(streams, newKubernetes)
	cmd.Use, cmd.Aliases, cmd.Short = "certificatesigningrequest NAME", []string{"csr"}, "Makes a private key and a CertificateSigningRequest for it"
	cmd.Long = "Makes a private key, which stays in a file of yours, and a CertificateSigningRequest of Kubernetes for it. If nobody\n" +
		"approves it by a rule, do so with kubectl certificate approve."
	cmd.Example = `  kubectl chancery create csr agent --dns-names agent.example.com --issuer clusterissuer/ca
  kubectl chancery create csr agent -f agent.yaml -k agent.key -c agent.crt -w`
	return cmd
}

func newCommand(streams plugin.Streams, create maker) *cobra.Command {
	o := &options{flags: genericclioptions.NewConfigFlags(true), streams: streams}
	cmd := &cobra.Command{
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0], create) },
	}
	f := cmd.Flags()
	o.flags.AddFlags(f)
	f.StringVarP(&o.from, "from-certificate-file", "f", "", "file with a Certificate, which says what to ask for")
	f.StringSliceVar(&o.names, "dns-names", nil, "DNS names to ask for, in place of a Certificate")
	f.StringVar(&o.issuer, "issuer", "", "issuer to ask, in place of a Certificate's: a name, or as in clusterissuer/letsencrypt")
	f.StringVarP(&o.keyFile, "output-key-file", "k", "", "file to write the private key to, which must not exist (default NAME.key)")
	f.StringVarP(&o.certFile, "output-certificate-file", "c", "", "file to write the certificate to, which must not exist (default NAME.crt)")
	f.BoolVarP(&o.fetch, "fetch-certificate", "w", false, "wait until the certificate is issued, and write it to a file")
	f.DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long to wait for the certificate")
	return cmd
}

func (o *options) run(ctx context.Context, name string, create maker) error {
	if o.certFile != "" && !o.fetch {
		return errors.New("--output-certificate-file goes with --fetch-certificate")
	}
	if o.keyFile == "" {
		o.keyFile = name + ".key"
	}
	if o.certFile == "" {
		o.certFile = name + ".crt"
	}
	if _, err := os.Lstat(o.certFile); o.fetch && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s exists already: remove it, or name another file with --output-certificate-file", o.certFile)
	}
	c, namespace, err := plugin.ConnectIn(o.flags)
	if err != nil {
		return err
	}
	crt, err := o.wanted(name, namespace)
	if err != nil {
		return err
	}
	key, err := pki.GenerateKey(facts.KeySpecOf(&crt.Spec))
	if err != nil {
		return err
	}
	asked, err := certificate.NewRequest(crt, certificate.Action{Name: name}, key, certificate.DefaultAnnotationFilter())
	if err != nil {
		return err
	}
	// No Certificate has asked for it.
	asked.OwnerReferences = nil
	delete(asked.Annotations, certmanagerv1.CertificateRevisionAnnotation)
	delete(asked.Annotations, certmanagerv1.CertificateNameAnnotation)
	r, err := create(asked)
	if err != nil {
		return err
	}
	text, err := facts.EncodeKey(crt, key)
	if err != nil {
		return err
	}
	if err := write(o.keyFile, text, "output-key-file"); err != nil {
		return err
	}
	if err := c.Create(ctx, r.object()); err != nil {
		return errors.Join(err, os.Remove(o.keyFile)) // nobody has seen a certificate for it
	}
	called := explain.Name(explain.KindOf(r.object()), r.object().GetNamespace(), name)
	fmt.Fprintf(o.streams.Out, "%s: created, its private key is in %s\n", called, o.keyFile)
	if !o.fetch {
		fmt.Fprintf(o.streams.Out, "%s\n", r.help())
		return nil
	}
	return o.await(ctx, c, r, called)
}

// await waits until a request is answered, and writes the certificate.
func (o *options) await(ctx context.Context, c client.Reader, r request, called string) error {
	p := plugin.StartProgress(o.streams, false, "wait for the certificate")
	defer p.Stop()
	var issued []byte
	err := plugin.Await(ctx, p, o.timeout, r.help(), func(ctx context.Context) (waitsFor string, err error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(r.object()), r.object()); err != nil {
			return "", err
		}
		waitsFor, issued, err = r.answer()
		return waitsFor, err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", called, err)
	}
	if err := write(o.certFile, issued, "output-certificate-file"); err != nil {
		return err
	}
	fmt.Fprintf(o.streams.Out, "%s: issued, its certificate is in %s\n", called, o.certFile)
	return nil
}

// write writes a file that must not be there yet, for the user alone.
func write(name string, text []byte, flag string) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists already: remove it, or name another file with --%s", name, flag)
	}
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Close())
}
