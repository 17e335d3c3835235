package change

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cli/terminal"
	"chancery.dev/internal/clientside/explain"
	"chancery.dev/internal/clientside/preflight"
	"chancery.dev/kubectl/internal/plugin"
)

const rotateExamples = `  # The key of an Issuer's ACME account
  kubectl chancery rotate-account-key letsencrypt

  # Of a ClusterIssuer, in a script: ask nothing, and end when the new key is in use
  kubectl chancery rotate-account-key clusterissuer/letsencrypt --yes --wait`

// rotator is one run of rotate-account-key.
type rotator struct {
	flags   *genericclioptions.ConfigFlags
	yes     bool
	wait    bool
	timeout time.Duration

	streams plugin.Streams
	client  client.Client
	name    string
}

func newRotate(streams plugin.Streams) *cobra.Command {
	r := &rotator{flags: genericclioptions.NewConfigFlags(true), streams: streams}
	cmd := &cobra.Command{
		Use:   "rotate-account-key ISSUER | clusterissuer/NAME",
		Short: "Gives the ACME account of an issuer a new key",
		Long: "Has the key of an issuer's ACME account replaced. The account stays, with its limits and authorizations. The old key,\n" +
			"and each copy of it, is worthless afterwards. You need the right to patch the issuer.",
		Example: rotateExamples,
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return r.run(cmd.Context(), args[0]) },

		ValidArgsFunction: plugin.Complete(1, plugin.Issuers()...),
	}
	f := cmd.Flags()
	r.flags.AddFlags(f)
	f.BoolVarP(&r.yes, "yes", "y", false, "do not ask whether to go on")
	f.BoolVar(&r.wait, "wait", false, "end when the new key is in use; the exit status is 1 if it is not")
	f.DurationVar(&r.timeout, "timeout", 5*time.Minute, "how long to wait for the controller")
	return cmd
}

func (r *rotator) run(ctx context.Context, arg string) error {
	c, namespace, err := plugin.ConnectIn(r.flags)
	if err != nil {
		return err
	}
	r.client = c
	issuer, err := issuerOf(arg, namespace)
	if err != nil {
		return err
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(issuer), issuer); err != nil {
		return err
	}
	r.name = explain.Name(explain.KindOf(issuer), issuer.GetNamespace(), issuer.GetName())
	switch spec := issuer.GetSpec(); {
	case spec.ACME == nil:
		return fmt.Errorf("%s is not an ACME issuer: there is no account", r.name)
	case spec.ACME.DisableAccountKeyGeneration:
		return fmt.Errorf("%s has disableAccountKeyGeneration: a new key would have to be generated: unset the field first", r.name)
	}
	fmt.Fprintf(r.streams.Out, "%s: its ACME account gets a new key. The account stays. Copies of the old key are worthless afterwards.\n", r.name)
	r.warn(ctx, issuer)
	if err := plugin.Confirm(r.streams, r.yes); err != nil {
		return err
	}
	value := time.Now().UTC().Format(time.RFC3339Nano)
	failedBefore := failed(issuer)
	if err := annotate(ctx, c, issuer, map[string]any{acmev1.RotateAccountKeyAnnotation: value}); err != nil {
		return err
	}
	if r.wait {
		return r.follow(ctx, issuer, value, failedBefore)
	}
	fmt.Fprintf(r.streams.Out, "%s: the key is being replaced; see the condition Ready: kubectl describe %s\n", r.name, arg)
	return nil
}

