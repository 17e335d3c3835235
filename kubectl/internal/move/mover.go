package move

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
)

type unstructuredList = unstructured.UnstructuredList

const (
	// lookAgain is how often the source is looked at while something is being issued.
	lookAgain = 2 * time.Second
	// rounds is how often the source may change while it is moved.
	rounds = 5
)

// mover is one run of the command.
type mover struct {
	*options

	from, to *cluster
	selector labels.Selector
	out      io.Writer
	now      func() time.Time

	// uids are those of the source's objects in the target.
	uids map[types.UID]types.UID
}

func (m *mover) say(format string, args ...any) { fmt.Fprintf(m.out, format+"\n", args...) }

// run takes the steps of a move. Each may be the last of a run that is killed.
func (m *mover) run(ctx context.Context) error {
	m.progress.Step("reading both clusters")
	s, namespaces, err := m.check(ctx)
	if err != nil {
		return err
	}
	if len(s.items)+len(s.left) == 0 && !m.deleteSource {
		return fmt.Errorf("%s has nothing to move there: are the namespace and the selector right? See --all-namespaces", m.from.name)
	}
	m.tell(s, namespaces)
	if m.dryRun {
		m.say("Nothing was changed: this was a dry run.")
		return nil
	}
	if s, err = m.quiet(ctx, s); err != nil {
		return err
	}
	m.progress.Step("pausing the objects in %s", m.from.name)
	if s, err = m.pause(ctx, s); err != nil {
		return err
	}
	m.progress.Step("copying to %s", m.to.name)
	if s, err = m.transfer(ctx, s, namespaces); err != nil {
		return err
	}
	m.say("The target has everything, and nothing in it is to be renewed.")
	m.progress.Step("releasing the objects in %s", m.to.name)
	if err := m.seal(ctx, s); err != nil {
		return err
	}
	if err := m.release(ctx, s); err != nil {
		return err
	}
	if m.deleteSource {
		m.progress.Step("deleting in %s", m.from.name)
		return m.deleteMoved(ctx, s)
	}
	m.say("Moved. The objects of %s stay there, paused. When you are content with %s, delete them: run the same command with --delete-source.",
		m.from.name, m.to.name)
	return nil
}

// check refuses what cannot be moved, before anything is written, and returns the namespaces that the target lacks.
func (m *mover) check(ctx context.Context) (*snapshot, []string, error) {
	for _, kind := range []string{issuerKind, cmmeta.ClusterIssuerKind, crtKind, requestKind, orderKind, acmev1.ChallengeKind} {
		gvk := kindOf(kind)
		if _, err := m.to.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version); err != nil {
			return nil, nil, explain(m.to, kind, err)
		}
	}
	for _, c := range []*cluster{m.from, m.to} {
		if err := m.checkController(ctx, c); err != nil {
			return nil, nil, err
		}
	}
	s, err := m.gather(ctx)
	if err != nil {
		return nil, nil, err
	}
	problems := m.checkPauses(s)
	for _, it := range s.items {
		if !it.done {
			problems = append(problems, m.checkConflict(ctx, it))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, nil, err
	}
	namespaces, err := m.missing(ctx, s)
	return s, namespaces, err
}

// checkPauses refuses what somebody else has paused in the source.
func (m *mover) checkPauses(s *snapshot) (problems []error) {
	for _, o := range append(objectsOf(s.items), s.left...) {
		switch p := pausedBy(o); p {
		case "", movingTo + string(m.to.uid), movedTo + string(m.to.uid):
		default:
			if o.GetKind() != secretKind {
				problems = append(problems, fmt.Errorf("%s is paused already (%s: %s): remove the annotation, or leave the object out", describe(o), cmmeta.PausedAnnotation, p))
			}
		}
	}
	return problems
}

// missing returns the namespaces that the target lacks.
func (m *mover) missing(ctx context.Context, s *snapshot) ([]string, error) {
	has := map[string]bool{"": true}
	var missing []string
	for _, it := range s.items {
		ns := it.key.Namespace
		if has[ns] || it.done {
			continue
		}
		has[ns] = true
		err := m.to.Get(ctx, client.ObjectKey{Name: ns}, &corev1.Namespace{})
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if err != nil {
			missing = append(missing, ns)
		}
	}
	slices.Sort(missing)
	return missing, nil
}

// checkController refuses a cluster in which a controller runs that knows nothing of the annotation.
func (m *mover) checkController(ctx context.Context, c *cluster) error {
	const lease, original = "cert-manager-controller", "-external-cert-manager-controller"
	list := &coordinationv1.LeaseList{}
	if err := c.List(ctx, list, client.MatchingFields{metav1.ObjectNameField: lease}); err != nil {
		return fmt.Errorf("ask %s which controller runs there: %w", c.name, err)
	}
	for _, l := range list.Items {
		if l.Spec.HolderIdentity == nil || !strings.HasSuffix(*l.Spec.HolderIdentity, original) || l.Spec.RenewTime == nil || l.Spec.LeaseDurationSeconds == nil {
			continue
		}
		if l.Spec.RenewTime.Add(time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second).After(m.now()) {
			return fmt.Errorf("in %s, cert-manager's own controller runs (Lease %s/%s is held by %s): it would not leave alone what is being moved. "+
				"Scale its Deployment to 0, and try again when the Lease has run out", c.name, l.Namespace, l.Name, *l.Spec.HolderIdentity)
		}
	}
	return nil
}

