package change

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/clientside/explain"
	"chancery.dev/internal/machine/revocation"
	"chancery.dev/kubectl/internal/plugin"
)

const revokeExamples = `  # The private key of the certificate has leaked: replace both, and revoke the certificate
  kubectl chancery revoke web --reason keyCompromise

  # In a script: ask nothing, and end when the CA has revoked the certificate
  kubectl chancery revoke web --reason superseded --yes --wait

  # Call it off
  kubectl chancery revoke web --cancel`

// revoker is one run of revoke.
type revoker struct {
	flags   *genericclioptions.ConfigFlags
	reason  string
	cancel  bool
	yes     bool
	wait    bool
	timeout time.Duration

	streams plugin.Streams
	client  client.Client
	key     client.ObjectKey
}

// reasons are the values of --reason, those first that people need most.
func reasons() []string {
	return []string{
		string(revocation.KeyCompromise), string(revocation.Superseded), string(revocation.AffiliationChanged),
		string(revocation.CessationOfOperation), string(revocation.Unspecified),
	}
}

func inWords(values []string) string {
	last := len(values) - 1
	return strings.Join(values[:last], ", ") + " or " + values[last]
}

func newRevoke(streams plugin.Streams) *cobra.Command {
	r := &revoker{flags: genericclioptions.NewConfigFlags(true), streams: streams}
	cmd := &cobra.Command{
		Use:   "revoke CERTIFICATE",
		Short: "Replaces a certificate, and has its CA revoke it",
		Long: "Has the certificate that is in the Secret now replaced, and then revoked by its CA. For keyCompromise, the replacement\n" +
			"has a new private key. You need the right to patch the Certificate: the role edit has it.",
		Example: revokeExamples,
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return r.run(cmd.Context(), args[0]) },

		ValidArgsFunction: plugin.Complete(1, plugin.Certificates()),
	}
	f := cmd.Flags()
	r.flags.AddFlags(f)
	f.StringVar(&r.reason, "reason", "", inWords(reasons()))
	_ = cmd.RegisterFlagCompletionFunc("reason", cobra.FixedCompletions(reasons(), cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	f.BoolVar(&r.cancel, "cancel", false, "call a revocation off, before the CA is asked")
	f.BoolVarP(&r.yes, "yes", "y", false, "do not ask whether to go on")
	f.BoolVar(&r.wait, "wait", false, "end when the certificate is revoked; the exit status is 1 if it is not")
	f.DurationVar(&r.timeout, "timeout", 5*time.Minute, "how long to wait for the controller")
	cmd.MarkFlagsMutuallyExclusive("reason", "cancel")
	cmd.MarkFlagsOneRequired("reason", "cancel")
	return cmd
}

func (r *revoker) run(ctx context.Context, name string) error {
	if _, err := revocation.ParseReason(r.reason); err != nil && !r.cancel {
		return fmt.Errorf("--reason is %s, not %q", inWords(reasons()), r.reason)
	}
	c, namespace, err := plugin.ConnectIn(r.flags)
	if err != nil {
		return err
	}
	r.client, r.key = c, client.ObjectKey{Namespace: namespace, Name: name}
	crt, err := r.read(ctx)
	if err != nil {
		return err
	}
	if r.cancel {
		return r.withdraw(ctx, crt)
	}
	r.announce(ctx, crt)
	if err := plugin.Confirm(r.streams, r.yes); err != nil {
		return err
	}
	if err := r.ask(ctx, crt); err != nil {
		return err
	}
	if r.wait {
		return r.follow(ctx)
	}
	r.say("is being replaced and revoked; see kubectl describe certificate %s -n %s", crt.Name, crt.Namespace)
	return nil
}

func (r *revoker) say(format string, args ...any) {
	fmt.Fprintf(r.streams.Out, "%s: %s\n", explain.Name(certmanagerv1.CertificateKind, r.key.Namespace, r.key.Name), fmt.Sprintf(format, args...))
}

func (r *revoker) read(ctx context.Context) (*certmanagerv1.Certificate, error) {
	crt := &certmanagerv1.Certificate{}
	return crt, r.client.Get(ctx, r.key, crt)
}

// withdraw removes the annotation.
func (r *revoker) withdraw(ctx context.Context, crt *certmanagerv1.Certificate) error {
	if _, asked := crt.Annotations[revocation.Annotation]; !asked {
		return errors.New("the Certificate is not being revoked: there is nothing to call off")
	}
	if err := annotate(ctx, r.client, crt, map[string]any{revocation.Annotation: nil}); err != nil {
		return err
	}
	r.say("the revocation is called off, unless the CA was asked already; a replacement that is under way is still issued")
	return nil
}

// announce says what will happen.
func (r *revoker) announce(ctx context.Context, crt *certmanagerv1.Certificate) {
	key := ""
	if r.reason == string(revocation.KeyCompromise) {
		key = ", with a new private key"
	}
	issuer := crt.Spec.IssuerRef
	revoked := fmt.Sprintf("Then %s %s revokes the certificate (%s)", issuer.KindOrDefault(), issuer.Name, r.reason)
	if !r.revocable(ctx, issuer) {
		revoked = fmt.Sprintf("%s %s cannot revoke: the old certificate is trusted until it expires", issuer.KindOrDefault(), issuer.Name)
	}
	r.say("the certificate in Secret %q is replaced%s.\n%s.\nPrograms that read the Secret only when they start have to be started again.",
		crt.Spec.SecretName, key, revoked)
}

// revocable reports whether the issuer can revoke, as far as that is known: only ACME servers can.
func (r *revoker) revocable(ctx context.Context, ref cmmeta.IssuerReference) bool {
	if ref.IsExternal() {
		return false
	}
	issuer := certmanagerv1.NewIssuer(ref, r.key.Namespace)
	err := r.client.Get(ctx, client.ObjectKeyFromObject(issuer), issuer)
	return err != nil || issuer.GetSpec().ACME != nil
}

// ask annotates the Certificate. What is left of an earlier revocation is taken away before: the controller carries the
// same out once a day at most, and the user has just asked for it.
func (r *revoker) ask(ctx context.Context, crt *certmanagerv1.Certificate) error {
	if refusedRevocation(crt) != nil {
		if err := annotate(ctx, r.client, crt, map[string]any{revocation.Annotation: nil, revocation.RecordAnnotation: nil}); err != nil {
			return err
		}
		err := r.await(ctx, func(crt *certmanagerv1.Certificate) (string, error) {
			if refusedRevocation(crt) != nil {
				return "the controller has not seen that the last revocation is called off", nil
			}
			return "", nil
		})
		if err != nil {
			return err
		}
	}
	return annotate(ctx, r.client, crt, map[string]any{revocation.Annotation: r.reason, revocation.RecordAnnotation: nil})
}

// refusedRevocation is the condition of a revocation that was refused before it began; nil if there is none.
func refusedRevocation(crt *certmanagerv1.Certificate) *certmanagerv1.CertificateCondition {
	c := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionRevoking)
	refused := []string{revocation.ReasonInvalid, revocation.ReasonNothing, revocation.ReasonRepeated}
	if c == nil || c.Status == cmmeta.ConditionTrue || !slices.Contains(refused, c.Reason) {
		return nil
	}
	return c
}