// warn lists the names that are proved by a record that stays: a CA at which such a record names the account by its key
// (draft-ietf-acme-dns-persist after -01) takes these records no longer.
func (r *rotator) warn(ctx context.Context, issuer certmanagerv1.GenericIssuer) {
	acme := issuer.GetSpec().ACME
	if !slices.ContainsFunc(acme.Solvers, func(s acmev1.ACMEChallengeSolver) bool { return s.DNSPersist01 != nil }) {
		return
	}
	all := &certmanagerv1.CertificateList{}
	if err := r.client.List(ctx, all, client.InNamespace(issuer.GetNamespace())); err != nil {
		fmt.Fprintf(r.streams.Out, "Names of Certificates may be proved by a record that stays (dnsPersist01). They cannot be listed: %s\n", terminal.Line(err.Error()))
		return
	}
	var names []string
	for i := range all.Items {
		if !all.Items[i].Spec.IssuerRef.Equivalent(cmmeta.IssuerReference{Name: issuer.GetName(), Kind: explain.KindOf(issuer)}) {
			continue
		}
		proofs, _ := preflight.Proofs(&all.Items[i], acme)
		for _, p := range proofs {
			if p.Type == acmev1.ChallengeTypeDNSPersist01 {
				names = append(names, p.Display())
			}
		}
	}
	if names = slices.Compact(slices.Sorted(slices.Values(names))); len(names) == 0 {
		return
	}
	fmt.Fprintf(r.streams.Out, "These names of Certificates are proved by a record that stays (dnsPersist01): %s. If the records name the account by its address "+
		"(status.acme.uri), nothing changes. If they name it by a hash, as drafts after -01 do, the records have to be written anew before the next renewal. "+
		"See https://chancery.dev/docs/dns-providers#a-record-that-stays\n", terminal.Line(strings.Join(names, ", ")))
}

// issuerOf is the empty issuer that an argument names.
func issuerOf(arg, namespace string) (certmanagerv1.GenericIssuer, error) {
	kind, name, given := strings.Cut(arg, "/")
	if !given {
		kind, name = "issuer", arg
	}
	switch strings.ToLower(kind) {
	case "issuer", "issuers", "iss":
		issuer := &certmanagerv1.Issuer{}
		issuer.Namespace, issuer.Name = namespace, name
		return issuer, nil
	case "clusterissuer", "clusterissuers", "ciss":
		issuer := &certmanagerv1.ClusterIssuer{}
		issuer.Name = name
		return issuer, nil
	default:
		return nil, fmt.Errorf("%s: name an issuer, as in letsencrypt, issuer/letsencrypt or clusterissuer/letsencrypt", arg)
	}
}

// failed says why the key of an issuer's account was not replaced; empty if nothing failed.
func failed(issuer certmanagerv1.GenericIssuer) string {
	c := certmanagerv1.FindIssuerCondition(issuer.GetStatus().Conditions, certmanagerv1.IssuerConditionReady)
	if c == nil || c.Reason != certmanagerv1.IssuerReasonErrReplaceACMEAccountKey {
		return ""
	}
	return c.Message
}

// follow waits until the account has its new key. A failure that was there before may be the one of an earlier try.
func (r *rotator) follow(ctx context.Context, issuer certmanagerv1.GenericIssuer, value, failedBefore string) error {
	progress := plugin.StartProgress(r.streams, false, "waiting for the controller")
	defer progress.Stop()
	help := "see what is wrong with the issuer: kubectl chancery issuers; if nothing changes there: kubectl get pods -n cert-manager"
	err := plugin.Await(ctx, progress, r.timeout, help, func(ctx context.Context) (string, error) {
		if err := r.client.Get(ctx, client.ObjectKeyFromObject(issuer), issuer); err != nil {
			return "", err
		}
		if acme := issuer.GetStatus().ACME; acme != nil && acme.LastKeyRotation == value {
			return "", nil
		}
		if now := failed(issuer); now != failedBefore && now != "" {
			return "", errors.New(now)
		}
		c := certmanagerv1.FindIssuerCondition(issuer.GetStatus().Conditions, certmanagerv1.IssuerConditionReady)
		if c == nil {
			return "the controller has not looked at the issuer yet", nil
		}
		return c.Message, nil
	})
	if err == nil {
		fmt.Fprintf(r.streams.Out, "%s: the account has its new key\n", r.name)
	}
	return err
}
