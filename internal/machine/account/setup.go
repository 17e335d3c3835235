package account

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/pki"
)

// The key of an account is replaced in three steps, each of which can be the last one of a process:
//
//  1. The next key is written into the Secret beside the current one, together with the value of the annotation
//     that asks for it.
//  2. The CA is told to go by it.
//  3. It takes the current one's place in the Secret.
//
// As long as there is a next key in the Secret, every issuer that names the Secret goes on with steps 2 and 3,
// even if another issuer took step 1. A process that finds a next key when it starts asks the CA which key it accepts
// before it uses either.

// Step is the one thing that an issuer needs of its account now.
type Step int

// The steps, in the order in which a new issuer takes them.
const (
	// StepRest: nothing, but what Action.Say says.
	StepRest Step = iota
	// StepCreateKey makes the Secret with the account's key.
	StepCreateKey
	// StepCheckSolvers looks whether the Secrets are there that the DNS-01 solvers name. Nothing is sent to the CA.
	StepCheckSolvers
	// StepAskWhichKey asks the CA whether it accepts the next key already.
	StepAskWhichKey
	// StepAdopt takes over the registration that an earlier process has made. Nothing is sent.
	StepAdopt
	// StepRegister registers the key, or finds its account, and sees to the contact (RFC 8555 §7.3).
	StepRegister
	// StepBind lets the issuer use the account. Nothing is sent.
	StepBind
	// StepAskKeyChange asks whether the CA replaces keys at all.
	StepAskKeyChange
	// StepStoreNextKey writes a next key into the Secret.
	StepStoreNextKey
	// StepReplaceKey makes the CA accept the next key (RFC 8555 §7.3.5).
	StepReplaceKey
	// StepFinishKey replaces the current key in the Secret by the next key, which the CA accepts.
	StepFinishKey
)

// String names the step.
func (s Step) String() string {
	return [...]string{
		"rest", "create account key", "check solvers", "ask which account key", "adopt account", "register account", "bind account",
		"ask for key change", "store next account key", "replace account key", "finish account key",
	}[s]
}

// Asks reports whether the step is a call beside the work on issuers: one to the CA, or one that reads many Secrets.
func (s Step) Asks() bool {
	return s == StepCheckSolvers || s == StepAskWhichKey || s == StepRegister || s == StepAskKeyChange || s == StepReplaceKey
}

// SetUp is what can be observed of an issuer and its account.
type SetUp struct {
	// Where names the Secret with the account's key, and NextEntry the entry for the next key.
	Where     types.NamespacedName
	NextEntry string
	// NewKey is of which kind a new key of the account is.
	NewKey pki.KeySpec
	// Status is what the issuer's status says of the account that was found, without LastKeyRotation. Its URI is empty
	// as long as the account is not registered.
	Status acmev1.ACMEIssuerStatus
	// SolverSecrets says that solvers name Secrets.
	SolverSecrets bool
	// HasKey says that the Secret is there with a key; NextKey that it holds a next key, too.
	HasKey, NextKey bool
	// Stored is the value of the annotation that the last key was made for; empty for none.
	Stored string

	// Registered says that this process knows of a registration of the account, Contact that the registration has the
	// issuer's address, and Bound that the issuer uses the account.
	Registered, Contact, Bound bool
	// UsesNext says that the CA accepts the next key, DeniesNext that it does not know it.
	UsesNext, DeniesNext bool
	// Lost says that the CA has forgotten the account while the issuer used it.
	Lost bool

	// Unchanged says that the registration in the issuer's status fits the spec in all but the key, SameKey that it has
	// this key, and SameURL that it has the URL of the account.
	Unchanged, SameKey, SameURL bool
	// WasReady, WasReason and WasSaid are of the issuer's condition Ready.
	WasReady           bool
	WasReason, WasSaid string
	// WasBound says that the issuer used an account in this process when it last came to rest.
	WasBound bool
	// Wanted is the value of the annotation that asks for another key, Last the value that the key was last replaced
	// for; empty for none.
	Wanted, Last string

	// Answered are the steps that ask and have succeeded with the present spec and Secrets since the issuer last came to
	// rest.
	Answered []Step
	// Obstacle says why the key cannot be replaced, and what to do; empty if it can be.
	Obstacle string
	// Follows says which other issuer still needs the current key; empty if none does.
	Follows string
	// Failed is the step that has just failed, Failure how; nil if none has.
	Failed  Step
	Failure error
}

// Action is what to do for an issuer.
type Action struct {
	Step Step
	// Say is what the issuer's condition says, with StepRest; nil to say what Failure says.
	Say *Say
	// Failure is the result, with StepRest; nil if nothing has failed. With Say it is why the key of the account is not
	// replaced yet, and says when to try again.
	Failure error
	// Tell is told by an event once the step is taken; nil for nothing.
	Tell *Say
}

// Say is what to say of an issuer that has an account to use, or has had.
type Say struct {
	Ready           bool
	Reason, Message string
	// Warn says that it is news, and bad.
	Warn bool
	// Last is the value of the annotation that the key was last replaced for.
	Last string
	// Again is how long until the next look without an event, if nothing has failed; zero for never.
	Again time.Duration
}

const (
	registered = "The ACME account was registered with the ACME server"
	// registeredStill opens what is said of an account while its key is replaced.
	registeredStill = registered + "; its key "
	// followAgain is how often is looked whether other issuers have followed.
	followAgain = 5 * time.Second
	// lookAgain is how often is looked whether an obstacle is gone.
	lookAgain = 30 * time.Second
	// writeAgain is when to try again what somebody else's write has overtaken.
	writeAgain = time.Second
)

var errOvertaken = errors.New("somebody else has changed the Secret")

