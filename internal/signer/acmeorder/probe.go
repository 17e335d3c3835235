package acmeorder

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	// writeAgain is when to try again what somebody else's write has overtaken.
	writeAgain = time.Second
	// probesAtOnce and probeTimeout bound the looks at the issuers of one server.
	probesAtOnce = 4
	probeTimeout = 90 * time.Second
	// stepsPerProbe bounds how many steps one look takes: a new account with a new key takes fewer.
	stepsPerProbe = 12
)

// letsEncryptV1 are addresses of a protocol that is no more (spec §5.1), with those
// that took their place.
func letsEncryptV1(server string) (string, bool) {
	v2, ok := map[string]string{
		"https://acme-v01.api.letsencrypt.org/directory":     "https://acme-v02.api.letsencrypt.org/directory",
		"https://acme-staging.api.letsencrypt.org/directory": "https://acme-staging-v02.api.letsencrypt.org/directory",
	}[strings.TrimSuffix(server, "/")]
	return v2, ok
}

// probe is one look at an issuer: it observes, has the account machine decide, and does what was decided, until
// nothing is left to do now.
type probe struct {
	*Adapter

	issuer certmanagerv1.GenericIssuer
	spec   *acmev1.ACMEIssuer
	name   accounts.Issuer
	// namespace is where the issuer's Secrets are.
	namespace string
	// made is the Secret with the account's key if there was none when this look began.
	made    *corev1.Secret
	keys    accountKeys
	account *accounts.Account
	// wasBound says that the issuer used an account when this look began.
	wasBound bool
	s        account.SetUp
}

// Lane implements signer.Remote.
func (s *Adapter) Lane(issuer certmanagerv1.GenericIssuer) engine.Lane {
	return engine.Lane{Name: "accounts at " + issuer.GetSpec().ACME.Server, Limit: probesAtOnce, Timeout: probeTimeout}
}

// Probe implements signer.Prober by spec §5.1: it registers the account, and replaces the account's key if somebody
// asks for that.
func (s *Adapter) Probe(ctx context.Context, issuer certmanagerv1.GenericIssuer) (signer.Facts, error) {
	p := &probe{
		Adapter: s, issuer: issuer, spec: issuer.GetSpec().ACME,
		name:      accounts.Issuer{UID: issuer.GetUID(), Namespace: issuer.GetNamespace(), Name: issuer.GetName()},
		namespace: signer.ResourceNamespace(issuer, s.ClusterResourceNamespace),
	}
	if p.spec == nil {
		return signer.Facts{}, fmt.Errorf("issuer %q has no spec.acme", issuer.GetName())
	}
	_, p.wasBound = s.Accounts.Of(p.name.UID)
	for range stepsPerProbe {
		if err := p.observe(ctx); err != nil {
			return signer.Facts{}, err
		}
		a := p.s.Decide()
		if a.Step == account.StepRest {
			return p.facts(a)
		}
		p.s.Failure = p.do(ctx, a.Step)
		p.s.Failed = a.Step
	}
	return signer.Facts{}, fault.After(writeAgain, "", "the account of issuer %q does not come to rest", issuer.GetName())
}

// facts are what a look has found.
func (p *probe) facts(a account.Action) (signer.Facts, error) {
	if a.Say == nil {
		return signer.Facts{}, a.Failure
	}
	facts := signer.Facts{Ready: a.Say.Ready, Reason: a.Say.Reason, Message: a.Say.Message}
	if a.Say.Again > 0 {
		facts.Until = p.Now().Add(a.Say.Again)
	}
	if a.Say.Warn {
		p.Tell(p.issuer, true, facts.Reason, facts.Message)
	}
	if p.account.URL() == "" {
		return facts, a.Failure
	}
	hash, err := keyHash(p.account.Key())
	if err != nil {
		return signer.Facts{}, err
	}
	facts.ACME = &acmev1.ACMEIssuerStatus{
		URI: p.account.URL(), LastRegisteredEmail: p.spec.Email, LastPrivateKeyHash: hash, LastKeyRotation: a.Say.Last,
	}
	return facts, a.Failure
}

