// Package check holds two commands: `check api` tells whether Chancery works in a cluster, and `version` prints the
// versions of kubectl-chancery and of the controllers. The commands take the flags of the same commands of cmctl.
package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/api"
	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/pki"
	"chancery.dev/kubectl/internal/plugin"
	"chancery.dev/kubectl/internal/waits"
)

// notReady is the exit status if the API is not ready.
const notReady = 2

// The names of the controller's lease, of the issuer that the requests of such a check name, and the words in which a
// bad request must be refused (spec §11.5).
const (
	leaseName   = "cert-manager-controller"
	checkIssuer = "cmapichecker"
	refusal     = `admission webhook "webhook.cert-manager.io" denied the request: `
)

const install = "Install Chancery, or put back what is missing: chancery install"

// New returns the command check.
func New(streams plugin.Streams) *cobra.Command {
	cmd := &cobra.Command{Use: "check", Short: "Says whether Chancery works in a cluster"}
	cmd.AddCommand(newAPI(streams))
	return cmd
}

func newAPI(streams plugin.Streams) *cobra.Command {
	flags := genericclioptions.NewConfigFlags(true)
	var patience, interval time.Duration
	cmd := &cobra.Command{
		Use: "api", Short: "Says whether Certificates can be made, and what is wrong if they cannot", Args: cobra.NoArgs,
		Long: "Says whether Certificates can be made: are the definitions and the policies there, are good requests admitted and bad\n" +
			"ones refused, does a controller lead. Nothing is stored. The exit status is 2 if something is wrong. You need the right\n" +
			"to create CertificateRequests in the namespace; what you may not read is left out, and named.",
		Example: `  kubectl chancery check api

  # In a script, after an installation
  kubectl chancery check api --wait 2m`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			k, err := connect(flags)
			if err != nil {
				return err
			}
			p := plugin.StartProgress(streams, false, "ask the API")
			err = k.await(cmd.Context(), p, patience, interval)
			p.Stop()
			for _, note := range k.notes {
				fmt.Fprintln(streams.Out, "unknown:", note)
			}
			for _, wrong := range k.wrong {
				fmt.Fprintf(streams.Out, "wrong:   %s\n   what to do: %s\n", wrong.what, wrong.help)
			}
			switch {
			case err != nil:
				return err
			case len(k.wrong) > 0:
				return plugin.ExitError{Code: notReady, Err: errors.New("the API is not ready")}
			}
			fmt.Fprintln(streams.Out, "The Chancery API is ready")
			return nil
		},
	}
	f := cmd.Flags()
	flags.AddFlags(f)
	f.DurationVar(&patience, "wait", 0, "how long to wait until the API is ready; 0 asks once")
	f.DurationVar(&interval, "interval", 5*time.Second, "time between two tries while waiting")
	return cmd
}

// finding is what is wrong, and what helps.
type finding struct{ what, help string }

// checker asks an API.
type checker struct {
	client    client.Client
	discovery discovery.DiscoveryInterface
	namespace string
	now       func() time.Time

	wrong []finding
	// notes are what could not be found out.
	notes []string
}

func connect(flags *genericclioptions.ConfigFlags) (*checker, error) {
	c, namespace, err := plugin.ConnectIn(flags)
	if err != nil {
		return nil, err
	}
	config, err := flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	d, err := discovery.NewDiscoveryClientForConfig(config)
	return &checker{client: c, discovery: d, namespace: namespace, now: time.Now}, err
}

// await asks until nothing is wrong, or for so long; once if that is nothing.
func (k *checker) await(ctx context.Context, p *plugin.Progress, patience, interval time.Duration) error {
	if patience <= 0 {
		return k.look(ctx)
	}
	err := wait.PollUntilContextTimeout(ctx, interval, patience, true, func(ctx context.Context) (bool, error) {
		// An API server that cannot be reached is waited for, too.
		if err := k.look(ctx); err != nil {
			k.add("Look whether the API server runs: kubectl cluster-info", "%v", err)
		}
		if len(k.wrong) > 0 {
			p.Step("%s", k.wrong[0].what)
		}
		return len(k.wrong) == 0, nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return nil // what is wrong has been found
	}
	return err
}

func (k *checker) add(help, format string, args ...any) {
	k.wrong = append(k.wrong, finding{what: fmt.Sprintf(format, args...), help: help})
}

// look finds out what is wrong now.
func (k *checker) look(ctx context.Context) error {
	k.wrong, k.notes = nil, nil
	if err := k.definitions(); err != nil || len(k.wrong) > 0 {
		return err
	}
	for _, look := range []func(context.Context) error{k.requests, k.policies, k.leader} {
		if err := look(ctx); err != nil {
			return err
		}
	}
	return nil
}

// definitions looks for the kinds that are ours.
func (k *checker) definitions() error {
	for version, kinds := range map[string][]string{
		certmanagerv1.SchemeGroupVersion().String(): {"Certificate", "CertificateRequest", "Issuer", "ClusterIssuer"},
		acmev1.SchemeGroupVersion().String():        {"Order", "Challenge"},
	} {
		served, err := k.discovery.ServerResourcesForGroupVersion(version)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		for _, kind := range kinds {
			if served == nil || !slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind }) {
				k.add(install, "the definition of %s in %s is missing", kind, version)
			}
		}
	}
	return nil
}

