package move

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
)

// transfer copies everything to the target and verifies it. It does so again if the source has changed meanwhile.
func (m *mover) transfer(ctx context.Context, s *snapshot, namespaces []string) (*snapshot, error) {
	for _, name := range namespaces {
		err := m.to.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, client.FieldOwner(fieldManager))
		if client.IgnoreAlreadyExists(err) != nil {
			return nil, err
		}
	}
	for range rounds {
		m.uids = map[types.UID]types.UID{}
		for _, it := range s.items {
			if err := m.bring(ctx, it); err != nil {
				return nil, fmt.Errorf("%s: %w", it, err)
			}
		}
		if err := m.verify(ctx, s); err != nil {
			return nil, err
		}
		now, err := m.gather(ctx)
		if err != nil {
			return nil, err
		}
		if maps.Equal(s.versions(), now.versions()) {
			return s, nil
		}
		if s, err = m.pause(ctx, now); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("the source keeps changing: try again when nobody changes anything there")
}

// bring puts an item into the target, paused.
func (m *mover) bring(ctx context.Context, it *item) error {
	have, err := m.inTarget(ctx, it)
	if err != nil {
		return err
	}
	if have != nil {
		m.uids[it.GetUID()] = have.GetUID()
	}
	if it.done {
		return nil
	}
	if have != nil && !m.ours(have) {
		return m.checkConflict(ctx, it)
	}
	if m.orphaned(it) {
		it.lost = true
		return nil
	}
	want, err := m.wanted(ctx, it)
	if err != nil {
		return err
	}
	if have, err = m.write(ctx, it, want, have); err != nil || it.lost {
		return err
	}
	m.uids[it.GetUID()] = have.GetUID()
	if !sameContent(want, have) {
		return fmt.Errorf("%s does not keep all of it: are the definitions there older? Run chancery install there", m.to.name)
	}
	if have, err = m.writeStatus(ctx, it, have); err != nil || it.lost {
		return err
	}
	fields, err := managedFieldsFor(it.object, m.uids)
	if err != nil || sameFields(fields, have.GetManagedFields()) {
		return err
	}
	have.SetManagedFields(fields)
	return m.to.Update(ctx, have)
}

// orphaned reports whether an item belongs to a CertificateRequest that could not be moved.
func (m *mover) orphaned(it *item) bool {
	for _, ref := range it.GetOwnerReferences() {
		if it.GetKind() == orderKind && ref.Kind == requestKind && m.uids[ref.UID] == "" {
			return true
		}
	}
	return false
}

// wanted is an item as the target is to have it, but for its status: paused, with the owners that the target has.
func (m *mover) wanted(ctx context.Context, it *item) (*object, error) {
	o := &object{Object: content(m.renamed(it))}
	o.SetNamespace(it.key.Namespace)
	pauseAs(o, movingFrom+string(m.from.uid))
	var owners []metav1.OwnerReference
	for _, ref := range it.GetOwnerReferences() {
		if m.uids[ref.UID] == "" {
			uid, err := m.uidInTarget(ctx, it.key.Namespace, ref)
			if err != nil {
				return nil, err
			}
			if uid == "" {
				m.say("note: %s belongs to %s %s, which %s does not have: it belongs to nobody there", it, ref.Kind, ref.Name, m.to.name)
				continue
			}
			m.uids[ref.UID] = uid
		}
		ref.UID = m.uids[ref.UID]
		owners = append(owners, ref)
	}
	o.SetOwnerReferences(owners)
	return o, nil
}

// uidInTarget looks for an owner that is not moved; empty if the target has none.
func (m *mover) uidInTarget(ctx context.Context, namespace string, ref metav1.OwnerReference) (types.UID, error) {
	o := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: ref.APIVersion, Kind: ref.Kind}}
	err := m.to.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, o)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return "", nil
	}
	return o.UID, err
}

// write makes or replaces an object of the target.
func (m *mover) write(ctx context.Context, it *item, want, have *object) (*object, error) {
	if have != nil {
		if sameContent(want, have) && pausedBy(want) == pausedBy(have) &&
			equality.Semantic.DeepEqual(want.GetOwnerReferences(), have.GetOwnerReferences()) {
			return have, nil
		}
		if it.GetKind() != requestKind && it.GetKind() != orderKind {
			next := want.DeepCopy()
			next.SetResourceVersion(have.GetResourceVersion())
			err := m.to.Update(ctx, next)
			if !apierrors.IsInvalid(err) {
				return next, err
			}
		}
		uid := have.GetUID() // something in it cannot be changed
		if err := m.to.Delete(ctx, have, client.Preconditions{UID: &uid}); err != nil {
			return nil, err
		}
	}
	by := m.to.Client
	if it.GetKind() == requestKind {
		var err error
		if by, err = m.requester(it); by == nil {
			return nil, err
		}
	}
	made := want.DeepCopy()
	err := by.Create(ctx, made)
	if it.GetKind() == requestKind && apierrors.IsForbidden(err) {
		m.lose(it, err)
		return nil, nil //nolint:nilnil // as lost says
	}
	return made, err
}

// requester returns a client with the rights of the user who made a request: the API server writes the user who makes
// the copy into the copy. The client is nil if the request does not say who that user was.
func (m *mover) requester(it *item) (client.Client, error) {
	r, err := typed[certmanagerv1.CertificateRequest](it.object)
	if err != nil {
		return nil, err
	}
	if r.Spec.Username == "" {
		m.lose(it, errors.New("it does not say who made it"))
		return nil, nil //nolint:nilnil // as lost says
	}
	return m.to.as(rest.ImpersonationConfig{UserName: r.Spec.Username, UID: r.Spec.UID, Groups: r.Spec.Groups, Extra: extraOf(r)})
}

func extraOf(r *certmanagerv1.CertificateRequest) map[string][]string {
	out := map[string][]string{}
	for k, v := range r.Spec.Extra {
		out[k] = v
	}
	return out
}

// lose leaves a CertificateRequest behind: it is of the past, and its Certificate does without.
func (m *mover) lose(it *item, why error) {
	it.lost = true
	m.say("note: %s is left behind, and the Orders that belong to it: %v", it, why)
}

// writeStatus gives an object of the target the status of the original.
func (m *mover) writeStatus(ctx context.Context, it *item, have *object) (*object, error) {
	status := statusFor(it.object, have.GetGeneration())
	if status == nil || equality.Semantic.DeepEqual(have.Object["status"], any(status)) {
		return have, nil
	}
	next := have.DeepCopy()
	next.Object["status"] = status
	err := m.to.Status().Update(ctx, next)
	if it.GetKind() == requestKind && (apierrors.IsForbidden(err) || apierrors.IsInvalid(err)) { // an approval that the mover may not give
		m.lose(it, err)
		uid := have.GetUID()
		return nil, m.to.Delete(ctx, have, client.Preconditions{UID: &uid})
	}
	if err == nil && !equality.Semantic.DeepEqual(next.Object["status"], any(status)) {
		err = fmt.Errorf("%s does not keep all of its status: are the definitions there older? Run chancery install there", m.to.name)
	}
	return next, err
}
