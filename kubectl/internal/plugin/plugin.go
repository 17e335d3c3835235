// Package plugin holds the root command of kubectl-chancery, and the code that all its commands share: exit codes, and
// the connection to a cluster by the flags of kubectl.
//
// The commands themselves are in other packages.
package plugin

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"

	"chancery.dev/api"
	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/cli/terminal"
	"chancery.dev/internal/cli/version"
)

// Streams are where a command reads and writes.
type Streams = genericiooptions.IOStreams

// ExitError ends the process with a code of its own, for scripts. Without Err nothing more is printed.
type ExitError struct {
	Code int
	Err  error
}

// Error is what is printed before the process ends.
func (e ExitError) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

// Unwrap gives the error behind.
func (e ExitError) Unwrap() error { return e.Err }

// New returns the root command of kubectl-chancery.
func New(streams Streams) *cobra.Command {
	root := &cobra.Command{
		Use:           "kubectl-chancery",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl chancery"},
		Short:         "Shows and changes what Chancery does in a cluster",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	root.Version = version.Describe()
	return root
}

// Connect returns a client for the cluster that the flags of kubectl name. The client knows the kinds of api.Scheme; it
// reads other kinds as unstructured objects. It does not ask the API server where our own kinds are served: that would
// cost as many requests as the command itself.
func Connect(flags *genericclioptions.ConfigFlags) (client.WithWatch, error) {
	config, err := flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("no cluster to connect to: %w", err)
	}
	config.QPS = -1 // the API server protects itself: API Priority and Fairness
	scheme, err := api.Scheme()
	if err != nil {
		return nil, err
	}
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	others, err := apiutil.NewDynamicRESTMapper(config, http)
	if err != nil {
		return nil, err
	}
	mapper := meta.FirstHitRESTMapper{MultiRESTMapper: meta.MultiRESTMapper{known(), others}}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme, HTTPClient: http, Mapper: mapper})
	if err != nil {
		return nil, err
	}
	return placed(c), nil
}

// ConnectIn is like Connect, and also returns the namespace that the flags name.
func ConnectIn(flags *genericclioptions.ConfigFlags) (client.WithWatch, string, error) {
	namespace, _, err := flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, "", err
	}
	c, err := Connect(flags)
	return c, namespace, err
}

// known maps the kinds that most commands read.
func known() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"Certificate", "CertificateRequest", "Issuer"} {
		m.Add(certmanagerv1.SchemeGroupVersion().WithKind(kind), meta.RESTScopeNamespace)
	}
	m.Add(certmanagerv1.SchemeGroupVersion().WithKind("ClusterIssuer"), meta.RESTScopeRoot)
	for _, kind := range []string{"Order", "Challenge"} {
		m.Add(acmev1.SchemeGroupVersion().WithKind(kind), meta.RESTScopeNamespace)
	}
	m.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	m.Add(certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"), meta.RESTScopeRoot)
	m.Add(networkingv1.SchemeGroupVersion.WithKind("Ingress"), meta.RESTScopeNamespace)
	gateway := schema.GroupVersion{Group: gwapiv1.GroupName, Version: "v1"} // the plural that Add guesses is gatewaies
	m.AddSpecific(gateway.WithKind("Gateway"), gateway.WithResource("gateways"), gateway.WithResource("gateway"), meta.RESTScopeNamespace)
	return m
}

// Row writes a row of a table to a tabwriter. Text of strangers in a cell makes no cells and no rows.
func Row(w io.Writer, cells ...string) {
	for i, cell := range cells {
		cells[i] = terminal.Line(cell)
	}
	_, _ = fmt.Fprintln(w, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
}

// Cut shortens a text for a column of that width, which has room for a mark at least.
func Cut(s string, width int) string {
	width = max(width, 1)
	if runes := []rune(s); len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	return s
}