// requests checks by a dry run that the API server admits a good request and refuses a bad one (spec §11.5).
func (k *checker) requests(ctx context.Context) error {
	key, err := pki.GenerateKey(pki.KeySpec{Algorithm: pki.ECDSA})
	if err != nil {
		return err
	}
	csr, err := pki.CreateCSR(pki.CSRTemplate{AltNames: pki.AltNames{DNSNames: []string{checkIssuer + ".example.com"}}}, key)
	if err != nil {
		return err
	}
	made, err := k.try(ctx, csr)
	switch {
	case apierrors.IsForbidden(err) && !strings.Contains(err.Error(), "denied request"):
		k.add("Ask for the role edit, or name another namespace with -n", "you may not create CertificateRequests in the namespace %s: %v", k.namespace, err)
		return nil
	case apierrors.IsNotFound(err):
		k.add("Name a namespace that is there with -n: kubectl get namespaces", "%v", err)
		return nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsInternalError(err):
		k.add("Read what refuses it", "a good CertificateRequest is refused: %v", err)
		return nil
	case err != nil:
		return err
	case made.Spec.Username == "" && made.Spec.UID == "":
		k.add("The API server must have MutatingAdmissionPolicies, or install the webhook: chancery install --webhook=ignore",
			"nothing fills in who makes a CertificateRequest")
	}
	if _, err := k.try(ctx, []byte("this is no request")); err == nil || !strings.Contains(err.Error(), refusal) {
		k.add(install, "a CertificateRequest whose request cannot be read is not refused by the definition of Chancery: %v", err)
	}
	return nil
}

func (k *checker) try(ctx context.Context, csr []byte) (*certmanagerv1.CertificateRequest, error) {
	cr := &certmanagerv1.CertificateRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: checkIssuer + "-", Namespace: k.namespace},
		Spec:       certmanagerv1.CertificateRequestSpec{Request: csr, IssuerRef: cmmeta.IssuerReference{Name: checkIssuer}},
	}
	return cr, k.client.Create(ctx, cr, client.DryRunAll)
}

// policies looks for the policies with which the API server validates.
func (k *checker) policies(ctx context.Context) error {
	ours, err := api.Policies()
	if err != nil {
		return err
	}
	var missing []string
	for _, policy := range ours {
		if !strings.HasPrefix(policy.GetKind(), "Validating") {
			continue // that requests are filled in was seen, by whatever means
		}
		found := &unstructured.Unstructured{}
		found.SetGroupVersionKind(policy.GroupVersionKind())
		switch err := k.client.Get(ctx, client.ObjectKeyFromObject(policy), found); {
		case apierrors.IsNotFound(err):
			missing = append(missing, policy.GetName()) // of a policy or of its binding
		case apierrors.IsForbidden(err):
			k.notes = append(k.notes, "whether all policies are there: you may not read ValidatingAdmissionPolicies")
			return nil
		case err != nil:
			return err
		}
	}
	if len(missing) > 0 {
		k.add(install, "policies are missing, so that the API server lets things happen that it must not: %s", strings.Join(slices.Compact(missing), ", "))
	}
	return nil
}

// leader looks whether a controller leads.
func (k *checker) leader(ctx context.Context) error {
	leases := &coordinationv1.LeaseList{}
	err := k.client.List(ctx, leases, client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", leaseName)})
	switch {
	case apierrors.IsForbidden(err):
		k.notes = append(k.notes, "whether a controller leads: you may not list leases in all namespaces")
		return nil
	case err != nil:
		return err
	case len(leases.Items) == 0:
		k.notes = append(k.notes, "whether a controller leads: there is no lease "+leaseName+", so none has led here yet, or it runs with --leader-elect=false")
		return nil
	}
	var last string
	for _, lease := range leases.Items {
		spec := lease.Spec
		if spec.HolderIdentity == nil || *spec.HolderIdentity == "" || spec.RenewTime == nil || spec.LeaseDurationSeconds == nil {
			last = "the last one has given its lease " + lease.Namespace + "/" + lease.Name + " back"
			continue
		}
		end := spec.RenewTime.Add(time.Duration(*spec.LeaseDurationSeconds) * time.Second)
		if k.now().Before(end) {
			return nil
		}
		last = fmt.Sprintf("%s had the lease %s/%s until %s", *spec.HolderIdentity, lease.Namespace, lease.Name, end.UTC().Format(time.RFC3339))
	}
	k.add("Look whether the controller runs: "+waits.SeePods, "no controller leads: %s", last)
	return nil
}
