package takeover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/install"
	"chancery.dev/kubectl/internal/plugin"
)

// runner takes steps, and records each that is done: a command that was ended goes on where it was.
type runner struct {
	cluster
	*record

	rc      *rest.Config
	out     io.Writer
	timeout time.Duration
	// progress says what is waited for.
	progress *plugin.Progress
	// was are the objects as they were before, and in the installation.
	was []object
	in  *installation
}

// step is a part of apply, or of rollback. It may be taken again.
type step struct {
	name string
	do   func(ctx context.Context) error
}

func (r *runner) say(format string, a ...any) { _, _ = fmt.Fprintf(r.out, format+"\n", a...) }

// take takes the steps that are not done yet.
func (r *runner) take(ctx context.Context, steps []step, done *[]string) error {
	for _, s := range steps {
		if slices.Contains(*done, s.name) {
			continue
		}
		r.progress.Step("%s", s.name)
		if err := s.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		*done = append(*done, s.name)
		if err := r.write(ctx, r.cluster); err != nil {
			return err
		}
		r.say("done: %s", s.name)
	}
	return nil
}

// The last steps.
const (
	lastStep = "have Chancery inject CA bundles"
	saveStep = "save what is there"
)

// apply puts Chancery in the place of cert-manager.
func apply(ctx context.Context, c cluster, rc *rest.Config, o *options, out io.Writer) error {
	r, err := c.recorded(ctx)
	switch {
	case err != nil:
		return err
	case r == nil:
		if r, err = begin(ctx, c, o, out); err != nil {
			return err
		}
	case len(r.Undone) > 0:
		return errors.New("a rollback is under way: finish it first, by kubectl chancery takeover rollback")
	case slices.Contains(r.Done, lastStep):
		return fmt.Errorf("chancery runs here since a takeover of %s. Upgrade it as an installation of chancery: see docs/install.md", r.Begun.Format(time.RFC3339))
	default:
		r.Image, r.DNSImage = cmp.Or(o.image, r.Image), cmp.Or(o.dnsImage, r.DNSImage)
	}
	run := &runner{cluster: c, record: r, rc: rc, out: out, timeout: o.timeout, progress: o.progress}
	if err := run.take(ctx, []step{{saveStep, run.save}}, &r.Done); err != nil {
		return err
	}
	if err := run.remember(ctx); err != nil {
		return err
	}
	// The API server validates before the webhook stops doing so, and what is not answered any more is not asked: the
	// configurations go before the Pods. The service account of both controllers is one, so that the rights of the new
	// one are those of the old one, too.
	err = run.take(ctx, []step{
		{"apply definitions, policies, roles and the responder of HTTP-01", run.install},
		{"delete the webhook configurations", run.unhook},
		{"stop the webhook", run.stopWebhook},
		{"replace the controller", run.replaceController},
		{lastStep, run.replaceInjector},
	}, &r.Done)
	if err == nil {
		run.say("chancery runs. Go back by: kubectl chancery takeover rollback")
	}
	return err
}

// begin checks that a takeover may begin, and records that it does.
func begin(ctx context.Context, c cluster, o *options, out io.Writer) (*record, error) {
	if o.image == "" {
		return nil, errors.New("name the image of chancery by --image")
	}
	report, err := check(ctx, c.Client, o, time.Now())
	if err != nil {
		return nil, err
	}
	if err := report.print(out); err != nil {
		return nil, err
	}
	if !report.Green {
		return nil, errRed
	}
	r := &record{Begun: time.Now().UTC().Truncate(time.Second), Image: o.image, DNSImage: o.dnsImage, KeepInjector: o.keepInjector}
	return r, r.write(ctx, c)
}

var errRed = errors.New("the check is red: nothing was changed")

// remember reads what was saved. It fails if anything else stands among it.
func (r *runner) remember(ctx context.Context) (err error) {
	if r.was, err = r.saved(ctx); err != nil {
		return err
	}
	if len(r.was) != r.Saved {
		return fmt.Errorf("%d of the %d Secrets are left in the namespace %s in which takeover apply has saved what was there (kubectl get secrets "+
			"--namespace %[3]s --selector %[4]s): restore the others from a backup, and run the command again", len(r.was), r.Saved, home, savedLabel)
	}
	changed, err := r.changed(r.KeepInjector)
	if err != nil {
		return err
	}
	if o := stranger(r.was, changed); o != nil {
		return fmt.Errorf("a Secret of the namespace %s with the label %s holds %s, which takeover apply does not change: nothing is restored. "+
			"If another version of kubectl-chancery has run apply, use that one. Otherwise find out who has written the Secret (its annotation %s is %[3]q), "+
			"and delete it", home, savedLabel, *o, savedOf)
	}
	r.in = &installation{}
	for name, into := range map[string]**appsv1.Deployment{controllerName: &r.in.controller, injectorName: &r.in.injector, webhookName: &r.in.webhook} {
		o := r.saidOf("Deployment", name)
		if o == nil || o.body == nil {
			continue
		}
		*into = &appsv1.Deployment{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.body.Object, *into); err != nil {
			return err
		}
	}
	if r.in.controller == nil {
		return fmt.Errorf("what was saved in the namespace %s has no Deployment %s", home, controllerName)
	}
	r.in.switches, err = r.switchesOf(ctx, r.in.controller, false)
	return err
}

func (r *runner) saidOf(kind, name string) *object {
	for i := range r.was {
		if r.was[i].gvk.Kind == kind && r.was[i].key.Name == name {
			return &r.was[i]
		}
	}
	return nil
}