// observe gathers what the account machine wants to know. Its error is a mistake in the issuer's spec or its Secrets.
func (p *probe) observe(ctx context.Context) error {
	was := certmanagerv1.FindIssuerCondition(p.issuer.GetStatus().Conditions, certmanagerv1.IssuerConditionReady)
	next := account.SetUp{
		Where: p.namespace + "/" + p.spec.PrivateKey.Name, NextEntry: p.nextEntry(), Wanted: p.rotation(),
		CanReplace: p.s.CanReplace || p.s.Failure == nil && p.s.Failed == account.StepAskKeyChange,
		Failed:     p.s.Failed, Failure: p.s.Failure, WasBound: p.wasBound,
	}
	if was != nil {
		next.WasReady, next.WasReason, next.WasSaid = was.Status == cmmeta.ConditionTrue, was.Reason, was.Message
	}
	p.s = next
	if v2, is := letsEncryptV1(p.spec.Server); is {
		return fault.Pending(certmanagerv1.IssuerReasonInvalidConfig,
			"Your ACME server URL is set to a v1 endpoint (%s). You should update the spec.acme.server field to %q", p.spec.Server, v2)
	}
	var err error
	if p.keys, err = p.accountKeys(ctx); err != nil {
		return err
	}
	if p.s.HasKey = p.keys.current != nil; !p.s.HasKey {
		return nil // the key is made whatever solvers lack (spec §5.1, steps 2 and 3)
	}
	if err := p.solverSecrets(ctx); err != nil {
		return err
	}
	if err := p.open(); err != nil {
		return err
	}
	if err := p.observeAccount(); err != nil {
		return err
	}
	return p.observeOthers(ctx)
}

// observeAccount says how the account stands, and what the issuer's status says of it.
func (p *probe) observeAccount() error {
	hash, err := keyHash(p.account.Key())
	if err != nil {
		return err
	}
	s, old := &p.s, p.issuer.GetStatus().ACME
	bound, ok := p.Accounts.Of(p.name.UID)
	s.Bound = ok && bound == p.account
	s.Registered, s.Contact = p.account.URL() != "", p.account.Registered(p.spec.Email)
	s.Lost = s.Bound && !s.Registered
	s.Unchanged = p.made == nil && p.unchanged()
	if old != nil {
		s.SameKey, s.SameURL, s.Last = old.LastPrivateKeyHash == hash, old.URI == p.account.URL(), old.LastKeyRotation
	}
	s.Stored = p.keys.secret.Annotations[acmev1.AccountKeyRotationAnnotation]
	if next := p.keys.next; next != nil {
		s.NextKey, s.UsesNext, s.DeniesNext = true, p.account.Uses(next), p.account.IsUnknownKey(next)
	}
	return nil
}

// open finds the account. Its errors are mistakes in the issuer's spec.
func (p *probe) open() (err error) {
	server, err := url.Parse(p.spec.Server)
	if err != nil || server.Host == "" {
		return fault.Pending(certmanagerv1.IssuerReasonInvalidURL,
			"spec.acme.server %q is not the address of an ACME directory: use one like https://acme.example.com/directory", p.spec.Server)
	}
	p.account, err = p.Accounts.Open(p.name.UID, accounts.Server{
		URL: p.spec.Server, CABundle: p.spec.CABundle, SkipTLSVerify: p.spec.SkipTLSVerify, Tenant: p.name.Namespace != "",
	}, p.keys.current)
	if err != nil {
		return fault.Pending(certmanagerv1.IssuerReasonInvalidConfig, "spec.acme: %w", err)
	}
	return nil
}

// unchanged reports whether the account was registered before with all that matters beside
// the key (spec §5.1, step 5): then a restart costs the CA nothing.
func (p *probe) unchanged() bool {
	status := p.issuer.GetStatus()
	if status.ACME == nil || status.ACME.URI == "" {
		return false
	}
	server, err := url.Parse(p.spec.Server)
	if err != nil {
		return false
	}
	known, err := url.Parse(status.ACME.URI)
	return err == nil && known.Host == server.Host &&
		status.ACME.LastRegisteredEmail == p.spec.Email &&
		certmanagerv1.HasIssuerCondition(status.Conditions, certmanagerv1.IssuerConditionReady, cmmeta.ConditionTrue)
}

