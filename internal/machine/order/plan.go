package order

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/acme/dnspersist"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/machine/acmeflow"
	"chancery.dev/internal/machine/selection"
	"chancery.dev/internal/when"
)

// SolverChoiceAnnotation says on a Challenge which of the issuer's solvers was chosen for
// it, and why. The Order says so too, in its status.authorizations, or why none was.
const SolverChoiceAnnotation = "chancery.dev/solver-choice"

// challengePlan is how an Order's Challenges differ from those that it needs.
type challengePlan struct {
	// create are missing, and are made in this pass. They hold so many bytes of solvers.
	create []*acmev1.Challenge
	bytes  int
	// choices say which solver was chosen for each authorization whose Challenge is missing, by URL.
	choices map[string]string
	// remove are not needed any more.
	remove []string
	// open counts authorizations that are neither valid nor about to get a Challenge.
	open int
	// due is when clean-up is waited for no longer; zero if none is.
	due time.Time
	// unsolved is the name that no solver is for; empty for none.
	unsolved string
}

// full reports whether no further Challenge is made in this pass.
func (p *challengePlan) full() bool {
	return len(p.create) >= challengesAtOnce || p.bytes >= challengeBytesAtOnce
}

// planChallenges compares the Challenges that exist with those that the
// authorizations need (spec §5.3 h to j). The error says which name has no solver.
func (d *decision) planChallenges() (challengePlan, error) {
	plan := challengePlan{choices: map[string]string{}}
	needed, byURL := map[string]bool{}, map[string][]*acmev1.Challenge{}
	for _, c := range d.Challenges {
		byURL[c.Spec.AuthorizationURL] = append(byURL[c.Spec.AuthorizationURL], c)
	}
	solvers := selection.For(d.Order.Labels, d.Issuer.Solvers)
	if name, err := d.checkCopies(solvers); err != nil {
		return challengePlan{unsolved: name}, err
	}
	for _, a := range d.next.Authorizations {
		owned := byURL[a.URL]
		valid := a.InitialState == acmev1.Valid
		for _, c := range owned {
			if c.Status.State == acmev1.Valid {
				needed[c.Name], valid = true, true
			}
		}
		live := slices.DeleteFunc(slices.Clone(owned), func(c *acmev1.Challenge) bool { return c.DeletionTimestamp != nil })
		switch {
		case valid:
		case len(live) == 1 && d.isNeeded(live[0], a, solvers):
			needed[live[0].Name] = true
			plan.open++
		default:
			if err := d.planChallenge(&plan, needed, a, owned, solvers); err != nil {
				return challengePlan{unsolved: displayed(a.Identifier, a.Wildcard != nil && *a.Wildcard)}, err
			}
		}
	}
	plan.remove = d.undeleted(func(c *acmev1.Challenge) bool { return !needed[c.Name] })
	return plan, nil
}

// planChallenge compares the Challenges for an authorization with the one that it needs.
func (d *decision) planChallenge(plan *challengePlan, needed map[string]bool, a acmev1.ACMEAuthorization, owned []*acmev1.Challenge, solvers *selection.Solvers) error {
	spec, chosen, err := challengeSpec(d.Order, a, solvers, d.Account)
	if err != nil {
		return err
	}
	if len(owned) == 0 && plan.full() {
		plan.choices[a.URL] = chosen.Why
		return nil
	}
	want, err := newChallenge(d.Order, spec, chosen.Why, d.Account)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(owned, func(c *acmev1.Challenge) bool { return c.Name == want.Name })
	needed[want.Name] = i < 0 || d.isNeeded(owned[i], a, solvers)
	if i >= 0 {
		plan.open++
		return nil
	}
	if due := d.cleanUpOf(owned); d.now.Before(due) {
		plan.open++
		plan.due = when.Earliest(plan.due, due)
		return nil
	}
	plan.choices[a.URL] = chosen.Why
	if !plan.full() {
		plan.create, plan.bytes = append(plan.create, want), plan.bytes+chosen.Size
	}
	return nil
}

// isNeeded reports whether a Challenge for an authorization stays. One that answers with a key that the account has
// replaced makes room for a new one, and so does one that is untrusted.
func (d *decision) isNeeded(c *acmev1.Challenge, a acmev1.ACMEAuthorization, solvers *selection.Solvers) bool {
	return !acmeflow.Outdated(c.Spec, d.Account.Thumbprint) && acmeflow.UntrustedFor(d.Order, a, d.Issuer, solvers, c) == ""
}

// checkCopies refuses solvers of which the Challenges of the Order would hold more than limits.SolversBytes together.
// It returns one of the names.
func (d *decision) checkCopies(solvers *selection.Solvers) (name string, err error) {
	names, total := 0, 0
	for _, a := range d.next.Authorizations {
		if a.InitialState == acmev1.Valid {
			continue
		}
		if chosen, err := solvers.Select(a); err == nil {
			names, total = names+1, total+chosen.Size
			name = cmp.Or(name, displayed(a.Identifier, a.Wildcard != nil && *a.Wildcard))
		}
	}
	if total > limits.SolversBytes {
		err = fmt.Errorf("issuer %q: its solvers are %w for %d names: the Challenges hold copies with %d bytes of JSON together, and %d are the limit; "+
			"shorten the solvers, or divide the names among several Certificates", d.Order.Spec.IssuerRef.Name, selection.ErrTooLarge, names, total, limits.SolversBytes)
	}
	return name, err
}

// sentAgain is how soon is looked whether a clean-up that was sent has come back.
const sentAgain = 2 * time.Second

