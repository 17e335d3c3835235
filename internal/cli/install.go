package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"chancery.dev/internal/app"
)

func newInstallCommand() *cobra.Command {
	var connect connection
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install or upgrade the resource definitions, admission policies and roles",
		Long: `Install applies, server-side, what a cluster needs before "chancery controller" can run: the custom
resource definitions, the admission policies, the namespace cert-manager with the controller's service account,
and the roles. It needs an administrator's rights. It may be run again at any time, also to upgrade.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rc, err := connect.config()
			if err != nil {
				return err
			}
			err = app.Install(cmd.Context(), rc, func(what string) { _, _ = fmt.Fprintln(cmd.OutOrStdout(), what) })
			return unreachable(rc, err)
		},
	}
	connect.addFlags(cmd)
	return cmd
}