// rotation is the value that asks for another key; empty if nobody asks.
func (p *probe) rotation() string {
	return p.issuer.GetAnnotations()[acmev1.RotateAccountKeyAnnotation]
}

// do takes a step.
func (p *probe) do(ctx context.Context, step account.Step) error {
	switch step {
	case account.StepCreateKey:
		return p.createKey(ctx)
	case account.StepAdopt:
		return p.account.Adopt(p.issuer.GetStatus().ACME.URI, p.spec.Email)
	case account.StepRegister:
		return p.register(ctx)
	case account.StepBind:
		p.Accounts.Bind(p.name, p.account)
		return nil
	case account.StepAskKeyChange:
		return faultOf(p.account.CanReplace(ctx))
	case account.StepStoreNextKey:
		return p.storeNextKey(ctx)
	case account.StepAskWhichKey, account.StepReplaceKey:
		address := ""
		if p.s.Unchanged {
			address = p.issuer.GetStatus().ACME.URI
		}
		return faultOf(p.account.Replace(ctx, p.keys.next, address))
	case account.StepFinishKey:
		return p.finishKey(ctx)
	default:
		return fmt.Errorf("the account machine asked for %q, which nobody knows: please report this as a bug", step)
	}
}

// register registers the account.
func (p *probe) register(ctx context.Context) error {
	binding, err := p.externalAccount(ctx)
	if err != nil {
		return err
	}
	if until, why := p.account.Parked(); p.Now().Before(until) {
		return fault.ClassRateLimited.After(until.Sub(p.Now()), certmanagerv1.IssuerReasonErrRegisterACMEAccount,
			"The ACME server %s asked to be left alone until %s: %s", p.spec.Server, until.UTC().Format(time.RFC3339), why)
	}
	err = p.account.Register(ctx, accounts.Registration{Email: p.spec.Email, ExternalAccount: binding})
	if err == nil {
		return nil
	}
	reason, what := certmanagerv1.IssuerReasonErrRegisterACMEAccount, "Failed to register ACME account"
	f := fault.Of(err)
	if f != nil && f.Reason == certmanagerv1.IssuerReasonErrUpdateACMEAccount {
		reason, what = f.Reason, "Failed to update ACME account"
	}
	f = fault.Of(faultOf(err))
	said, hint := p.meaning(err), ""
	if said != "" { // before the words of strangers, which may be long
		err = fmt.Errorf("%s (%w)", said, err)
	}
	switch {
	case f == nil:
		return fmt.Errorf("%s with %s: %w; retrying with back-off", what, p.spec.Server, err)
	case f.Kind != fault.KindTerminal:
		return f.Class.After(f.Delay, reason, "%s with %s: %w; retrying with back-off", what, p.spec.Server, err)
	case said == "":
		hint = ": the ACME server refuses it; correct spec.acme, or the account at the ACME server"
	}
	return fault.ClassPermanent.After(fault.Calls.With(fault.ClassPermanent).First, reason, "%s with %s: %w%s", what, p.spec.Server, err, hint)
}

// meaning says of a registration that has failed what is wrong and what helps, where the failure tells; empty
// otherwise.
func (p *probe) meaning(err error) string {
	var (
		unknown x509.UnknownAuthorityError
		host    x509.HostnameError
	)
	switch {
	case errors.Is(err, accounts.ErrClosed):
		return fmt.Sprintf("the account of this key is closed at the ACME server: delete the Secret %s to have a new account made", p.s.Where)
	case errors.Is(err, accounts.ErrBinding):
		eab := p.spec.ExternalAccountBinding
		return fmt.Sprintf("the ACME server does not take the external account binding: store the key that the CA gave for the key ID %q in Secret %s/%s, entry %q",
			eab.KeyID, p.namespace, eab.KeySecretRef.Name, eab.KeySecretRef.Key)
	case errors.As(err, &unknown):
		return "the server's certificate is by an unknown CA: put the certificate of that CA into spec.acme.caBundle"
	case errors.As(err, &host):
		return "the server's certificate is for another name: correct spec.acme.server"
	default:
		return ""
	}
}

