package acmeorder

import (
	"bytes"
	"context"
	"crypto"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acmeaccount"
	"chancery.dev/internal/acmeflow"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/flight"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/signer"
)

// An account's key is replaced (RFC 8555 §7.3.5) in three steps, each of which can be the
// last one of a process:
//
//  1. The next key is written into the Secret beside the current one, together with the
//     value of the annotation that asks for it.
//  2. The CA is told to go by it (acmeaccount.Account.Replace).
//  3. It takes the current one's place in the Secret.
//
// As long as there is a next key in the Secret, every issuer that names the Secret goes on
// with steps 2 and 3, whoever has begun. A process that finds one when it starts asks the CA
// which key it goes by before it uses either.

const (
	// followAgain is how often is looked whether other issuers have followed; writeAgain is
	// when to try again what somebody else's write has overtaken.
	followAgain, writeAgain = 5 * time.Second, time.Second
	// registeredStill opens what is said of an account while its key is replaced.
	registeredStill = registered + "; its key "
)

// delay is why the replacement of a key does not go on now.
type delay struct {
	// failed says that something is wrong.
	failed bool
	// again is when to go on beside events; 0 leaves it to them.
	again time.Duration
	text  string
}

// Error returns the text.
func (d *delay) Error() string { return d.text }

// rotation is the value that asks for another key; empty if nobody asks.
func (u *setup) rotation() string {
	return u.issuer.GetAnnotations()[acmev1.RotateAccountKeyAnnotation]
}

// rotationOf is what the calls that replace the key for an issuer belong to.
func rotationOf(issuer types.UID) types.UID { return issuer + "/rotation" }

// forgetRotation drops what is known of tries to replace the key for an issuer.
func (s *Signer) forgetRotation(issuer types.UID) {
	s.mu.Lock()
	delete(s.rotations, issuer)
	s.mu.Unlock()
	s.Flights.Forget(rotationOf(issuer))
}

// resolve finds out which of two keys the CA goes by, before this process uses either. The
// error says that it is not known yet; then the status says so, too.
func (u *setup) resolve(account *acmeaccount.Account, keys accountKeys) (signer.Facts, error) {
	if keys.next == nil || account.URL() != "" || account.Denies(keys.next) || account.Uses(keys.next) {
		return signer.Facts{}, nil
	}
	err := u.replace(account, keys.next)
	var d *delay
	if !errors.As(err, &d) {
		return signer.Facts{}, err
	}
	var facts signer.Facts
	if d.failed {
		facts.Ready = certmanagerv1.HasIssuerCondition(u.issuer.GetStatus().Conditions, certmanagerv1.IssuerConditionReady, cmmeta.ConditionTrue)
		facts.Reason, facts.Message = certmanagerv1.IssuerReasonErrReplaceACMEAccountKey, fmt.Sprintf(
			"Secret %s/%s holds two keys of the account, and the ACME server has not said which one it goes by: %s", u.namespace, u.spec.PrivateKey.Name, d.text)
	}
	return facts, d.fault()
}

// rotate replaces the key if somebody asks for it, or has begun to, and returns the facts
// of an issuer that is ready all the while.
func (u *setup) rotate(ctx context.Context, account *acmeaccount.Account, keys accountKeys) (signer.Facts, error) {
	last, err := u.advance(ctx, account, keys)
	facts := signer.Facts{Ready: true, Reason: certmanagerv1.IssuerReasonACMEAccountRegistered, Message: registered}
	was := certmanagerv1.FindIssuerCondition(u.issuer.GetStatus().Conditions, certmanagerv1.IssuerConditionReady)
	var d *delay
	switch {
	case err == nil:
	case errors.As(err, &d) && d.failed:
		facts.Reason, facts.Message = certmanagerv1.IssuerReasonErrReplaceACMEAccountKey, registeredStill+"is not replaced: "+d.text
		if was == nil || was.Message != facts.Message {
			u.Tell(u.issuer, true, facts.Reason, facts.Message)
		}
	case was != nil && was.Reason == certmanagerv1.IssuerReasonErrReplaceACMEAccountKey && strings.HasPrefix(was.Message, registeredStill):
		facts.Reason, facts.Message = was.Reason, was.Message // what went wrong is said until it has gone right
	default:
		facts.Reason, facts.Message = certmanagerv1.IssuerReasonReplacingACMEAccountKey, registeredStill+"is being replaced"
		if d != nil && d.text != "" {
			facts.Message += ": " + d.text
		}
	}
	hash, hashErr := keyHash(account.Key())
	if hashErr != nil {
		return signer.Facts{}, hashErr
	}
	facts.ACME = &acmev1.ACMEIssuerStatus{
		URI: account.URL(), LastRegisteredEmail: u.spec.Email, LastPrivateKeyHash: hash, LastKeyRotation: last,
	}
	if d != nil {
		err = d.fault()
	}
	return facts, err
}

