package cli

import (
	"os"
	"runtime/debug"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"chancery.dev/internal/app"
	"chancery.dev/internal/controller/injection"
)

// injectorPercent is Go's GOGC: the injector keeps little, and reads large objects, which are garbage at once.
const injectorPercent = 50

func newInjectorCommand() *cobra.Command {
	cmd, _ := newInjectorProcess()
	return cmd
}

// newInjectorProcess returns the command, and what its flags are read into.
func newInjectorProcess() (*cobra.Command, *process) {
	p := newProcess(injectorComponent())
	cmd := &cobra.Command{
		Use:   "cainjector",
		Short: "Write CA bundles into webhook configurations, APIServices and custom resource definitions",
		Long: `Cainjector writes CA bundles into objects whose annotations ask for them, until it is stopped. Run
"chancery install --cainjector=own" once before. Flags have the names and defaults of cert-manager's cainjector.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.run(cmd, func(rc *rest.Config, log logr.Logger) error {
				a, err := app.NewInjector(cmd.Context(), p.cfg, rc, log)
				if err != nil {
					return unreachable(rc, err)
				}
				if os.Getenv("GOGC") == "" {
					debug.SetGCPercent(injectorPercent)
					go func() {
						if a.Synced(cmd.Context()) {
							returnMemory(cmd.Context(), injectorPercent)
						}
					}()
				}
				return unreachable(rc, a.Run(cmd.Context()))
			})
		},
	}
	p.addFlags(cmd)
	f, cfg := cmd.Flags(), &p.cfg
	f.StringSliceVar(&cfg.Namespaces, "namespace", nil, "only namespaces whose Secrets and Certificates are sources; injectables belong to no namespace")
	f.StringSliceVar(&cfg.Injection.IgnoreNamespaces, "ignore-namespaces", nil, "namespaces whose Secrets and Certificates are no sources")
	f.BoolVar(&cfg.Injection.Certificates, "enable-certificates-data-source", cfg.Injection.Certificates, "let Certificates be sources, as soon as the API server serves them")
	for _, kind := range injection.Kinds() {
		f.BoolVar(cfg.Injection.Injectables[kind.Kind], "enable-"+strings.ToLower(kind.Kind)+"s-injectable", true, "inject into objects of the kind "+kind.Kind)
	}
	addProcessFlags(cmd, cfg)
	p.switches = addSwitches(cmd, cfg, p.of)
	return cmd, p
}