// faultOf says in the words of package fault how a call has failed. Without a class, nothing has: it is to be made
// again.
func faultOf(err error) error {
	f := fault.Of(err)
	switch {
	case f == nil:
		return err
	case f.Class == fault.ClassNotProcessed:
		return &fault.Fault{Kind: fault.KindAfter, Delay: f.Delay, Unsent: f.Unsent, Err: err}
	case !f.MayPass():
		return fault.Failed(fault.ClassPermanent, "", "%w", err)
	case f.Class == fault.ClassRateLimited:
		return fault.ClassRateLimited.After(f.Delay, "", "%w", err)
	default:
		return fault.ClassUnavailable.After(f.Delay, "", "%w", err)
	}
}

// observeOthers says what speaks against the replacement of a key, where one is asked for or under way.
func (p *probe) observeOthers(ctx context.Context) (err error) {
	switch {
	case p.s.NextKey && p.s.UsesNext:
		p.s.Follows, err = p.follows(ctx)
	case !p.s.NextKey && p.s.Wanted != "" && p.s.Wanted != p.s.Last && p.s.Wanted != p.s.Stored:
		p.s.Obstacle, err = p.obstacle(ctx)
	}
	return err
}

// obstacle says why the key cannot be replaced, and what to do; empty if it can be.
func (p *probe) obstacle(ctx context.Context) (string, error) {
	secret, name := p.keys.secret, p.s.Where
	owner := metav1.GetControllerOf(secret)
	switch {
	case p.spec.DisableAccountKeyGeneration:
		return "disableAccountKeyGeneration is set, and a new key would have to be generated: unset it, or remove the annotation", nil
	case owner != nil:
		return fmt.Sprintf("Secret %s belongs to the %s %q, which would write the old key again: have it leave the Secret alone, and remove it from its ownerReferences", name, owner.Kind, owner.Name), nil
	case secret.Immutable != nil && *secret.Immutable:
		return fmt.Sprintf("Secret %s is immutable: put the key into one that is not", name), nil
	case secret.Data[p.nextEntry()] != nil:
		return fmt.Sprintf("Secret %s has an entry %q of somebody else, where the next key would be: remove it", name, p.nextEntry()), nil
	}
	others, err := p.others(ctx)
	for _, other := range others {
		spec, status := other.GetSpec().ACME, other.GetStatus().ACME
		who := accounts.Issuer{Namespace: other.GetNamespace(), Name: other.GetName()}
		switch same := p.sharesKey(other); {
		case same && spec.Server == p.spec.Server && !p.trustsAlike(spec):
			return fmt.Sprintf("%s uses the same key at the same ACME server with another caBundle or skipTLSVerify: give both issuers the same", who), nil
		case !same && status != nil && status.URI != "" && status.URI == p.account.URL():
			return fmt.Sprintf("%s has a copy of the key in Secret %s/%s, and the ACME server would refuse it from then on: have both issuers use one Secret, or give that one an account of its own",
				who, signer.ResourceNamespace(other, p.ClusterResourceNamespace), spec.PrivateKey.Name), nil
		}
	}
	return "", err
}

// follows names an issuer that uses the key at another ACME server, where it has not been replaced: until then that
// issuer needs the old one. It is empty if there is none.
func (p *probe) follows(ctx context.Context) (string, error) {
	others, err := p.others(ctx)
	for _, other := range others {
		spec, status := other.GetSpec().ACME, other.GetStatus().ACME
		if status == nil || status.URI == "" || !p.sharesKey(other) || spec.Server == p.spec.Server {
			continue
		}
		if used, ok := p.Accounts.Of(other.GetUID()); !ok || !used.Uses(p.keys.next) {
			who := accounts.Issuer{Namespace: other.GetNamespace(), Name: other.GetName()}
			return fmt.Sprintf("done at %s; it waits for %s, which uses the key at %s", p.spec.Server, who, spec.Server), nil
		}
	}
	return "", err
}