// cleanUpOf is until when the clean-up of older Challenges for the same authorization is waited for: they show the same
// value, and must not take away what a new one has presented. A clean-up that was sent is waited for until it is back;
// one that is still to be sent then waits until the new one has ended (challenge.State.Replaced). It is zero if there
// is no older one.
func (d *decision) cleanUpOf(owned []*acmev1.Challenge) (due time.Time) {
	for _, c := range owned {
		if len(acmeflow.OurFinalizers(c)) == 0 {
			continue
		}
		deleted := d.now // it is about to be
		if c.DeletionTimestamp != nil {
			deleted = c.DeletionTimestamp.Time
		}
		due = when.Latest(due, deleted.Add(d.Settings.ReplaceAfter))
		if d.CleaningUp[c.UID] {
			due = when.Latest(due, d.now.Add(sentAgain))
		}
	}
	return due
}

// displayed is a name as a certificate has it.
func displayed(name string, wildcard bool) string {
	if wildcard {
		return "*." + name
	}
	return name
}

// noteSolvers says in the status which solvers the missing Challenges are for.
func (d *decision) noteSolvers(choices map[string]string) {
	for i, a := range d.next.Authorizations {
		if choice, missing := choices[a.URL]; missing {
			d.next.Authorizations[i].Solver = choice
		}
	}
}

// undeleted names the Challenges that match, and are not being deleted.
func (d *decision) undeleted(match func(*acmev1.Challenge) bool) (names []string) {
	for _, c := range d.Challenges {
		if c.DeletionTimestamp == nil && match(c) {
			names = append(names, c.Name)
		}
	}
	return names
}

// challengeSpec is the spec of the Challenge for one authorization of an Order (spec §5.3), and the solver that was
// chosen: the best of the issuer's solvers with the Order's annotations applied, and the key that the solver presents.
// The error says what no solver offers, for people.
func challengeSpec(o *acmev1.Order, a acmev1.ACMEAuthorization, solvers *selection.Solvers, account acmeflow.AccountState) (acmev1.ChallengeSpec, selection.Selection, error) {
	chosen, solver, err := acmeflow.ChooseSolver(o, a, solvers.Select)
	if err != nil {
		return acmev1.ChallengeSpec{}, selection.Selection{}, err
	}
	spec := acmev1.ChallengeSpec{
		URL:              chosen.Challenge.URL,
		AuthorizationURL: a.URL,
		DNSName:          a.Identifier,
		Wildcard:         a.Wildcard != nil && *a.Wildcard,
		Type:             chosen.Type,
		Token:            chosen.Challenge.Token,
		Solver:           solver,
		IssuerRef:        o.Spec.IssuerRef,
	}
	if spec.Key, err = keyOf(spec, chosen.Challenge, account); err != nil {
		return acmev1.ChallengeSpec{}, selection.Selection{}, fmt.Errorf("issuer %q: %w", o.Spec.IssuerRef.Name, err)
	}
	if spec.Type == acmev1.ChallengeTypeDNSAccount01 {
		spec.AccountLabel = acme.AccountLabel(account.URL)
	}
	return spec, chosen, nil
}

// newChallenge is a Challenge with this spec, for the solver that was chosen because of why. Its name is made of the
// spec without what depends on the account.
func newChallenge(o *acmev1.Order, spec acmev1.ChallengeSpec, why string, account acmeflow.AccountState) (*acmev1.Challenge, error) {
	counts := spec
	counts.Key, counts.AccountLabel = "", ""
	name, err := acmeflow.ComputeName(o.Name, counts)
	if err != nil {
		return nil, err
	}
	return &acmev1.Challenge{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Namespace:   o.Namespace,
			Finalizers:  []string{acmev1.ChallengeFinalizer},
			Annotations: map[string]string{acmeflow.AccountThumbprintAnnotation: account.Thumbprint, SolverChoiceAnnotation: why},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: acmev1.SchemeGroupVersion().String(), Kind: "Order",
				Name: o.Name, UID: o.UID, Controller: new(true), BlockOwnerDeletion: new(true),
			}},
		},
		Spec: spec,
	}, nil
}

// keyOf is the key of a Challenge: for DNS-PERSIST-01 the record that it needs.
func keyOf(spec acmev1.ChallengeSpec, offered acmev1.ACMEChallenge, account acmeflow.AccountState) (string, error) {
	if spec.Type != acmev1.ChallengeTypeDNSPersist01 {
		return acmeflow.KeyToPresent(spec.Type, spec.Token, account.Thumbprint), nil
	}
	issuer, err := dnspersist.Choose(offered.IssuerDomainNames, spec.Solver.DNSPersist01.IssuerDomainName)
	if err != nil {
		return "", err
	}
	r := dnspersist.Record{Issuer: issuer, AccountURI: cmp.Or(offered.AccountURI, account.URL), Wildcard: spec.Wildcard}
	return r.String(), nil
}

// Name is the name of the Order for a request (spec §3.4). Of the spec,
// everything but the signing request counts; of a long request name, all of it.
func Name(requestName string, spec acmev1.OrderSpec) (string, error) {
	spec.Request = nil
	if len(requestName) < acmeflow.MaxNamePrefix {
		return acmeflow.ComputeName(requestName, spec)
	}
	return acmeflow.ComputeName(requestName, struct {
		CertificateRequestName string           `json:"certificateRequestName"`
		Spec                   acmev1.OrderSpec `json:"spec"`
	}{requestName, spec})
}
