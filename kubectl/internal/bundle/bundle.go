// Package bundle holds the command support-bundle. The command collects, without secrets, the state of a cluster's
// certificates in one file, for a person who helps the user. The command repairs nothing.
package bundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"chancery.dev/kubectl/internal/plugin"
	"chancery.dev/kubectl/internal/waits"
)

const examples = `  # About the certificates of one namespace
  kubectl chancery support-bundle -n shop

  # About all namespaces, without host names
  kubectl chancery support-bundle -A --redact-names -o bundle.tar.gz`

// options are the flags of the command.
type options struct {
	flags  *genericclioptions.ConfigFlags
	all    bool
	file   string
	hide   bool
	source waits.Source
}

// New returns the command support-bundle.
func New(streams plugin.Streams) *cobra.Command {
	o := &options{flags: genericclioptions.NewConfigFlags(true)}
	cmd := &cobra.Command{
		Use:   "support-bundle",
		Short: "Gathers what somebody needs who is to help, without secrets, in one file",
		Long: "Writes an archive with versions, certificates and what was made for them, issuers, events, the Deployments, Pods, logs\n" +
			"and metrics of the controller, and what everything waits for. Data of Secrets is never asked for; private keys,\n" +
			"tokens, passwords and e-mail addresses are taken out. What you may not read is named in the README of the archive.\n" +
			"Look through the archive before you send it.",
		Example: examples,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), streams) },
	}
	f := cmd.Flags()
	o.flags.AddFlags(f)
	f.BoolVarP(&o.all, "all-namespaces", "A", false, "gather the objects of all namespaces")
	f.StringVarP(&o.file, "output", "o", "", "file to write (default: chancery-support- and the time, .tar.gz, in this directory)")
	f.BoolVar(&o.hide, "redact-names", false, "replace host names by pseudonyms; names of objects stay")
	o.source.AddFlags(f)
	return cmd
}

func (o *options) run(ctx context.Context, streams plugin.Streams) error {
	c, namespace, err := plugin.ConnectIn(o.flags)
	if err != nil {
		return err
	}
	if o.all {
		namespace = ""
	}
	config, err := o.flags.ToRESTConfig()
	if err != nil {
		return err
	}
	if err := reach(config); err != nil {
		return err
	}
	now := time.Now()
	if o.file == "" {
		o.file = "chancery-support-" + now.UTC().Format("20060102-150405") + ".tar.gz"
	}
	out, err := newArchive(o.file, now)
	if err != nil {
		return err
	}
	g := &gatherer{
		redactor: &redactor{}, archive: out, client: c, config: config, namespace: namespace, home: o.source.Controller,
		secrets: map[types.NamespacedName]bool{}, seen: map[types.UID]bool{},
		progress: plugin.StartProgress(streams, false, "reading the objects"),
	}
	if o.hide {
		g.pseudonyms = map[string]string{}
	}
	err = g.all(ctx, func(ctx context.Context) (any, error) { return o.source.Read(ctx, o.flags) })
	g.progress.Stop()
	var readme bytes.Buffer
	g.readme(&readme, o.hide)
	if err = errors.Join(err, g.put("README", []byte(g.text(readme.String()))), out.close(), ctx.Err()); err != nil {
		return errors.Join(err, os.Remove(o.file))
	}
	for _, what := range g.lacks {
		fmt.Fprintln(streams.ErrOut, "left out:", g.text(what))
	}
	fmt.Fprintf(streams.Out, "%s has %d files, without secrets in the forms that are known. Look through it before you send it: tar -xzf %[1]s; its README says what was left out\n",
		o.file, len(g.has))
	return nil
}

// reach returns an error if nothing answers at the address of the API server: an archive would have nothing in it.
func reach(config *rest.Config) error {
	set, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	var away *url.Error
	if _, err := set.Discovery().ServerVersion(); errors.As(err, &away) {
		return err
	}
	return nil
}
