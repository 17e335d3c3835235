package move

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/signer"
)

// Kinds of what is moved.
const (
	issuerKind  = "Issuer"
	orderKind   = "Order"
	secretKind  = "Secret"
	requestKind = certmanagerv1.CertificateRequestKind
	crtKind     = certmanagerv1.CertificateKind
)

// soon is how long before a renewal a Certificate counts as one that is being issued.
const soon = time.Minute

// kindOf returns the group and version of a kind.
func kindOf(kind string) schema.GroupVersionKind {
	switch kind {
	case secretKind:
		return corev1.SchemeGroupVersion.WithKind(kind)
	case orderKind, acmev1.ChallengeKind:
		return schema.GroupVersionKind{Group: acmev1.GroupName, Version: "v1", Kind: kind}
	default:
		return schema.GroupVersionKind{Group: certmanagerv1.GroupName, Version: "v1", Kind: kind}
	}
}

// snapshot is what the source has.
type snapshot struct {
	// items are what is to be in the target, owners first.
	items []*item
	// left are the requests under way with their Orders and Challenges: they are paused, and not moved.
	left []*object
	// busy says what is being issued and is not paused yet, revoking what is being revoked.
	busy, revoking []string
	// notes are for the user.
	notes []string

	secrets map[client.ObjectKey]*item
	issuers map[client.ObjectKey]*item // a ClusterIssuer has no namespace
}

// gather reads the source.
func (m *mover) gather(ctx context.Context) (*snapshot, error) {
	s := &snapshot{secrets: map[client.ObjectKey]*item{}, issuers: map[client.ObjectKey]*item{}}
	kinds := []string{issuerKind, crtKind, requestKind, orderKind, acmev1.ChallengeKind}
	if m.all {
		kinds = slices.Insert(kinds, 1, cmmeta.ClusterIssuerKind)
	}
	known := map[types.UID]*item{} // those that may own others
	underWay := map[types.UID]bool{}
	for _, kind := range kinds {
		list, err := m.list(ctx, kind)
		if err != nil {
			return nil, err
		}
		for i := range list {
			if err := m.take(s, &list[i], known, underWay); err != nil {
				return nil, err
			}
		}
	}
	if err := m.gatherNeeds(ctx, s, known); err != nil {
		return nil, err
	}
	return s, nil
}

func (m *mover) list(ctx context.Context, kind string, o ...client.ListOption) ([]object, error) {
	list := &unstructuredList{}
	gvk := kindOf(kind)
	gvk.Kind += "List"
	list.SetGroupVersionKind(gvk)
	err := m.from.List(ctx, list, append(o, client.InNamespace(m.namespace))...)
	return list.Items, explain(m.from, kind, err)
}

// take sorts an object of the source in. Owners come before what they own.
func (m *mover) take(s *snapshot, o *object, known map[types.UID]*item, underWay map[types.UID]bool) error {
	if o.GetDeletionTimestamp() != nil {
		s.notes = append(s.notes, describe(o)+" is being deleted, and is not moved")
		return nil
	}
	it := &item{object: o, key: client.ObjectKeyFromObject(o), moves: true, done: pausedBy(o) == movedTo+string(m.to.uid)}
	var owner *item
	ownerLeft := false
	for _, ref := range o.GetOwnerReferences() {
		owner, ownerLeft = firstOf(owner, known[ref.UID]), ownerLeft || underWay[ref.UID]
	}
	selected, leave, err := m.sort(s, it, owner != nil, ownerLeft)
	switch {
	case err != nil:
		return err
	case !selected:
	case leave:
		underWay[o.GetUID()] = true
		s.left = append(s.left, o)
		if pausedBy(o) == "" {
			s.busy = append(s.busy, describe(o))
		}
	default:
		s.items = append(s.items, it)
		known[o.GetUID()] = it
		if strings.HasSuffix(o.GetKind(), issuerKind) {
			s.issuers[it.key] = it
		}
	}
	return nil
}