// others lists the other ACME issuers.
func (p *probe) others(ctx context.Context) (out []certmanagerv1.GenericIssuer, err error) {
	all, err := p.Issuers(ctx)
	if err != nil {
		return nil, fmt.Errorf("list issuers: %w", err)
	}
	for _, other := range all {
		if other.GetSpec().ACME != nil && other.GetUID() != p.name.UID {
			out = append(out, other)
		}
	}
	return out, nil
}

// sharesKey reports whether another issuer takes its account's key from the same place.
func (p *probe) sharesKey(other certmanagerv1.GenericIssuer) bool {
	ref := other.GetSpec().ACME.PrivateKey
	return ref.Name == p.spec.PrivateKey.Name && ref.KeyOr(corev1.TLSPrivateKeyKey) == p.entry() &&
		signer.ResourceNamespace(other, p.ClusterResourceNamespace) == p.namespace
}

func (p *probe) trustsAlike(spec *acmev1.ACMEIssuer) bool {
	return bytes.Equal(spec.CABundle, p.spec.CABundle) && spec.SkipTLSVerify == p.spec.SkipTLSVerify
}

// storeNextKey makes the next key.
func (p *probe) storeNextKey(ctx context.Context) error {
	live, err := p.live(ctx)
	if err != nil {
		return err
	}
	seen := p.keys.secret
	_, taken := live.Data[p.nextEntry()]
	if taken || !bytes.Equal(live.Data[p.entry()], seen.Data[p.entry()]) ||
		live.Annotations[acmev1.AccountKeyRotationAnnotation] != seen.Annotations[acmev1.AccountKeyRotationAnnotation] {
		return overtaken()
	}
	text, err := p.newKey()
	if err != nil {
		return err
	}
	changed := live.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, acmev1.AccountKeyRotationAnnotation, p.s.Wanted)
	changed.Data[p.nextEntry()] = text
	if err := p.write(ctx, live, changed); err != nil {
		return err
	}
	p.Tell(p.issuer, false, certmanagerv1.IssuerReasonReplacingACMEAccountKey, "The ACME account was registered with the ACME server; its key is being replaced")
	return nil
}

// finishKey puts the next key, which the CA goes by, in the place of the current one.
func (p *probe) finishKey(ctx context.Context) error {
	live, err := p.live(ctx)
	if err != nil {
		return err
	}
	text, ok := live.Data[p.nextEntry()]
	if !ok {
		return nil // another issuer was faster
	}
	if stored, err := pki.DecodePrivateKey(text); err != nil || !p.account.Uses(stored) {
		return overtaken()
	}
	changed := live.DeepCopy()
	changed.Data[p.entry()] = text
	delete(changed.Data, p.nextEntry())
	if err := p.write(ctx, live, changed); err != nil {
		return err
	}
	p.Tell(p.issuer, false, certmanagerv1.IssuerReasonACMEAccountKeyReplaced, fmt.Sprintf("The key of the ACME account %s was replaced", p.account.URL()))
	return nil
}

// live reads the Secret as it is now.
func (p *probe) live(ctx context.Context) (*corev1.Secret, error) {
	found := &corev1.Secret{}
	if err := p.Objects.Live(ctx, p.API, client.ObjectKeyFromObject(p.keys.secret), found); err != nil {
		return nil, fmt.Errorf("read Secret %s: %w", p.s.Where, err)
	}
	return found, nil
}

func overtaken() error {
	return fault.After(writeAgain, "", "somebody else has changed the Secret")
}

// write changes the Secret, if nobody else has since it was read.
func (p *probe) write(ctx context.Context, live, changed *corev1.Secret) error {
	err := p.Objects.Patch(ctx, changed, client.MergeFromWithOptions(live, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return overtaken()
	case err != nil:
		return fmt.Errorf("Secret %s cannot be written: %w", p.s.Where, err)
	}
	return nil
}
