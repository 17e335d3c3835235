package move

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/machine/certificate"
	"chancery.dev/internal/machine/facts"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/signer"
)

// verify reads the target again. It returns an error unless the target has everything as the source has it, and its
// Certificates need no step that they did not need in the source.
func (m *mover) verify(ctx context.Context, s *snapshot) error {
	source, target := newView(m.from), newView(m.to)
	var problems []error
	for _, it := range s.items {
		if it.done || it.lost {
			continue
		}
		have, err := m.inTarget(ctx, it)
		if err != nil {
			return err
		}
		if have == nil || !sameContent(m.renamed(it), have) {
			problems = append(problems, fmt.Errorf("%s is not the same in %s: does somebody else write there? Run the command again", it, m.to.name))
			continue
		}
		if it.GetKind() != crtKind || it.kept {
			continue
		}
		was, err := m.need(ctx, source, it.object)
		if err != nil {
			return err
		}
		is, err := m.need(ctx, target, have)
		if err != nil {
			return err
		}
		if !is.Rests() && was.Rests() && !issuing(it.object) {
			problems = append(problems, fmt.Errorf("%s would %s in %s, and not in %s: everything stays paused", it, is.Step, m.to.name, m.from.name))
		}
	}
	return errors.Join(problems...)
}

// issuing reports whether a Certificate waits for a request. Its request is left behind.
func issuing(o *object) bool {
	crt, err := typed[certmanagerv1.Certificate](o)
	return err == nil && certmanagerv1.HasCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionIssuing, cmmeta.ConditionTrue)
}

// need is what the machine decides about a Certificate of one side.
func (m *mover) need(ctx context.Context, v *view, o *object) (certificate.Action, error) {
	state, err := v.observe(ctx, o)
	if err != nil {
		return certificate.Action{}, err
	}
	return certificate.Decide(state, m.now()), nil
}

// view is one side, as decisions about Certificates see it.
type view struct {
	*cluster

	namespaces map[string]*namespace
}

// namespace is what is read at once.
type namespace struct {
	// claims are the Certificates by the names of their Secrets, requests and keys those of a Certificate.
	claims   map[string][]*certmanagerv1.Certificate
	requests map[types.UID][]facts.Request
	keys     map[types.UID][]facts.Key
}

func newView(c *cluster) *view { return &view{cluster: c, namespaces: map[string]*namespace{}} }

func (v *view) namespace(ctx context.Context, name string) (*namespace, error) {
	if n := v.namespaces[name]; n != nil {
		return n, nil
	}
	n := &namespace{claims: map[string][]*certmanagerv1.Certificate{}, requests: map[types.UID][]facts.Request{}, keys: map[types.UID][]facts.Key{}}
	certificates, requests, keys := &certmanagerv1.CertificateList{}, &certmanagerv1.CertificateRequestList{}, &corev1.SecretList{}
	in := client.InNamespace(name)
	err := errors.Join(v.List(ctx, certificates, in), v.List(ctx, requests, in),
		v.List(ctx, keys, in, client.MatchingLabels{certmanagerv1.NextPrivateKeyLabel: certmanagerv1.LabelTrue}))
	if err != nil {
		return nil, err
	}
	for i := range certificates.Items {
		if crt := &certificates.Items[i]; crt.DeletionTimestamp == nil {
			n.claims[crt.Spec.SecretName] = append(n.claims[crt.Spec.SecretName], crt)
		}
	}
	for i := range requests.Items {
		for _, ref := range requests.Items[i].OwnerReferences {
			n.requests[ref.UID] = append(n.requests[ref.UID], facts.OfRequest(&requests.Items[i]))
		}
	}
	for i := range keys.Items {
		for _, ref := range keys.Items[i].OwnerReferences {
			n.keys[ref.UID] = append(n.keys[ref.UID], facts.OfKey(&keys.Items[i]))
		}
	}
	v.namespaces[name] = n
	return n, nil
}

// observe gathers what is decided by. What only a running controller knows is left out, on both sides alike.
func (v *view) observe(ctx context.Context, o *object) (certificate.State, error) {
	crt, err := typed[certmanagerv1.Certificate](o)
	s := certificate.State{Certificate: crt}
	if err != nil {
		return s, err
	}
	n, err := v.namespace(ctx, crt.Namespace)
	if err != nil {
		return s, err
	}
	secret := &corev1.Secret{}
	switch err := v.Get(ctx, client.ObjectKey{Namespace: crt.Namespace, Name: crt.Spec.SecretName}, secret); {
	case err == nil:
		s.Secret = facts.OfSecret(secret)
		s.OwnerReference = s.Secret.Owner != nil
	case client.IgnoreNotFound(err) != nil:
		return s, err
	}
	s.SecretOwner = certificate.SecretOwner(n.claims[crt.Spec.SecretName], s.Secret)
	s.Keys, s.Requests = n.keys[crt.UID], n.requests[crt.UID]
	if s.Passwords, err = v.passwords(ctx, crt); err != nil {
		return s, err
	}
	s.Issuer, err = v.issuer(ctx, crt)
	return s, err
}

// passwords reads those of a Certificate's keystores. One that is missing is missing on both sides.
func (v *view) passwords(ctx context.Context, crt *certmanagerv1.Certificate) (facts.Passwords, error) {
	var p facts.Passwords
	var failed error
	read := func(ref cmmeta.SecretKeySelector, literal *string) string {
		if ref.Name == "" {
			if literal == nil {
				return ""
			}
			return *literal
		}
		secret := &corev1.Secret{}
		err := v.Get(ctx, client.ObjectKey{Namespace: crt.Namespace, Name: ref.Name}, secret)
		failed = errors.Join(failed, client.IgnoreNotFound(err))
		return string(secret.Data[ref.Key])
	}
	if k := crt.Spec.Keystores; k != nil {
		if k.JKS != nil && k.JKS.Create {
			p.JKS = read(k.JKS.PasswordSecretRef, k.JKS.Password)
		}
		if k.PKCS12 != nil && k.PKCS12.Create {
			p.PKCS12 = read(k.PKCS12.PasswordSecretRef, k.PKCS12.Password)
		}
	}
	return p, failed
}

// issuer says which CA the issuer of a Certificate signs with; nil if that is not known.
func (v *view) issuer(ctx context.Context, crt *certmanagerv1.Certificate) (*certificate.IssuerFacts, error) {
	if crt.Spec.IssuerRef.IsExternal() {
		return nil, nil //nolint:nilnil // as it says
	}
	issuer := certmanagerv1.NewIssuer(crt.Spec.IssuerRef, crt.Namespace)
	if err := v.Get(ctx, client.ObjectKeyFromObject(issuer), issuer); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	facts := &certificate.IssuerFacts{}
	if issuer.GetSpec().CA == nil {
		return facts, nil
	}
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: signer.ResourceNamespace(issuer, v.resources), Name: issuer.GetSpec().CA.SecretName}
	if err := v.Get(ctx, key, secret); err != nil {
		return facts, client.IgnoreNotFound(err)
	}
	chain, err := pki.DecodeChain(secret.Data[cmmeta.TLSCertKey])
	if err != nil {
		return facts, nil //nolint:nilerr // a CA that cannot be read replaces nothing
	}
	var firstSeen time.Time
	if said := issuer.GetStatus().CA; said != nil && said.Authority == signer.AuthorityID(chain[0]) {
		firstSeen = said.FirstSeen.Time
	}
	facts.Authority = certificate.AuthorityOf(chain, firstSeen)
	return facts, nil
}