// fault has the issuer looked at again.
func (d *delay) fault() error {
	if d.again > 0 {
		return fault.After(d.again, "", "the account's key is not replaced yet: %s", d.text)
	}
	return fault.Pending("", "the account's key is not replaced yet: %s", d.text)
}

// advance takes the next steps. It returns the value that the key was last replaced for.
func (u *setup) advance(ctx context.Context, account *acmeaccount.Account, keys accountKeys) (string, error) {
	last, wanted := "", u.rotation()
	if status := u.issuer.GetStatus().ACME; status != nil {
		last = status.LastKeyRotation
	}
	if keys.next == nil {
		stored := keys.secret.Annotations[acmev1.AccountKeyRotationAnnotation]
		if wanted == "" || wanted == last || wanted == stored {
			u.forgetRotation(u.name.UID)
			if wanted != "" {
				last = wanted
			}
			return last, nil
		}
		var err error
		if keys, err = u.begin(ctx, account, keys, wanted); err != nil {
			return last, err
		}
	}
	if err := u.replace(account, keys.next); err != nil {
		return last, err
	}
	if !account.Uses(keys.next) {
		return last, &delay{again: writeAgain, text: "the ACME server has lost the account: it is registered again"}
	}
	if err := u.finish(ctx, account, keys); err != nil {
		return last, err
	}
	u.forgetRotation(u.name.UID)
	if wanted != "" && wanted == keys.secret.Annotations[acmev1.AccountKeyRotationAnnotation] {
		last = wanted // else another issuer has asked for it, and this one may have had its turn before
	}
	return last, nil
}

// try has a call made. A nil error says that it has been, and worked out.
func (u *setup) try(account *acmeaccount.Account, inputs string, call func(context.Context) error) error {
	a := u.attempt(u.rotations, inputs)
	if a.failed != nil && u.now.Before(a.until) {
		return u.delayed(a)
	}
	landed, ok := u.Flights.Ask(flight.Call{
		Key:    flight.Key{Object: rotationOf(u.name.UID), Call: a.inputs},
		Lane:   account.Lane(),
		Run:    func(ctx context.Context) (any, error) { return nil, call(ctx) },
		Landed: func() { u.Notify(u.name) },
	})
	switch {
	case !ok:
		return &delay{}
	case landed.Err != nil:
		a.missed(landed.Err, u.now)
		return u.delayed(a)
	}
	a.failed, a.failures = nil, 0
	return nil
}

// delayed says how the last try went.
func (u *setup) delayed(a *attempt) error {
	d := &delay{failed: a.failed.Class != acmeflow.ErrorBadNonce, again: max(a.until.Sub(u.now), time.Millisecond), text: a.failed.Detail}
	switch {
	case !d.failed:
	case a.failed.Class.MayPass():
		d.text += "; retrying with back-off"
	default:
		d.text += fmt.Sprintf(". The account keeps its key, and works. This is tried again every hour; to give up, remove the annotation %s and, if it is there, the entry %q of Secret %s/%s",
			acmev1.RotateAccountKeyAnnotation, u.nextEntry(), u.namespace, u.spec.PrivateKey.Name)
	}
	return d
}