// sort says whether an object is selected, and whether it is left behind because it is under way. What it belongs to is
// moved (owned), or left behind.
func (m *mover) sort(s *snapshot, it *item, owned, ownerLeft bool) (selected, leave bool, err error) {
	selected = m.selector.Matches(labels.Set(it.GetLabels()))
	switch it.GetKind() {
	case crtKind:
		crt, err := typed[certmanagerv1.Certificate](it.object)
		if err == nil && selected && !it.done {
			m.look(s, crt, it.object)
		}
		return selected, false, err
	case requestKind:
		r, err := typed[certmanagerv1.CertificateRequest](it.object)
		return owned || selected && !ownedByCertificate(it.object), unfinished(r), err
	case orderKind:
		order, err := typed[acmev1.Order](it.object)
		return owned || ownerLeft, ownerLeft || !order.Status.State.IsFinal(), err
	case acmev1.ChallengeKind:
		return owned || ownerLeft, true, nil
	default:
		return selected, false, nil
	}
}

func firstOf(a, b *item) *item {
	if a != nil {
		return a
	}
	return b
}

func ownedByCertificate(o *object) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.Kind == crtKind })
}

// look notes what a Certificate is in the middle of.
func (m *mover) look(s *snapshot, crt *certmanagerv1.Certificate, o *object) {
	conditions := crt.Status.Conditions
	if certmanagerv1.HasCertificateCondition(conditions, certmanagerv1.CertificateConditionRevoking, cmmeta.ConditionTrue) {
		s.revoking = append(s.revoking, describe(o))
	}
	due := crt.Status.RenewalTime != nil && crt.Status.RenewalTime.Time.Before(m.now().Add(soon)) && crt.Status.LastFailureTime == nil
	issuing := certmanagerv1.HasCertificateCondition(conditions, certmanagerv1.CertificateConditionIssuing, cmmeta.ConditionTrue)
	if (due || issuing) && pausedBy(o) == "" {
		s.busy = append(s.busy, describe(o))
	}
}

// gatherNeeds adds what Certificates and issuers need: issuers that were not selected, and Secrets.
func (m *mover) gatherNeeds(ctx context.Context, s *snapshot, known map[types.UID]*item) error {
	for _, it := range slices.Clone(s.items) {
		if it.GetKind() == crtKind {
			if err := m.needsOfCertificate(ctx, s, it); err != nil {
				return err
			}
		}
	}
	for _, it := range s.issuers {
		spec, err := issuerSpec(it.object)
		if err != nil {
			return err
		}
		for _, name := range signer.SecretNames(spec) {
			if err := m.needSecret(ctx, s, it, signer.ResourceNamespace(it, m.from.resources), name); err != nil {
				return err
			}
		}
	}
	if err := m.gatherNextKeys(ctx, s, known); err != nil {
		return err
	}
	s.decideMoves()
	return nil
}

// gatherNextKeys adds the keys of issuances under way.
func (m *mover) gatherNextKeys(ctx context.Context, s *snapshot, known map[types.UID]*item) error {
	keys, err := m.list(ctx, secretKind, client.MatchingLabels{certmanagerv1.NextPrivateKeyLabel: certmanagerv1.LabelTrue})
	for i := range keys {
		for _, ref := range keys[i].GetOwnerReferences() {
			if owner := known[ref.UID]; owner != nil {
				m.addSecret(s, owner, &keys[i])
			}
		}
	}
	return err
}

func (m *mover) needsOfCertificate(ctx context.Context, s *snapshot, it *item) error {
	crt, err := typed[certmanagerv1.Certificate](it.object)
	if err != nil {
		return err
	}
	if err := m.needIssuer(ctx, s, it, crt.Spec.IssuerRef); err != nil {
		return err
	}
	for _, name := range secretsOf(crt) {
		if err := m.needSecret(ctx, s, it, it.key.Namespace, name); err != nil {
			return err
		}
	}
	return nil
}

