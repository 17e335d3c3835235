package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"chancery.dev/internal/app"
)

func newInstallCommand() *cobra.Command {
	var connect connection
	var image string
	var responder bool
	injecting := app.InjectingNone
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install or upgrade the resource definitions, admission policies, roles and the responder of HTTP-01",
		Long: `Install applies, server-side, what a cluster needs before "chancery controller" can run: the custom
resource definitions, the admission policies, the namespace cert-manager with the controller's service account,
the roles, and the responder of HTTP-01 challenges, two pods of the image that you name by --image. It needs an
administrator's rights. It may be run again at any time, also to upgrade.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rc, err := connect.config()
			if err != nil {
				return err
			}
			said := func(what string) { _, _ = fmt.Fprintln(cmd.OutOrStdout(), what) }
			err = app.Install(cmd.Context(), rc, said)
			if err == nil && responder {
				err = app.InstallResponder(cmd.Context(), rc, image, said)
			}
			if err == nil {
				err = app.InstallInjector(cmd.Context(), rc, injecting, said)
			}
			return unreachable(rc, err)
		},
	}
	connect.addFlags(cmd)
	cmd.Flags().StringVar(&image, "image", "",
		"image with the binary /chancery for the responder of HTTP-01; without it, the one that the responder has, or else "+app.DefaultImage)
	cmd.Flags().BoolVar(&responder, "responder", true, "install the pods of the responder of HTTP-01, too")
	addFlag(cmd, "cainjector", "which process injects CA bundles, and gets the rights for it: own (chancery cainjector), controller "+
		"(chancery controller --enable-cainjector) or none, which leaves the rights as they are", string(injecting), func(text string) error {
		injecting = app.Injecting(text)
		return injecting.Validate()
	})
	return cmd
}