// replace has the CA go by the next key.
func (u *setup) replace(account *acmeaccount.Account, next crypto.Signer) error {
	if account.Uses(next) {
		return nil
	}
	fingerprint, err := pki.PublicKeyFingerprint(next.Public())
	if err != nil {
		return err
	}
	url := ""
	if u.unchanged() {
		url = u.issuer.GetStatus().ACME.URI
	}
	return u.try(account, fmt.Sprintf("replace %x", fingerprint), func(ctx context.Context) error { return account.Replace(ctx, next, url) })
}

// begin makes the next key, once nothing is known that speaks against it.
func (u *setup) begin(ctx context.Context, account *acmeaccount.Account, keys accountKeys, wanted string) (accountKeys, error) {
	why, err := u.obstacle(ctx, account, keys.secret)
	if err != nil {
		return keys, err
	}
	if why != "" {
		return keys, &delay{failed: true, again: lookAgain, text: why}
	}
	if err := u.try(account, "begin "+wanted, account.CanReplace); err != nil {
		return keys, err
	}
	live, err := u.live(ctx, keys.secret)
	if err != nil {
		return keys, err
	}
	_, taken := live.Data[u.nextEntry()]
	if taken || !bytes.Equal(live.Data[u.entry()], keys.secret.Data[u.entry()]) ||
		live.Annotations[acmev1.AccountKeyRotationAnnotation] != keys.secret.Annotations[acmev1.AccountKeyRotationAnnotation] {
		return keys, overtaken()
	}
	next, text, err := u.newKey()
	if err != nil {
		return keys, err
	}
	changed := live.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, acmev1.AccountKeyRotationAnnotation, wanted)
	changed.Data[u.nextEntry()] = text
	if err := u.write(ctx, live, changed); err != nil {
		return keys, err
	}
	keys.next, keys.secret = next, changed
	u.Tell(u.issuer, false, certmanagerv1.IssuerReasonReplacingACMEAccountKey, registeredStill+"is being replaced")
	return keys, nil
}

// obstacle says why the key cannot be replaced, and what to do; empty if it can be.
func (u *setup) obstacle(ctx context.Context, account *acmeaccount.Account, secret *corev1.Secret) (string, error) {
	name := u.namespace + "/" + secret.Name
	owner := metav1.GetControllerOf(secret)
	switch {
	case u.spec.DisableAccountKeyGeneration:
		return "disableAccountKeyGeneration is set, and a new key would have to be generated: unset it, or remove the annotation", nil
	case owner != nil:
		return fmt.Sprintf("Secret %s belongs to the %s %q, which would write the old key again: have it leave the Secret alone, and remove it from its ownerReferences", name, owner.Kind, owner.Name), nil
	case secret.Immutable != nil && *secret.Immutable:
		return fmt.Sprintf("Secret %s is immutable: put the key into one that is not", name), nil
	case secret.Data[u.nextEntry()] != nil:
		return fmt.Sprintf("Secret %s has an entry %q of somebody else, where the next key would be: remove it", name, u.nextEntry()), nil
	}
	all, err := u.Issuers(ctx)
	if err != nil {
		return "", fmt.Errorf("list issuers: %w", err)
	}
	for _, other := range all {
		spec, status := other.GetSpec().ACME, other.GetStatus().ACME
		if spec == nil || other.GetUID() == u.name.UID {
			continue
		}
		who := acmeaccount.Issuer{Namespace: other.GetNamespace(), Name: other.GetName()}
		switch same := u.sharesKey(other); {
		case same && spec.Server == u.spec.Server && !u.trustsAlike(spec):
			return fmt.Sprintf("%s uses the same key at the same ACME server with another caBundle or skipTLSVerify: give both issuers the same", who), nil
		case !same && status != nil && status.URI == account.URL():
			return fmt.Sprintf("%s has a copy of the key in Secret %s/%s, and the ACME server would refuse it from then on: have both issuers use one Secret, or give that one an account of its own",
				who, signer.ResourceNamespace(other, u.ClusterResourceNamespace), spec.PrivateKey.Name), nil
		}
	}
	return "", nil
}