// install applies what chancery install does, and waits until the API server admits Certificates with it, and the Pods
// that answer HTTP-01 are there.
func (r *runner) install(ctx context.Context) error {
	installation, err := r.installation(ctx)
	if err != nil {
		return err
	}
	if err := installation.Apply(ctx, r.rc, func(string) {}); err != nil {
		return err
	}
	if err := r.admitted(ctx); err != nil {
		return err
	}
	return r.rolledOut(ctx, responderName)
}

// installation is what is installed, with the rights that issuers have used so far.
func (r *runner) installation(ctx context.Context) (*install.Installation, error) {
	of, err := r.ownTokens(ctx, r.in)
	i := chancery(r.Image, !r.KeepInjector)
	i.OwnTokens = len(of.issuers) > 0
	return i, err
}

// chancery is what is installed beside the Deployments that are there.
func chancery(image string, injects bool) *install.Installation {
	i := install.DefaultInstallation()
	i.Image, i.Responder, i.ForceConflicts = image, true, true
	if injects {
		i.Injecting = install.InjectingOwn
	}
	return &i
}

// unhook deletes cert-manager's webhook configurations.
func (r *runner) unhook(ctx context.Context) error {
	for _, kind := range []string{injectedValidating, injectedMutating} {
		hook := &unstructured.Unstructured{}
		hook.SetGroupVersionKind(kindOf("admissionregistration.k8s.io", kind))
		hook.SetName(webhookName)
		if err := client.IgnoreNotFound(r.Delete(ctx, hook)); err != nil {
			return err
		}
	}
	return nil
}

// stopWebhook leaves the Deployment there, because scripts wait for it.
func (r *runner) stopWebhook(ctx context.Context) error {
	if r.in.webhook == nil {
		return nil
	}
	none := int32(0)
	return r.become(ctx, r.in.webhook, func(d *appsv1.Deployment) { d.Spec.Replicas = &none })
}

// become makes a Deployment run what change makes of the saved one, and waits until all its Pods do.
func (r *runner) become(ctx context.Context, saved *appsv1.Deployment, change func(*appsv1.Deployment)) error {
	wanted := saved.DeepCopy()
	change(wanted)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		found := &appsv1.Deployment{}
		if err := r.Get(ctx, client.ObjectKeyFromObject(saved), found); err != nil {
			return err
		}
		if equality.Semantic.DeepEqual(found.Spec, wanted.Spec) {
			return nil
		}
		found.Spec = wanted.Spec
		return r.Update(ctx, found, client.FieldOwner(owner))
	})
	if err != nil {
		return err
	}
	return r.rolledOut(ctx, saved.Name)
}

// rolledOut waits until all Pods of a Deployment are those of its template, and are there.
func (r *runner) rolledOut(ctx context.Context, name string) error {
	d := &appsv1.Deployment{}
	return r.wait(ctx, func(ctx context.Context) (string, error) {
		if err := r.Get(ctx, client.ObjectKey{Namespace: home, Name: name}, d); err != nil {
			return "", err
		}
		wanted, s := int32(1), d.Status
		if d.Spec.Replicas != nil {
			wanted = *d.Spec.Replicas
		}
		if s.ObservedGeneration >= d.Generation && s.Replicas == wanted && s.UpdatedReplicas == wanted && s.AvailableReplicas == wanted {
			return "", nil
		}
		return fmt.Sprintf("%d of %d Pods of the Deployment %s/%s are new, %d are available, and %d are there", s.UpdatedReplicas, wanted, home, name, s.AvailableReplicas, s.Replicas), nil
	})
}

// wait asks again until check has nothing to wait for any more.
func (r *runner) wait(ctx context.Context, check func(context.Context) (string, error)) error {
	help := fmt.Sprintf("see kubectl --namespace %s get pods. Run the command again to go on, or takeover rollback to go back", home)
	return plugin.Await(ctx, r.progress, r.timeout, help, check)
}

// replaceController makes the Deployment run Chancery, and waits until Chancery holds the lease.
func (r *runner) replaceController(ctx context.Context) error {
	if r.Holder == "" {
		holder, err := r.holder(ctx)
		if err != nil {
			return err
		}
		if r.Holder = holder; holder != "" {
			if err := r.write(ctx, r.cluster); err != nil {
				return err
			}
		}
	}
	if err := r.become(ctx, r.in.controller, func(d *appsv1.Deployment) { runController(d, r.in, r.record) }); err != nil {
		return err
	}
	return r.leads(ctx, r.Holder)
}

// leads waits until a process other than before holds the lease, where there is a lease.
func (r *runner) leads(ctx context.Context, before string) error {
	if r.in.switches.Value("leader-elect") == "false" || r.in.controller.Spec.Replicas != nil && *r.in.controller.Spec.Replicas == 0 {
		return nil
	}
	return r.wait(ctx, func(ctx context.Context) (string, error) {
		holder, err := r.holder(ctx)
		if err == nil && (holder == "" || holder == before) {
			return fmt.Sprintf("the lease %s is held by %q still", leaseName, holder), nil
		}
		return "", err
	})
}

// holder says who holds the lease of the controller; empty for nobody.
func (r *runner) holder(ctx context.Context) (string, error) {
	lease := &coordinationv1.Lease{}
	err := r.Get(ctx, client.ObjectKey{Namespace: r.in.switches.Value("leader-election-namespace"), Name: leaseName}, lease)
	if apierrors.IsNotFound(err) || err == nil && lease.Spec.HolderIdentity == nil {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the lease: %w", err)
	}
	return *lease.Spec.HolderIdentity, nil
}

// replaceInjector makes the Deployment of the injector run Chancery's, unless the user keeps cert-manager's.
func (r *runner) replaceInjector(ctx context.Context) error {
	if r.KeepInjector || r.in.injector == nil {
		return nil
	}
	return r.become(ctx, r.in.injector, func(d *appsv1.Deployment) { runInjector(d, r.record) })
}
