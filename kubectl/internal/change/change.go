// Package change holds the commands that carry out a decision of the user: issue a certificate again, revoke a
// certificate, replace the key of an ACME account, approve a request, or deny a request.
//
// If cmctl has the same command, the command here takes the same flags and writes the same to the objects.
package change

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/clientside/explain"
	"chancery.dev/kubectl/internal/plugin"
)

// New returns the commands renew, revoke, rotate-account-key, approve and deny.
func New(streams plugin.Streams) []*cobra.Command {
	return []*cobra.Command{
		newRenew(streams),
		newRevoke(streams),
		newRotate(streams),
		newVerdict(streams, "approve", certmanagerv1.CertificateRequestConditionApproved, "approved"),
		newVerdict(streams, "deny", certmanagerv1.CertificateRequestConditionDenied, "denied"),
	}
}

// options of renew.
type options struct {
	flags      *genericclioptions.ConfigFlags
	all        bool
	everywhere bool
	selector   string
	wait       bool
	timeout    time.Duration
}

func newRenew(streams plugin.Streams) *cobra.Command {
	o := &options{flags: genericclioptions.NewConfigFlags(true)}
	cmd := &cobra.Command{
		Use:   "renew [certificate]...",
		Short: "Renews certificates at once",
		Long: "Renews certificates at once, after a failure too. A CA that has named a time for the next order is not asked\n" +
			"before. The role edit is enough.",
		Example: `  # Issue a certificate again
  kubectl chancery renew web

  # All with a label, or all of a namespace
  kubectl chancery renew -l app=web
  kubectl chancery renew --all

  # In a script: end when the certificate has come
  kubectl chancery renew web --wait`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), streams, args) },

		ValidArgsFunction: plugin.Complete(0, plugin.Certificates()),
	}
	f := cmd.Flags()
	o.flags.AddFlags(f)
	f.BoolVar(&o.all, "all", false, "all Certificates of the namespace, or with -A of all namespaces")
	f.BoolVarP(&o.everywhere, "all-namespaces", "A", false, "look in all namespaces; with --all or --selector")
	f.StringVarP(&o.selector, "selector", "l", "", "the Certificates with these labels, as in app=web")
	f.BoolVar(&o.wait, "wait", false, "end when the certificates have come; the exit status is 1 if one has failed")
	f.DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long to wait for each certificate")
	return cmd
}

func (o *options) run(ctx context.Context, streams plugin.Streams, names []string) error {
	selector, err := labels.Parse(o.selector)
	if err != nil {
		return fmt.Errorf("--selector: %w", err)
	}
	many := o.all || o.selector != ""
	switch {
	case many == (len(names) > 0) || o.all && o.selector != "":
		return errors.New("name Certificates, or choose them with --selector, or take --all: one of the three")
	case o.everywhere && !many:
		return errors.New("--all-namespaces goes with --all or --selector: a name is one of a namespace")
	}
	c, namespace, err := plugin.ConnectIn(o.flags)
	if err != nil {
		return err
	}
	var keys []client.ObjectKey
	for _, name := range names {
		keys = append(keys, client.ObjectKey{Namespace: namespace, Name: name})
	}
	if many {
		if keys, err = o.find(ctx, c, namespace, selector); err != nil {
			return err
		}
	}
	var failed error
	for _, key := range keys {
		said, err := renew(ctx, c, key)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		fmt.Fprintf(streams.Out, "%s: %s\n", explain.Name(certmanagerv1.CertificateKind, key.Namespace, key.Name), said)
	}
	if failed != nil || !o.wait {
		return failed
	}
	progress := plugin.StartProgress(streams, false, "waiting for the controller")
	defer progress.Stop()
	for _, key := range keys {
		failed = errors.Join(failed, o.await(ctx, c, key, progress))
	}
	return failed
}

// find returns the Certificates that --selector or --all takes.
func (o *options) find(ctx context.Context, c client.Client, namespace string, selector labels.Selector) (keys []client.ObjectKey, err error) {
	if o.everywhere {
		namespace = ""
	}
	list := &certmanagerv1.CertificateList{}
	if err := c.List(ctx, list, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, err
	}
	for i := range list.Items {
		keys = append(keys, client.ObjectKeyFromObject(&list.Items[i]))
	}
	if len(keys) == 0 {
		return nil, errors.New("no Certificates are found: see which there are: kubectl chancery list -A")
	}
	return keys, nil
}