// sharesKey reports whether another issuer takes its account's key from the same place.
func (u *setup) sharesKey(other certmanagerv1.GenericIssuer) bool {
	ref := other.GetSpec().ACME.PrivateKey
	return ref.Name == u.spec.PrivateKey.Name && ref.KeyOr(corev1.TLSPrivateKeyKey) == u.entry() &&
		signer.ResourceNamespace(other, u.ClusterResourceNamespace) == u.namespace
}

func (u *setup) trustsAlike(spec *acmev1.ACMEIssuer) bool {
	return bytes.Equal(spec.CABundle, u.spec.CABundle) && spec.SkipTLSVerify == u.spec.SkipTLSVerify
}

// followed reports whether the issuers that use the key at other ACME servers have it
// replaced there: until then they need the old one.
func (u *setup) followed(ctx context.Context, next crypto.Signer) error {
	all, err := u.Issuers(ctx)
	if err != nil {
		return fmt.Errorf("list issuers: %w", err)
	}
	for _, other := range all {
		spec, status := other.GetSpec().ACME, other.GetStatus().ACME
		if spec == nil || status == nil || status.URI == "" || other.GetUID() == u.name.UID || !u.sharesKey(other) || spec.Server == u.spec.Server {
			continue
		}
		if account, ok := u.Accounts.Of(other.GetUID()); !ok || !account.Uses(next) {
			who := acmeaccount.Issuer{Namespace: other.GetNamespace(), Name: other.GetName()}
			return &delay{again: followAgain, text: fmt.Sprintf("done at %s; it waits for %s, which uses the key at %s", u.spec.Server, who, spec.Server)}
		}
	}
	return nil
}

// finish puts the next key, which the CA goes by, in the place of the current one.
func (u *setup) finish(ctx context.Context, account *acmeaccount.Account, keys accountKeys) error {
	if err := u.followed(ctx, keys.next); err != nil {
		return err
	}
	live, err := u.live(ctx, keys.secret)
	if err != nil {
		return err
	}
	text, ok := live.Data[u.nextEntry()]
	if !ok {
		return nil // another issuer was faster
	}
	if stored, err := pki.DecodePrivateKey(text); err != nil || !account.Uses(stored) {
		return overtaken()
	}
	changed := live.DeepCopy()
	changed.Data[u.entry()] = text
	delete(changed.Data, u.nextEntry())
	if err := u.write(ctx, live, changed); err != nil {
		return err
	}
	u.Tell(u.issuer, false, certmanagerv1.IssuerReasonACMEAccountKeyReplaced, fmt.Sprintf("The key of the ACME account %s was replaced", account.URL()))
	return nil
}

// live reads the Secret as it is now.
func (u *setup) live(ctx context.Context, secret *corev1.Secret) (*corev1.Secret, error) {
	found := &corev1.Secret{}
	if err := u.Objects.Live(ctx, u.API, client.ObjectKeyFromObject(secret), found); err != nil {
		return nil, fmt.Errorf("read Secret %s/%s: %w", u.namespace, secret.Name, err)
	}
	return found, nil
}

func overtaken() error {
	return &delay{again: writeAgain, text: "somebody else has changed the Secret"}
}

// write changes the Secret, if nobody else has since it was read.
func (u *setup) write(ctx context.Context, live, changed *corev1.Secret) error {
	err := u.Keys.Patch(ctx, changed, client.MergeFromWithOptions(live, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return overtaken()
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		return &delay{failed: true, again: lookAgain, text: fmt.Sprintf("Secret %s/%s cannot be written: %v", u.namespace, live.Name, err)}
	case err != nil:
		return fmt.Errorf("write Secret %s/%s: %w", u.namespace, live.Name, err)
	}
	return nil
}
