package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"chancery.dev/internal/controller/trustbundles"
	"chancery.dev/internal/install"
)

func newInstallCommand() *cobra.Command {
	var connect connection
	var output string
	i := install.DefaultInstallation()
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install or upgrade the resource definitions, admission policies, roles and the responder of HTTP-01",
		Long: `Install applies, server-side, what a cluster needs before "chancery controller" can run: the custom
resource definitions, the admission policies, the namespace cert-manager with the controller's service account,
the roles, and the responder of HTTP-01 challenges, two pods of the image that you name by --image. It needs an
administrator's rights. It may be run again at any time, also to upgrade. With -o yaml it prints the objects, and
connects to no cluster.

A controller with its defaults then approves and signs CertificateSigningRequests for cert-manager.io/<ClusterIssuer>,
whoever creates them: see --csr-approval and --csr-needs-feature-gate of "chancery controller".`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case output == "yaml":
				return i.Print(cmd.OutOrStdout())
			case output != "":
				return fmt.Errorf("-o must be yaml, not %q", output)
			case i.KubernetesVersion != "":
				return errors.New("--kubernetes-version goes with -o yaml: a cluster is asked what it serves")
			}
			rc, err := connect.config()
			if err != nil {
				return err
			}
			return unreachable(rc, i.Apply(cmd.Context(), rc, func(what string) { fmt.Fprintln(cmd.OutOrStdout(), what) }))
		},
	}
	connect.addFlags(cmd)
	f := cmd.Flags()
	f.StringVarP(&output, "output", "o", "", "yaml prints what would be applied, and asks no cluster")
	addInstallFlags(cmd, &i)
	return cmd
}

func addInstallFlags(cmd *cobra.Command, i *install.Installation) {
	f := cmd.Flags()
	f.StringVar(&i.Namespace, "namespace", i.Namespace, "namespace to install in, which is also that of the Secrets that ClusterIssuers name")
	f.StringVar(&i.NamePrefix, "name-prefix", "", "beginning of the names of all objects outside of that namespace, such as team-; the definitions keep their names")
	f.StringVar(&i.LeaderElectionNamespace, "leader-election-namespace", "", "namespace of the leases (default kube-system, or that of --namespace with --only-namespaces)")
	f.StringSliceVar(&i.OnlyNamespaces, "only-namespaces", nil,
		"namespaces that the controller works in: it gets rights there only, and what is one for the cluster (definitions, policies, roles for users) is not installed")
	f.StringVar(&i.Image, "image", "", "image with the binary /chancery for all pods; without it, the one that each Deployment has, or else "+install.DefaultImage)
	f.BoolVar(&i.Controller, "controller", false, "install the pods of the controller, too")
	f.BoolVar(&i.Responder, "responder", true, "install the pods of the responder of HTTP-01, too")
	f.BoolVar(&i.ForceConflicts, "force-conflicts", false, "take over fields that others manage, as those of a cert-manager that was installed before")
	f.BoolVar(&i.OwnTokens, "own-service-account-tokens", false,
		"let the controller ask for tokens of its own service account, which Vault issuers can name then; without it, the right is taken away")
	f.BoolVar(&i.PodCertificates, "pod-certificates", false, "let the controller sign PodCertificateRequests (--pod-certificates of chancery controller); without it, the right is taken away")
	addFlag(cmd, "trust-bundles", "issuers whose roots the controller may write into ClusterTrustBundles (--trust-bundles of chancery controller): "+
		"none, which takes the right away, cluster-issuers or all", string(trustbundles.None), func(text string) error {
		i.TrustBundles = trustbundles.Issuers(text)
		return i.TrustBundles.Validate()
	})
	f.StringVar(&i.KubernetesVersion, "kubernetes-version", "",
		"version of the cluster to print for, such as 1.33: without policies that it does not serve; all by default, which needs 1.36")
	addFlag(cmd, "cainjector", "which process injects CA bundles, and gets the rights for it: own (chancery cainjector), controller "+
		"(chancery controller --enable-cainjector) or none, which leaves the rights as they are", string(i.Injecting), func(text string) error {
		i.Injecting = install.Injecting(text)
		return i.Injecting.Validate()
	})
	addFlag(cmd, "webhook", "whether to install the webhook that fills in who makes a CertificateRequest, where the API server does not, and what becomes "+
		"of requests while the webhook is down: ignore (they are admitted as they are), fail (they are refused, but for the controller's own) or none, "+
		"which leaves things as they are", string(i.Webhook), func(text string) error {
		i.Webhook = install.WebhookPolicy(text)
		return i.Webhook.Validate()
	})
}