// secretsOf names the Secrets of a Certificate: its own, and those of the passwords of its keystores.
func secretsOf(crt *certmanagerv1.Certificate) []string {
	names := []string{crt.Spec.SecretName}
	if k := crt.Spec.Keystores; k != nil {
		if k.JKS != nil {
			names = append(names, k.JKS.PasswordSecretRef.Name)
		}
		if k.PKCS12 != nil {
			names = append(names, k.PKCS12.PasswordSecretRef.Name)
		}
	}
	return names
}

func issuerSpec(o *object) (*certmanagerv1.IssuerSpec, error) {
	issuer, err := typed[certmanagerv1.Issuer](o) // both kinds have the same form
	return &issuer.Spec, err
}

// needIssuer adds the issuer of a Certificate as a copy, unless it is there.
func (m *mover) needIssuer(ctx context.Context, s *snapshot, by *item, ref cmmeta.IssuerReference) error {
	if ref.GroupOrDefault() != certmanagerv1.GroupName {
		s.notes = append(s.notes, fmt.Sprintf("%s is issued by %s %s of %s, which is not moved: make it in the target first",
			by, ref.KindOrDefault(), ref.Name, ref.GroupOrDefault()))
		return nil
	}
	key := client.ObjectKey{Namespace: ref.NamespaceFrom(by.key.Namespace), Name: ref.Name}
	if s.issuers[key] != nil {
		return nil
	}
	o, err := m.read(ctx, ref.KindOrDefault(), key)
	if o == nil {
		return err
	}
	it := &item{object: o, key: key}
	s.issuers[key] = it
	s.items = append(s.items, it)
	return nil
}

// read reads an object of the source; nil if there is none.
func (m *mover) read(ctx context.Context, kind string, key client.ObjectKey) (*object, error) {
	o := &object{}
	o.SetGroupVersionKind(kindOf(kind))
	if err := m.from.Get(ctx, key, o); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return o, nil
}

func (m *mover) needSecret(ctx context.Context, s *snapshot, by *item, namespace, name string) error {
	key := client.ObjectKey{Namespace: namespace, Name: name}
	if name == "" {
		return nil
	}
	if it := s.secrets[key]; it != nil {
		it.users = append(it.users, by)
		return nil
	}
	o, err := m.read(ctx, secretKind, key)
	if o != nil {
		m.addSecret(s, by, o)
	}
	return err
}

func (m *mover) addSecret(s *snapshot, by *item, o *object) {
	key := client.ObjectKeyFromObject(o)
	it := s.secrets[key]
	if it == nil {
		it = &item{object: o, key: key}
		if by.GetKind() == cmmeta.ClusterIssuerKind {
			it.key.Namespace = m.to.resources
		}
		s.secrets[key] = it
		s.items = append(s.items, it)
	}
	it.users = append(it.users, by)
}

// decideMoves says of each Secret whether it is moved, and puts the items in order: owners first.
func (s *snapshot) decideMoves() {
	for _, it := range s.secrets {
		it.moves = !slices.ContainsFunc(it.users, func(u *item) bool { return !u.moves })
		it.done = !slices.ContainsFunc(it.users, func(u *item) bool { return !u.done })
	}
	order := []string{issuerKind, cmmeta.ClusterIssuerKind, crtKind, requestKind, orderKind, secretKind}
	slices.SortStableFunc(s.items, func(a, b *item) int {
		return slices.Index(order, a.GetKind()) - slices.Index(order, b.GetKind())
	})
}

// versions tells whether the source has changed.
func (s *snapshot) versions() map[types.UID]string {
	out := map[types.UID]string{}
	for _, it := range s.items {
		out[it.GetUID()] = it.GetResourceVersion()
	}
	return out
}

// explain says what helps where a kind is not served.
func explain(c *cluster, kind string, err error) error {
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return fmt.Errorf("%s does not have the definition of %s: run chancery install there: %w", c.name, kind, err)
	}
	return err
}
