package order

import (
	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/selection"
)

// What the tests compare with.
const (
	AuthorizationsAtOnce = authorizationsAtOnce
	ChallengesAtOnce     = challengesAtOnce
	ChallengeBytesAtOnce = challengeBytesAtOnce
	MaxRefused           = maxRefused
	MaxDeactivations     = maxDeactivations
	DeactivationWindow   = deactivationWindow
	StartingPause        = startingPause
	SentAgain            = sentAgain
	CauseAgain           = causeAgain
	CausePause           = causePause
)

// What the tests call.
var (
	Causes = causes
	About  = about
	SizeOf = sizeOf
)

// BuildChallenge is the Challenge for one authorization of an Order.
func BuildChallenge(o *acmev1.Order, a acmev1.ACMEAuthorization, solvers *selection.Solvers, account acmeflow.AccountState) (*acmev1.Challenge, error) {
	spec, chosen, err := challengeSpec(o, a, solvers, account)
	if err != nil {
		return nil, err
	}
	return newChallenge(o, spec, chosen.Why, account)
}
