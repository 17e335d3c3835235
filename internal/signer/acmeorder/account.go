package acmeorder

import (
	"bytes"
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acme/accounts"
	"chancery.dev/internal/engine"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/machine/account"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/signer"
)

const (
	// lookAgain is how often a missing Secret is looked for beside its events.
	lookAgain = 30 * time.Second
	// callsAtOnce and callTimeout bound the calls for the accounts at one server.
	callsAtOnce = 4
	callTimeout = 90 * time.Second
)

// letsEncryptV2 is what took the place of the address of a protocol that is no more (spec §5.1); empty for any other.
func letsEncryptV2(server string) string {
	return map[string]string{
		"https://acme-v01.api.letsencrypt.org/directory":     "https://acme-v02.api.letsencrypt.org/directory",
		"https://acme-staging.api.letsencrypt.org/directory": "https://acme-staging-v02.api.letsencrypt.org/directory",
	}[strings.TrimSuffix(server, "/")]
}

// look is one look at the account of an issuer. It implements signer.Account.
type look struct {
	*Adapter

	issuer certmanagerv1.GenericIssuer
	spec   *acmev1.ACMEIssuer
	name   accounts.Issuer
	// secret holds the account's key, which is current, and mostly no next one, which takes its place at the CA (RFC
	// 8555 §7.3.5) or has done so already. All are nil if there is no Secret.
	secret        *corev1.Secret
	current, next crypto.Signer
	// host is the server's.
	host    string
	account *accounts.Account
	s       account.SetUp
}

// Lane implements signer.Remote.
func (s *Adapter) Lane(issuer certmanagerv1.GenericIssuer) engine.Lane {
	return engine.Lane{Name: "accounts at " + issuer.GetSpec().ACME.Server, Limit: callsAtOnce, Timeout: callTimeout}
}

// UsesAccount implements signer.AccountHolder.
func (s *Adapter) UsesAccount(issuer types.UID, uri string) bool {
	used, ok := s.Accounts.Of(issuer)
	return ok && used.URL() == uri
}

// OnLost implements signer.AccountHolder.
func (s *Adapter) OnLost(f func(types.NamespacedName)) {
	s.Accounts.Watch(func(i accounts.Issuer, change accounts.Change) {
		if change == accounts.Lost {
			f(types.NamespacedName{Namespace: i.Namespace, Name: i.Name})
		}
	})
}

// Account implements signer.AccountHolder by spec §5.1.
func (s *Adapter) Account(ctx context.Context, issuer certmanagerv1.GenericIssuer) (signer.Account, error) {
	l := &look{
		Adapter: s, issuer: issuer, spec: issuer.GetSpec().ACME,
		name: accounts.Issuer{UID: issuer.GetUID(), Namespace: issuer.GetNamespace(), Name: issuer.GetName()},
	}
	return l, l.observe(ctx)
}

// SetUp implements signer.Account.
func (l *look) SetUp() account.SetUp { return l.s }

// observe gathers what the account machine wants to know. Its error is a mistake in the issuer's spec or its Secrets.
func (l *look) observe(ctx context.Context) error {
	l.s = account.SetUp{
		Where:         types.NamespacedName{Namespace: signer.ResourceNamespace(l.issuer, l.ClusterResourceNamespace), Name: l.spec.PrivateKey.Name},
		SolverSecrets: slices.ContainsFunc(l.spec.Solvers, func(s acmev1.ACMEChallengeSolver) bool { return len(signer.DNS01Secrets(s.DNS01)) > 0 }),
		NextEntry:     l.nextEntry(), NewKey: pki.KeySpec{Algorithm: l.AccountKeyAlgorithm},
		Wanted: l.issuer.GetAnnotations()[acmev1.RotateAccountKeyAnnotation],
	}
	was := certmanagerv1.FindIssuerCondition(l.issuer.GetStatus().Conditions, certmanagerv1.IssuerConditionReady)
	if was != nil {
		l.s.WasReady, l.s.WasReason, l.s.WasSaid = was.Status == cmmeta.ConditionTrue, was.Reason, was.Message
	}
	if v2 := letsEncryptV2(l.spec.Server); v2 != "" {
		return fault.Pending(certmanagerv1.IssuerReasonInvalidConfig,
			"Your ACME server URL is set to a v1 endpoint (%s). You should update the spec.acme.server field to %q", l.spec.Server, v2)
	}
	if err := l.readKeys(ctx); err != nil || l.secret == nil {
		return err // the key is made whatever solvers lack (spec §5.1, steps 2 and 3)
	}
	if err := l.open(); err != nil {
		return err
	}
	return l.observeAccount(ctx)
}