func objectsOf(items []*item) []*object {
	out := make([]*object, 0, len(items))
	for _, it := range items {
		out = append(out, it.object)
	}
	return out
}

// inTarget reads what the target has by the name of an item; nil if there is nothing.
func (m *mover) inTarget(ctx context.Context, it *item) (*object, error) {
	o := &object{}
	o.SetGroupVersionKind(it.GroupVersionKind())
	if err := m.to.Get(ctx, it.key, o); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return o, nil
}

// ours reports whether this move has made an object of the target, or it is what an earlier move into the other
// direction has left.
func (m *mover) ours(have *object) bool {
	p := pausedBy(have)
	return p == movingFrom+string(m.from.uid) || have.GetKind() == secretKind && p == movedTo+string(m.from.uid)
}

func (m *mover) checkConflict(ctx context.Context, it *item) error {
	have, err := m.inTarget(ctx, it)
	if have == nil || err != nil {
		return err
	}
	if m.ours(have) {
		return m.checkUse(ctx, have)
	}
	if it.kept = sameContent(m.renamed(it), have) && pausedBy(have) == ""; it.kept {
		return nil
	}
	if strings.HasPrefix(pausedBy(have), movedTo) {
		return fmt.Errorf("%s is in %s, left from a move to another cluster: delete it there (that move with --delete-source does)", it, m.to.name)
	}
	return fmt.Errorf("%s is in %s already, and differs: delete one of the two, or leave it out", it, m.to.name)
}

// checkUse refuses to replace a Secret that an earlier move into the other direction has left, and that has been taken
// into use again since.
func (m *mover) checkUse(ctx context.Context, have *object) error {
	if !strings.HasPrefix(pausedBy(have), movedTo) {
		return nil
	}
	list := &certmanagerv1.CertificateList{}
	if err := m.to.List(ctx, list, client.InNamespace(have.GetNamespace())); err != nil {
		return err
	}
	for i := range list.Items {
		if crt := &list.Items[i]; crt.Spec.SecretName == have.GetName() && pausedBy(crt) == "" {
			return fmt.Errorf("%s in %s is in use there, by Certificate %s: delete one of the two, or leave it out", describe(have), m.to.name, crt.Name)
		}
	}
	return nil
}

// renamed is an item as the target would call it.
func (m *mover) renamed(it *item) *object {
	o := it.DeepCopy()
	o.SetNamespace(it.key.Namespace)
	return o
}

// tell prints the plan.
func (m *mover) tell(s *snapshot, namespaces []string) {
	m.say("From %s to %s:", m.from.name, m.to.name)
	for _, ns := range namespaces {
		m.say("  make  Namespace %s", ns)
	}
	for _, it := range s.items {
		verb := "move"
		switch {
		case it.done:
			verb = "moved"
		case it.kept:
			verb = "there"
		case !it.moves:
			verb = "copy"
		}
		m.say("  %-5s %s", verb, it)
	}
	for _, note := range s.notes {
		m.say("note: %s", note)
	}
	for _, o := range s.left {
		m.say("note: %s is under way. If it is not finished within %s, it is left behind, and its Certificate asks again in the target.", describe(o), m.wait)
	}
}

// quiet waits until nothing is being issued, for as long as the user wants, and until nothing is being revoked.
func (m *mover) quiet(ctx context.Context, s *snapshot) (*snapshot, error) {
	if len(s.busy)+len(s.revoking) > 0 {
		m.say("Waiting for: %s", strings.Join(append(s.busy, s.revoking...), ", "))
	}
	err := wait.PollUntilContextTimeout(ctx, lookAgain, m.wait, true, func(context.Context) (bool, error) { // the end of the wait breaks no reading off
		next, err := m.gather(ctx)
		if err != nil {
			return false, err
		}
		s = next
		m.progress.Step("waiting for %d issuances and %d revocations", len(s.busy), len(s.revoking))
		return len(s.busy)+len(s.revoking) == 0, nil
	})
	switch {
	case err != nil && !wait.Interrupted(err), ctx.Err() != nil:
		return nil, err
	case len(s.revoking) > 0:
		return nil, fmt.Errorf("a certificate is being replaced and revoked, which cannot be moved: wait for it, or remove its annotation: %s", strings.Join(s.revoking, ", "))
	}
	return s, nil
}

