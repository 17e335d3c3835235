package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"

	"chancery.dev/internal/install"
)

// triesFor is how long the check waits for an answer.
const triesFor = 10 * time.Second

// newCheckCommand has the name and the flags of cert-manager's startupapicheck (spec §9.3).
func newCheckCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "check", Short: "Check what is installed", Args: cobra.NoArgs}
	cmd.AddCommand(newCheckAPICommand())
	return cmd
}

func newCheckAPICommand() *cobra.Command {
	var connect connection
	var patience, interval time.Duration
	var namespace string
	var verbose bool
	cmd := &cobra.Command{
		Use:   "api",
		Short: "Check that the API server serves and validates CertificateRequests",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rc, err := connect.config()
			if err != nil {
				return err
			}
			rc.Timeout = triesFor
			try := func(context.Context) (bool, error) {
				// The end of --wait does not interrupt a try: its answer is the reason.
				if err = install.CheckAPI(cmd.Context(), rc, namespace); err != nil && verbose {
					cmd.PrintErrln("not ready:", err)
				}
				return err == nil, nil
			}
			if done, _ := try(cmd.Context()); !done && patience > 0 {
				_ = wait.PollUntilContextTimeout(cmd.Context(), interval, patience, false, try)
			}
			if err != nil {
				return fmt.Errorf("the API is not ready: %w", unreachable(rc, err))
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "The API is ready")
			return err
		},
	}
	connect.addFlags(cmd)
	f := cmd.Flags()
	f.DurationVar(&patience, "wait", 0, "how long to try again while the API is not ready")
	f.DurationVar(&interval, "interval", 5*time.Second, "how long to wait between tries")
	f.StringVar(&namespace, "namespace", "default", "namespace in which the user may create CertificateRequests; nothing is stored there")
	f.BoolVarP(&verbose, "verbose", "v", false, "say after each try what is missing")
	return cmd
}