// observeAccount says how the account stands, what the issuer's status says of it, and what speaks against the
// replacement of the key, where that is asked for or under way.
func (l *look) observeAccount(ctx context.Context) error {
	hash, err := keyHash(l.account.Key())
	if err != nil {
		return err
	}
	s, old, address := &l.s, l.issuer.GetStatus().ACME, l.account.URL()
	bound, ok := l.Accounts.Of(l.name.UID)
	s.HasKey, s.Bound = true, ok && bound == l.account
	s.Registered, s.Contact = address != "", l.account.Registered(l.spec.Email)
	s.Lost = s.Bound && !s.Registered
	s.Unchanged = l.unchanged()
	s.Status = acmev1.ACMEIssuerStatus{URI: address, LastRegisteredEmail: l.spec.Email, LastPrivateKeyHash: hash}
	if old != nil {
		s.SameKey, s.SameURL, s.Last = old.LastPrivateKeyHash == hash, old.URI == address, old.LastKeyRotation
	}
	s.Stored = l.secret.Annotations[acmev1.AccountKeyRotationAnnotation]
	if next := l.next; next != nil {
		s.NextKey, s.UsesNext, s.DeniesNext = true, l.account.Uses(next), l.account.IsUnknownKey(next)
	}
	switch {
	case s.NextKey && s.UsesNext:
		s.Follows, err = l.follows(ctx)
	case !s.NextKey && s.Wanted != "" && s.Wanted != s.Last && s.Wanted != s.Stored:
		s.Obstacle, err = l.obstacle(ctx)
	}
	return err
}

// open finds the account. Its errors are mistakes in the issuer's spec.
func (l *look) open() (err error) {
	server, err := url.Parse(l.spec.Server)
	if err != nil || server.Host == "" {
		return fault.Pending(certmanagerv1.IssuerReasonInvalidURL,
			"spec.acme.server %q is not the address of an ACME directory: use one like https://acme.example.com/directory", l.spec.Server)
	}
	l.host = server.Host
	l.account, err = l.Accounts.Open(l.name.UID, accounts.Server{
		URL: l.spec.Server, CABundle: l.spec.CABundle, SkipTLSVerify: l.spec.SkipTLSVerify, Tenant: l.name.Namespace != "",
	}, l.current)
	if err != nil {
		return fault.Pending(certmanagerv1.IssuerReasonInvalidConfig, "spec.acme: %w", err)
	}
	return nil
}

// unchanged reports whether the account was registered before with all that matters beside
// the key (spec §5.1, step 5): then a restart costs the CA nothing.
func (l *look) unchanged() bool {
	status := l.issuer.GetStatus()
	if status.ACME == nil {
		return false
	}
	known, err := url.Parse(status.ACME.URI)
	return err == nil && known.Host == l.host && status.ACME.LastRegisteredEmail == l.spec.Email &&
		certmanagerv1.HasIssuerCondition(status.Conditions, certmanagerv1.IssuerConditionReady, cmmeta.ConditionTrue)
}

// Take implements signer.Account.
func (l *look) Take(ctx context.Context, step account.Step) error {
	switch step {
	case account.StepCheckSolvers:
		return l.solverSecrets(ctx)
	case account.StepAdopt:
		return l.account.Adopt(l.issuer.GetStatus().ACME.URI, l.spec.Email)
	case account.StepRegister:
		return l.register(ctx)
	case account.StepBind:
		l.Accounts.Bind(l.name, l.account)
		return nil
	case account.StepAskKeyChange:
		return faultOf(l.account.CanReplace(ctx))
	case account.StepAskWhichKey, account.StepReplaceKey:
		address := ""
		if l.s.Unchanged {
			address = l.issuer.GetStatus().ACME.URI
		}
		return faultOf(l.account.Replace(ctx, l.next, address))
	default:
		return fmt.Errorf("the account machine asked for %q, which nobody knows: please report this as a bug", step)
	}
}