// pause has the controller of the source leave everything alone that is moved, and returns what the source has then.
func (m *mover) pause(ctx context.Context, s *snapshot) (*snapshot, error) {
	for range rounds {
		wrote := false
		for _, o := range append(objectsOf(s.items), s.left...) {
			if o.GetKind() == secretKind || pausedBy(o) != "" || !s.pauses(o) {
				continue
			}
			wrote = true
			if err := annotate(ctx, m.from, o, movingTo+string(m.to.uid)); err != nil {
				return nil, err
			}
		}
		if !wrote {
			return s, nil
		}
		var err error
		if s, err = m.gather(ctx); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("new objects keep coming in the source: try again when nobody changes anything there")
}

// pauses reports whether an object is paused in the source: copies are not.
func (s *snapshot) pauses(o *object) bool {
	return !slices.ContainsFunc(s.items, func(it *item) bool { return it.object == o && !it.moves })
}

// annotate sets the annotation of an object that exists, or removes it.
func annotate(ctx context.Context, c *cluster, o *object, value string) error {
	var said any
	if value != "" {
		said = value
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": o.GetUID(), "annotations": map[string]any{cmmeta.PausedAnnotation: said},
	}})
	if err != nil {
		return err
	}
	err = c.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fieldManager))
	return client.IgnoreNotFound(err)
}

// seal notes in the source that the target was verified: from then on the target counts. Secrets come first, because
// their users say whether they are done.
func (m *mover) seal(ctx context.Context, s *snapshot) error {
	for _, it := range slices.Backward(s.items) {
		if it.moves && pausedBy(it) != movedTo+string(m.to.uid) {
			if err := annotate(ctx, m.from, it.object, movedTo+string(m.to.uid)); err != nil {
				return err
			}
		}
	}
	return nil
}

// release lets the controller of the target work: on Certificates last.
func (m *mover) release(ctx context.Context, s *snapshot) error {
	order := []string{secretKind, issuerKind, cmmeta.ClusterIssuerKind, orderKind, requestKind, crtKind}
	for _, kind := range order {
		for _, it := range s.items {
			if it.GetKind() != kind {
				continue
			}
			have, err := m.inTarget(ctx, it)
			if err != nil {
				return err
			}
			if have != nil && m.ours(have) {
				if err := annotate(ctx, m.to, have, ""); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// deleteMoved deletes the moved objects in the source. It deletes an owned object before its owner: a later run finds
// owned objects only by their owner, if this one is killed. Secrets stay, but for next keys: a server may use them.
func (m *mover) deleteMoved(ctx context.Context, s *snapshot) error {
	if err := m.deleteLeft(ctx, s.left); err != nil {
		return err
	}
	var secrets []string
	for _, it := range slices.Backward(s.items) {
		if !it.moves {
			continue
		}
		if it.GetKind() == secretKind && it.GetLabels()[certmanagerv1.NextPrivateKeyLabel] == "" {
			secrets = append(secrets, it.GetNamespace()+"/"+it.GetName())
			continue
		}
		have, err := m.inTarget(ctx, it)
		switch {
		case err != nil:
			return err
		case have == nil && !it.lost:
			m.say("note: %s is not in %s any more, and stays in %s", it, m.to.name, m.from.name)
			continue
		case it.GetKind() == crtKind && len(it.GetOwnerReferences()) > 0: // its owner would make it again
			owner := it.GetOwnerReferences()[0]
			m.say("note: %s stays in %s, paused, for as long as %s %s, which it belongs to", it, m.from.name, owner.Kind, owner.Name)
			continue
		}
		if err := m.delete(ctx, it.object); err != nil {
			return err
		}
	}
	slices.Sort(secrets)
	m.say("Moved, and deleted in %s. The Secrets stay there, because they may be in use: delete those that are not.", m.from.name)
	for _, secret := range secrets {
		m.say("  %s", secret)
	}
	return nil
}

// deleteLeft deletes what was under way, and waits until the controller of the source has taken away what proves names:
// it needs the issuers for that.
func (m *mover) deleteLeft(ctx context.Context, left []*object) error {
	for _, o := range slices.Backward(left) {
		if err := m.delete(ctx, o); err != nil {
			return err
		}
		err := wait.PollUntilContextTimeout(ctx, lookAgain, m.wait, true, func(ctx context.Context) (bool, error) {
			now, err := m.read(ctx, o.GetKind(), client.ObjectKeyFromObject(o))
			return now == nil || now.GetUID() != o.GetUID(), err
		})
		if err != nil {
			return fmt.Errorf("%s in %s is not gone: does the controller run there, which cleans up? Everything was moved; run the command again: %w", describe(o), m.from.name, err)
		}
	}
	return nil
}

func (m *mover) delete(ctx context.Context, o *object) error {
	uid := o.GetUID()
	return client.IgnoreNotFound(m.from.Delete(ctx, o, client.Preconditions{UID: &uid}))
}