// await waits until an issuance has come to its end.
func (o *options) await(ctx context.Context, c client.Client, key client.ObjectKey, progress *plugin.Progress) error {
	name := explain.Name(certmanagerv1.CertificateKind, key.Namespace, key.Name)
	help := fmt.Sprintf("see kubectl chancery status %s -n %s", key.Name, key.Namespace)
	return plugin.Await(ctx, progress, o.timeout, help, func(ctx context.Context) (string, error) {
		crt := &certmanagerv1.Certificate{}
		if err := c.Get(ctx, key, crt); err != nil {
			return "", err
		}
		issuing := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionIssuing)
		switch {
		case issuing == nil:
			return "", nil
		case issuing.Status == cmmeta.ConditionTrue:
			return name + " is being issued", nil
		default:
			return "", fmt.Errorf("%s: %s: %s", name, issuing.Message, help)
		}
	})
}

// renew reissues a Certificate, unless that is under way.
func renew(ctx context.Context, c client.Client, key client.ObjectKey) (said string, err error) {
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		crt := &certmanagerv1.Certificate{}
		if err := c.Get(ctx, key, crt); err != nil {
			return err
		}
		if certmanagerv1.HasCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionIssuing, cmmeta.ConditionTrue) {
			said = fmt.Sprintf("is being issued already; see kubectl chancery status %s -n %s", key.Name, key.Namespace)
			return nil
		}
		said = "is renewed"
		certmanagerv1.SetCertificateCondition(crt, certmanagerv1.CertificateCondition{
			Type: certmanagerv1.CertificateConditionIssuing, Status: cmmeta.ConditionTrue,
			Reason: certmanagerv1.CertificateReasonManuallyTriggered, Message: "Certificate re-issuance manually triggered",
		}, time.Now())
		return c.Status().Update(ctx, crt)
	})
	return said, err
}

// newVerdict returns approve or deny.
func newVerdict(streams plugin.Streams, verb string, verdict certmanagerv1.CertificateRequestConditionType, done string) *cobra.Command {
	flags := genericclioptions.NewConfigFlags(true)
	var reason, message string
	cmd := &cobra.Command{
		Use:   verb + " CERTIFICATEREQUEST",
		Short: "Says that a CertificateRequest is " + done,
		Long: "Says that a CertificateRequest is " + done + ". That holds for ever. You need the right to approve for its issuer:\n" +
			"see the role chancery-certificaterequest-approver.",
		Example: `  kubectl chancery ` + verb + ` web-1 --reason policy --message 'looked at by hand'`,
		Args:    cobra.ExactArgs(1),

		ValidArgsFunction: plugin.Complete(1, plugin.CertificateRequests()),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, namespace, err := plugin.ConnectIn(flags)
			if err != nil {
				return err
			}
			key := client.ObjectKey{Namespace: namespace, Name: args[0]}
			condition := certmanagerv1.CertificateRequestCondition{Type: verdict, Status: cmmeta.ConditionTrue, Reason: reason, Message: message}
			if err := judge(cmd.Context(), c, key, condition); err != nil {
				return err
			}
			fmt.Fprintf(streams.Out, "%s: %s\n", explain.Name("CertificateRequest", key.Namespace, key.Name), done)
			return nil
		},
	}
	f := cmd.Flags()
	flags.AddFlags(f)
	f.StringVar(&reason, "reason", "KubectlCertManager", "reason, in one word")
	f.StringVar(&message, "message", "manually "+done+" by kubectl chancery", "message for people")
	return cmd
}

// judge sets a condition, once: a verdict that there is stays.
func judge(ctx context.Context, c client.Client, key client.ObjectKey, condition certmanagerv1.CertificateRequestCondition) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		cr := &certmanagerv1.CertificateRequest{}
		if err := c.Get(ctx, key, cr); err != nil {
			return err
		}
		for _, verdict := range []certmanagerv1.CertificateRequestConditionType{
			certmanagerv1.CertificateRequestConditionApproved, certmanagerv1.CertificateRequestConditionDenied,
		} {
			if old := certmanagerv1.FindCertificateRequestCondition(cr.Status.Conditions, verdict); old != nil {
				return fmt.Errorf("%s is %s already (%s: %s), for ever: have its Certificate make another one with kubectl chancery renew",
					explain.Name("CertificateRequest", key.Namespace, key.Name), verdict, old.Reason, old.Message)
			}
		}
		certmanagerv1.SetCertificateRequestCondition(cr, condition, time.Now())
		return c.Status().Update(ctx, cr)
	})
}