// register registers the account.
func (l *look) register(ctx context.Context) error {
	binding, err := l.externalAccount(ctx)
	if err != nil {
		return err
	}
	if until, why := l.account.Parked(); l.Now().Before(until) {
		return fault.ClassRateLimited.After(until.Sub(l.Now()), certmanagerv1.IssuerReasonErrRegisterACMEAccount,
			"The ACME server %s asked to be left alone until %s: %s", l.spec.Server, until.UTC().Format(time.RFC3339), why)
	}
	err = l.account.Register(ctx, accounts.Registration{Email: l.spec.Email, ExternalAccount: binding})
	if err == nil {
		return nil
	}
	reason, what := certmanagerv1.IssuerReasonErrRegisterACMEAccount, "Failed to register ACME account"
	f := fault.Of(err)
	if f != nil && f.Reason == certmanagerv1.IssuerReasonErrUpdateACMEAccount {
		reason, what = f.Reason, "Failed to update ACME account"
	}
	f = fault.Of(faultOf(err))
	said, hint := l.meaning(err), "; retrying with back-off"
	if said != "" { // before the words of strangers, which may be long
		err = fmt.Errorf("%s (%w)", said, err)
	}
	switch {
	case f == nil:
		return fmt.Errorf("%s with %s: %w%s", what, l.spec.Server, err, hint)
	case f.Class == fault.ClassPermanent && said == "":
		hint = ": the ACME server refuses it; correct spec.acme, or the account at the ACME server"
	case f.Class == fault.ClassPermanent:
		hint = ""
	}
	return f.Class.After(f.Delay, reason, "%s with %s: %w%s", what, l.spec.Server, err, hint)
}

// meaning says of a registration that has failed what is wrong and what helps, where the failure tells; empty
// otherwise.
func (l *look) meaning(err error) string {
	switch {
	case errors.Is(err, accounts.ErrClosed):
		return fmt.Sprintf("the account of this key is closed at the ACME server: delete the Secret %s to have a new account made", l.s.Where)
	case errors.Is(err, accounts.ErrBinding):
		eab := l.spec.ExternalAccountBinding
		return fmt.Sprintf("the ACME server does not take the external account binding: store the key that the CA gave for the key ID %q in Secret %s/%s, entry %q",
			eab.KeyID, l.s.Where.Namespace, eab.KeySecretRef.Name, eab.KeySecretRef.Key)
	case fault.Is[x509.UnknownAuthorityError](err):
		return "the server's certificate is by an unknown CA: put the certificate of that CA into spec.acme.caBundle"
	case fault.Is[x509.HostnameError](err):
		return "the server's certificate is for another name: correct spec.acme.server"
	default:
		return ""
	}
}

// faultOf says in the words of package fault how a call has failed. Without a class, nothing has: it is to be made
// again. What a CA refuses is asked again after an hour: the cause may be removed at the CA.
func faultOf(err error) error {
	f := fault.Of(err)
	switch {
	case f == nil:
		return err
	case f.Class == fault.ClassNotProcessed:
		return &fault.Fault{Kind: fault.KindAfter, Delay: f.Delay, Unsent: f.Unsent, Err: err}
	case !f.MayPass():
		return fault.ClassPermanent.After(fault.Calls.With(fault.ClassPermanent).First, "", "%w", err)
	case f.Class == fault.ClassRateLimited:
		return fault.ClassRateLimited.After(f.Delay, "", "%w", err)
	default:
		return fault.ClassUnavailable.After(f.Delay, "", "%w", err)
	}
}

// obstacle says why the key cannot be replaced, and what to do; empty if it can be.
func (l *look) obstacle(ctx context.Context) (string, error) {
	secret, name := l.secret, l.s.Where
	owner := metav1.GetControllerOf(secret)
	switch {
	case l.spec.DisableAccountKeyGeneration:
		return "disableAccountKeyGeneration is set, and a new key would have to be generated: unset it, or remove the annotation", nil
	case owner != nil:
		return fmt.Sprintf("Secret %s belongs to the %s %q, which would write the old key again: have it leave the Secret alone, and remove it from its ownerReferences", name, owner.Kind, owner.Name), nil
	case secret.Immutable != nil && *secret.Immutable:
		return fmt.Sprintf("Secret %s is immutable: put the key into one that is not", name), nil
	case secret.Data[l.nextEntry()] != nil:
		return fmt.Sprintf("Secret %s has an entry %q of somebody else, where the next key would be: remove it", name, l.nextEntry()), nil
	}
	others, err := l.others(ctx)
	for _, other := range others {
		spec, status := other.GetSpec().ACME, other.GetStatus().ACME
		who := accounts.Issuer{Namespace: other.GetNamespace(), Name: other.GetName()}
		switch same := l.sharesKey(other); {
		case same && spec.Server == l.spec.Server && (!bytes.Equal(spec.CABundle, l.spec.CABundle) || spec.SkipTLSVerify != l.spec.SkipTLSVerify):
			return fmt.Sprintf("%s uses the same key at the same ACME server with another caBundle or skipTLSVerify: give both issuers the same", who), nil
		case !same && status != nil && status.URI != "" && status.URI == l.account.URL():
			return fmt.Sprintf("%s has a copy of the key in Secret %s/%s, and the ACME server would refuse it from then on: have both issuers use one Secret, or give that one an account of its own",
				who, signer.ResourceNamespace(other, l.ClusterResourceNamespace), spec.PrivateKey.Name), nil
		}
	}
	return "", err
}

