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
	injecting, webhook := app.InjectingNone, app.WebhookNone
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
			if err == nil {
				err = app.InstallWebhook(cmd.Context(), rc, webhook, image, said)
			}
			return unreachable(rc, err)
		},
	}
	connect.addFlags(cmd)
	cmd.Flags().StringVar(&image, "image", "",
		"image with the binary /chancery for the responder of HTTP-01 and the webhook; without it, the one that each has, or else "+app.DefaultImage)
	cmd.Flags().BoolVar(&responder, "responder", true, "install the pods of the responder of HTTP-01, too")
	addFlag(cmd, "cainjector", "which process injects CA bundles, and gets the rights for it: own (chancery cainjector), controller "+
		"(chancery controller --enable-cainjector) or none, which leaves the rights as they are", string(injecting), func(text string) error {
		injecting = app.Injecting(text)
		return injecting.Validate()
	})
	addFlag(cmd, "webhook", "whether to install the webhook that fills in who makes a CertificateRequest, where the API server does not, and what becomes "+
		"of requests while the webhook is down: ignore (they are admitted as they are), fail (they are refused, but for the controller's own) or none, "+
		"which leaves things as they are", string(webhook), func(text string) error {
		webhook = app.WebhookPolicy(text)
		return webhook.Validate()
	})
	return cmd
}
