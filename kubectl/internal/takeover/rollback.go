package takeover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
)

// lastUndone is the last step of rollback: what was saved may go then.
const lastUndone = "restore everything else"

// maxNamed is how many Certificates are named that cert-manager cannot keep.
const maxNamed = 10

// rollback restores what was there before apply.
func rollback(ctx context.Context, c cluster, rc *rest.Config, o *options, out io.Writer) error {
	r, err := c.recorded(ctx)
	switch {
	case err != nil:
		return err
	case r == nil:
		return errors.New("there is nothing to roll back: no takeover was begun, or it was rolled back")
	}
	run := &runner{cluster: c, record: r, rc: rc, out: out, timeout: o.timeout, progress: o.progress}
	if slices.Contains(r.Done, saveStep) && !slices.Contains(r.Undone, lastUndone) {
		if err := run.remember(ctx); err != nil {
			return err
		}
		if len(r.Undone) == 0 && !o.force {
			if err := c.unknownKeys(ctx); err != nil {
				return err
			}
		}
		// The webhook answers before it is asked again, and the API server goes on validating until it is.
		if err := run.take(ctx, []step{
			{"start the webhook", run.startWebhook},
			{"restore the controller", run.restoreController},
			{"restore the injector", func(ctx context.Context) error { return run.restoreDeployment(ctx, run.in.injector) }},
			{"restore the webhook configurations", func(ctx context.Context) error { return run.restoreKinds(ctx, isHook) }},
			{lastUndone, func(ctx context.Context) error { return run.restoreKinds(ctx, func(object) bool { return true }) }},
		}, &r.Undone); err != nil {
			return err
		}
	}
	if err := c.forget(ctx); err != nil {
		return err
	}
	if err := client.IgnoreNotFound(c.Delete(ctx, r.secret)); err != nil {
		return fmt.Errorf("delete Secret %s: %w", nameOf(r.secret), err)
	}
	run.say("cert-manager runs as before")
	return nil
}

// unknownKeys returns an error that names the Certificates whose keys cert-manager does not know.
func (c cluster) unknownKeys(ctx context.Context) error {
	list, names := &certmanagerv1.CertificateList{}, []string(nil)
	if err := c.pages(ctx, list, func() {
		for i := range list.Items {
			if crt := &list.Items[i]; crt.Spec.PrivateKey.OnlySigns() {
				names = append(names, crt.Namespace+"/"+crt.Name)
			}
		}
	}); err != nil {
		return fmt.Errorf("find Certificates with keys that cert-manager does not know: %w. --force goes back all the same", err)
	}
	switch more := len(names) - maxNamed; {
	case len(names) == 0:
		return nil
	case more > 0:
		names = append(names[:maxNamed], fmt.Sprintf("%d others", more))
	}
	return fmt.Errorf("cert-manager knows no ML-DSA keys, and refuses each write of the Certificates %s: "+
		"give them another privateKey.algorithm first, by an annotation where an Ingress or a Gateway makes them, or go back all the same with --force",
		strings.Join(names, ", "))
}

func isHook(o object) bool { return strings.HasSuffix(o.gvk.Kind, "WebhookConfiguration") }

func (r *runner) startWebhook(ctx context.Context) error {
	return r.restoreDeployment(ctx, r.in.webhook)
}

// restoreDeployment makes a Deployment run what it ran before, and waits until it does.
func (r *runner) restoreDeployment(ctx context.Context, d *appsv1.Deployment) error {
	if d == nil {
		return nil
	}
	if err := r.restore(ctx, *r.saidOf("Deployment", d.Name)); err != nil {
		return err
	}
	return r.rolledOut(ctx, d.Name)
}

// restoreController is restoreDeployment, and waits for the lease.
func (r *runner) restoreController(ctx context.Context) error {
	replaced := &appsv1.Deployment{}
	if err := r.Get(ctx, client.ObjectKeyFromObject(r.in.controller), replaced); err != nil {
		return client.IgnoreNotFound(err)
	}
	if isOurs(replaced) {
		holder, err := r.holder(ctx)
		if err != nil {
			return err
		}
		if r.Replaced != holder {
			r.Replaced = holder
			if err := r.write(ctx, r.cluster); err != nil {
				return err
			}
		}
	}
	if err := r.restoreDeployment(ctx, r.in.controller); err != nil {
		return err
	}
	return r.leads(ctx, r.Replaced)
}

// policyRefresh is longer than an API server goes on with a policy that is deleted.
const policyRefresh = 2 * time.Second

// restoreKinds restores the saved objects that which is true of. The policies are first: cert-manager needs the rights
// that chancery install gives as long as they hold, and they refuse everything without the ConfigMaps that they read.
func (r *runner) restoreKinds(ctx context.Context, which func(object) bool) error {
	isPolicy := func(o object) bool { return strings.Contains(o.gvk.Kind, "AdmissionPolicy") }
	for _, first := range []bool{true, false} {
		for _, o := range r.was {
			if isPolicy(o) == first && which(o) {
				if err := r.restore(ctx, o); err != nil {
					return err
				}
			}
		}
		if first && slices.ContainsFunc(r.was, func(o object) bool { return isPolicy(o) && which(o) }) {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(policyRefresh):
			}
		}
	}
	return nil
}