// follows names an issuer that uses the key at another ACME server, where it has not been replaced: until then that
// issuer needs the old one. It is empty if there is none.
func (l *look) follows(ctx context.Context) (string, error) {
	others, err := l.others(ctx)
	for _, other := range others {
		spec, status := other.GetSpec().ACME, other.GetStatus().ACME
		if status == nil || status.URI == "" || !l.sharesKey(other) || spec.Server == l.spec.Server {
			continue
		}
		if used, ok := l.Accounts.Of(other.GetUID()); !ok || !used.Uses(l.next) {
			who := accounts.Issuer{Namespace: other.GetNamespace(), Name: other.GetName()}
			return fmt.Sprintf("done at %s; it waits for %s, which uses the key at %s", l.spec.Server, who, spec.Server), nil
		}
	}
	return "", err
}

// others lists the other ACME issuers.
func (l *look) others(ctx context.Context) (out []certmanagerv1.GenericIssuer, err error) {
	all, err := l.Issuers(ctx)
	if err != nil {
		return nil, fmt.Errorf("list issuers: %w", err)
	}
	for _, other := range all {
		if other.GetSpec().ACME != nil && other.GetUID() != l.name.UID {
			out = append(out, other)
		}
	}
	return out, nil
}

// sharesKey reports whether another issuer takes its account's key from the same place.
func (l *look) sharesKey(other certmanagerv1.GenericIssuer) bool {
	ref := other.GetSpec().ACME.PrivateKey
	return ref.Name == l.spec.PrivateKey.Name && ref.KeyOr(corev1.TLSPrivateKeyKey) == l.entry() &&
		signer.ResourceNamespace(other, l.ClusterResourceNamespace) == l.s.Where.Namespace
}

// Secret implements signer.Account.
func (l *look) Secret(step account.Step, live *corev1.Secret, key crypto.Signer) (*corev1.Secret, error) {
	if step == account.StepFinishKey {
		return l.withKeyReplaced(live)
	}
	// As other tools that share the Secret expect of it: PKCS#1 for RSA, SEC 1 for ECDSA.
	text, err := pki.EncodePrivateKey(key, pki.PKCS1)
	switch {
	case err != nil:
		return nil, err
	case step == account.StepCreateKey:
		return l.newSecret(text), nil
	default:
		return l.withNextKey(live, text)
	}
}

// withNextKey returns the Secret with the next key.
func (l *look) withNextKey(live *corev1.Secret, next []byte) (*corev1.Secret, error) {
	seen := l.secret
	_, taken := live.Data[l.nextEntry()]
	if taken || !bytes.Equal(live.Data[l.entry()], seen.Data[l.entry()]) ||
		live.Annotations[acmev1.AccountKeyRotationAnnotation] != seen.Annotations[acmev1.AccountKeyRotationAnnotation] {
		return nil, account.Overtaken()
	}
	changed := live.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, acmev1.AccountKeyRotationAnnotation, l.s.Wanted)
	changed.Data[l.nextEntry()] = next
	return changed, nil
}

// withKeyReplaced returns the Secret with the next key, which the CA goes by, in the place of the current one; nil if
// another issuer was faster.
func (l *look) withKeyReplaced(live *corev1.Secret) (*corev1.Secret, error) {
	text, ok := live.Data[l.nextEntry()]
	if !ok {
		return nil, nil //nolint:nilnil // as it says
	}
	if stored, err := pki.DecodePrivateKey(text); err != nil || !l.account.Uses(stored) {
		return nil, account.Overtaken()
	}
	changed := live.DeepCopy()
	changed.Data[l.entry()] = text
	delete(changed.Data, l.nextEntry())
	return changed, nil
}