// follow waits for the outcome.
func (r *revoker) follow(ctx context.Context) error {
	var outcome *certmanagerv1.CertificateCondition
	err := r.await(ctx, func(crt *certmanagerv1.Certificate) (string, error) {
		c := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionRevoking)
		_, asked := crt.Annotations[revocation.Annotation]
		record, recorded := revocation.ParseRecord(crt.Annotations[revocation.RecordAnnotation])
		switch {
		case !asked && !recorded:
			return "", errors.New("the revocation was called off: somebody has removed the annotation " + revocation.Annotation)
		case asked && refusedRevocation(crt) != nil:
			return "", errors.New(refusedRevocation(crt).Message)
		case c == nil, asked && c.Status != cmmeta.ConditionTrue:
			return "the controller has not begun", nil
		case asked, c.Status == cmmeta.ConditionTrue, c.Reason != string(record.Outcome):
			return c.Message, nil
		}
		outcome = c
		return "", nil
	})
	switch {
	case err != nil:
		return err
	case outcome.Reason != string(revocation.Revoked):
		return errors.New(outcome.Message)
	}
	r.say("%s", outcome.Message)
	return nil
}

// await looks at the Certificate until check finds nothing to wait for.
func (r *revoker) await(ctx context.Context, check func(*certmanagerv1.Certificate) (string, error)) error {
	progress := plugin.StartProgress(r.streams, false, "waiting for the controller")
	defer progress.Stop()
	help := "if the condition Revoking does not change, see whether the controller runs: kubectl get pods -n cert-manager"
	return plugin.Await(ctx, progress, r.timeout, help, func(ctx context.Context) (string, error) {
		crt, err := r.read(ctx)
		if err != nil {
			return "", err
		}
		return check(crt)
	})
}

// annotate sets annotations of an object, or removes those whose value is nil.
func annotate(ctx context.Context, c client.Client, o client.Object, annotations map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": o.GetUID(), "annotations": annotations}})
	if err != nil {
		return err
	}
	return c.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch))
}