// Overtaken is the failure of a step that writes the Secret: somebody else has changed the Secret since the step was
// decided.
func Overtaken() error { return fault.After(writeAgain, "", "%w", errOvertaken) }

// IsOvertaken reports whether a failure is Overtaken.
func IsOvertaken(err error) bool { return errors.Is(err, errOvertaken) }

// Decide returns what the issuer needs of its account now.
func (s *SetUp) Decide() Action {
	switch {
	case s.Failure != nil && s.Failed < StepBind && s.Failed != StepAskWhichKey:
		return Action{Failure: s.Failure}
	case !s.HasKey:
		return Action{Step: StepCreateKey}
	case s.SolverSecrets && !slices.Contains(s.Answered, StepCheckSolvers):
		return Action{Step: StepCheckSolvers}
	case s.NextKey && !s.Registered && !s.DeniesNext && !s.UsesNext:
		if s.Failure != nil && s.Failed == StepAskWhichKey {
			return s.undecided()
		}
		return Action{Step: StepAskWhichKey}
	case s.Unchanged && s.SameKey && !s.Registered && !s.Lost:
		return Action{Step: StepAdopt}
	case !(s.Unchanged && s.SameURL) && !s.Contact && !slices.Contains(s.Answered, StepRegister), !s.Registered:
		// An issuer that has had its say leaves the contact alone: one that shares the account may have said
		// something else since, and they would contradict each other for ever.
		return Action{Step: StepRegister}
	case !s.Bound:
		return Action{Step: StepBind}
	default:
		return s.advance()
	}
}

// undecided is an issuer with two keys: the CA has not said yet which of them it accepts.
func (s *SetUp) undecided() Action {
	why := delayOf(s.Failure)
	if !why.failed {
		return Action{Failure: s.Failure}
	}
	return Action{Failure: s.Failure, Say: &Say{
		Ready: s.WasReady, Reason: certmanagerv1.IssuerReasonErrReplaceACMEAccountKey, Last: s.Last,
		Message: fmt.Sprintf("Secret %s holds two keys of the account, and the ACME server has not said which one it goes by: %s", s.Where, s.hint(why)),
	}}
}

// advance takes the next step of a replacement, if there is one to take. The issuer is ready all the while.
func (s *SetUp) advance() Action {
	switch {
	case !s.NextKey && (s.Wanted == "" || s.Wanted == s.Last || s.Wanted == s.Stored):
		return Action{Say: &Say{
			Ready: true, Reason: certmanagerv1.IssuerReasonACMEAccountRegistered, Message: registered, Last: cmp.Or(s.Wanted, s.Last),
		}}
	case s.Failure != nil:
		return s.replacing(delayOf(s.Failure))
	case !s.NextKey && s.Obstacle != "":
		return s.replacing(delay{failed: true, again: lookAgain, text: s.Obstacle})
	case !s.NextKey && !slices.Contains(s.Answered, StepAskKeyChange):
		return Action{Step: StepAskKeyChange}
	case !s.NextKey:
		return Action{Step: StepStoreNextKey, Tell: &Say{
			Reason: certmanagerv1.IssuerReasonReplacingACMEAccountKey, Message: registeredStill + "is being replaced",
		}}
	case !s.UsesNext:
		return Action{Step: StepReplaceKey}
	case s.Follows != "":
		return s.replacing(delay{again: followAgain, text: s.Follows})
	default:
		return Action{Step: StepFinishKey, Tell: &Say{
			Reason: certmanagerv1.IssuerReasonACMEAccountKeyReplaced, Message: fmt.Sprintf("The key of the ACME account %s was replaced", s.Status.URI),
		}}
	}
}

// delay is why the replacement of a key does not go on now.
type delay struct {
	// failed says that something is wrong; refused that repeating does not cure it.
	failed, refused bool
	text            string
	// again is after which time the issuer is looked at again, if no step has failed.
	again time.Duration
}

// delayOf reads a failure: a fault without a class says that nothing has failed.
func delayOf(err error) delay {
	d := delay{failed: true, text: err.Error()}
	if f := fault.Of(err); f != nil {
		d.refused, d.failed = f.Class == fault.ClassPermanent, f.Class != ""
	}
	return d
}

// hint ends what is said of a failure.
func (s *SetUp) hint(d delay) string {
	switch {
	case d.refused:
		return d.text + fmt.Sprintf(". The account keeps its key, and works. This is tried again every hour; to give up, remove the annotation %s and, if it is there, the entry %q of Secret %s",
			acmev1.RotateAccountKeyAnnotation, s.NextEntry, s.Where)
	case s.Failure != nil:
		return d.text + "; retrying with back-off"
	default:
		return d.text
	}
}

// replacing says how the replacement of the key stands.
func (s *SetUp) replacing(d delay) Action {
	say := &Say{Ready: true, Last: s.Last, Again: d.again}
	switch {
	case d.failed:
		say.Reason, say.Message = certmanagerv1.IssuerReasonErrReplaceACMEAccountKey, registeredStill+"is not replaced: "+s.hint(d)
		say.Warn = !strings.HasPrefix(s.WasSaid, say.Message) // what is left out of a bundle is said behind it
	case s.WasReason == certmanagerv1.IssuerReasonErrReplaceACMEAccountKey && s.WasBound:
		say.Reason, say.Message = s.WasReason, s.WasSaid // what went wrong is said until it has gone right
	default:
		say.Reason, say.Message = certmanagerv1.IssuerReasonReplacingACMEAccountKey, registeredStill+"is being replaced"
		if d.text != "" {
			say.Message += ": " + d.text
		}
	}
	return Action{Say: say, Failure: s.Failure}
}
