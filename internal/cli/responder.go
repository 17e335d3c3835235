package cli

import (
	"github.com/spf13/cobra"

	"chancery.dev/internal/app"
)

func newResponderCommand() *cobra.Command {
	var server server
	cfg := app.DefaultResponderConfig()
	cmd := &cobra.Command{
		Use:   "responder",
		Short: "Answer HTTP-01 and TLS-ALPN-01 challenges",
		Long: `Responder answers the HTTP-01 challenges that are in flight, and where it is told to the TLS-ALPN-01 ones, until it is stopped. Run two or more replicas
behind a Service, with no other right than to read Challenges and Orders, and tell the controller of the Service by
--acme-http01-responder.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rc, log, err := server.begin(cmd)
			if err != nil {
				return err
			}
			m, err := app.NewResponder(cmd.Context(), cfg, rc, log)
			if err != nil {
				return err
			}
			return unreachable(rc, m.Start(cmd.Context()))
		},
	}
	server.addFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&cfg.Address, "listen-address", cfg.Address, "host:port to answer HTTP-01 challenges on")
	f.StringVar(&cfg.TLSALPN01Address, "tlsalpn01-listen-address", cfg.TLSALPN01Address, "host:port to answer TLS-ALPN-01 challenges on; empty for none")
	f.StringVar(&cfg.MetricsAddress, "metrics-listen-address", cfg.MetricsAddress, "host:port to serve /metrics on; 0 for none")
	f.StringVar(&cfg.HealthAddress, "internal-healthz-listen-address", cfg.HealthAddress, "host:port to serve /livez and /readyz on; 0 for none")
	f.StringSliceVar(&cfg.Namespaces, "namespace", nil, "only namespaces to answer for; all by default")
	return cmd
}
