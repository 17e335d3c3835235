// Package selection chooses the solver of an ACME issuer for a name, and applies the Order's annotations to the solver
// (spec §5.4 and §5.5).
//
// The package is pure. internal/machine/order decides what a solver presents, and internal/solver presents it.
package selection

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/pki"
)

// ErrTooLarge is the error for a solver of more than limits.SolverBytes.
var ErrTooLarge = errors.New("too large")

// maxName is how long a name of DNS is at most (RFC 1035 §2.3.4): what is longer is in no zone.
const maxName = 253

// Selection is the solver for one authorization.
type Selection struct {
	// Solver is the chosen entry of the issuer.
	Solver acmev1.ACMEChallengeSolver
	// Type is the type of challenge that it solves.
	Type acmev1.ACMEChallengeType
	// Challenge is the one offered by the CA.
	Challenge acmev1.ACMEChallenge
	// Why says which of the issuer's solvers it is and what decided for it, for people.
	Why string
	// Size is how long the solver is as JSON, in bytes; 0 after Choose.
	Size int

	place int
}

// weight is how well a selector fits: names beat none, then the longer zone, then more labels (spec §5.4).
type weight struct{ names, zone, labels int }

func (w weight) beats(o weight) bool {
	return cmp.Or(cmp.Compare(w.names, o.names), cmp.Compare(w.zone, o.zone), cmp.Compare(w.labels, o.labels)) > 0
}

// why says what decides for a solver of this weight.
func (w weight) why() string {
	switch {
	case w.names > 0:
		return "its selector's dnsNames list the name"
	case w.zone > 0:
		return fmt.Sprintf("of the selectors' dnsZones, its has the longest for the name (%d labels)", w.zone)
	case w.labels > 0:
		return fmt.Sprintf("its selector's matchLabels fit the Order best (%d labels)", w.labels)
	default:
		return "no selector fits better, and it is the first without one"
	}
}

// Solvers are those of an issuer, prepared for the choice for each name of an Order. Of the solvers of one type that
// fit the same names, only the best is kept: a name costs the same, however many solvers there are.
type Solvers struct {
	all []acmev1.ACMEChallengeSolver
	// names and zones are the best for a name and for a zone that selectors list, anyName those whose selectors list
	// neither, with the text "".
	names, zones, anyName map[candidate]choice
	// types counts the solvers of each type.
	types map[acmev1.ACMEChallengeType]int
	// sizes are those of the solvers that were chosen so far, as JSON, in bytes.
	sizes map[int]int
}

// candidate is what solvers are told apart by: a name or a zone that the selector lists, and the type.
type candidate struct {
	text string
	of   acmev1.ACMEChallengeType
}

// choice is one of the solvers, by its place, and how well it fits.
type choice struct {
	place  int
	weight weight
}

// note keeps the better one; of two that fit equally well, the one that comes first.
func note(in map[candidate]choice, key candidate, c choice) {
	if known, has := in[key]; !has || c.weight.beats(known.weight) {
		in[key] = c
	}
}

// For prepares the solvers for the names of an Order with the given labels.
func For(orderLabels map[string]string, solvers []acmev1.ACMEChallengeSolver) *Solvers {
	s := &Solvers{
		all: solvers, types: map[acmev1.ACMEChallengeType]int{}, sizes: map[int]int{},
		names: map[candidate]choice{}, zones: map[candidate]choice{}, anyName: map[candidate]choice{},
	}
	for i, solver := range solvers {
		of := typeOf(solver)
		s.types[of]++
		selector := solver.Selector
		if selector == nil {
			selector = &acmev1.CertificateDNSNameSelector{}
		}
		if of == "" || !fitLabels(selector.MatchLabels, orderLabels) {
			continue
		}
		zones := zonesOf(selector)
		fits := weight{labels: len(selector.MatchLabels)}
		switch {
		case len(selector.DNSNames) > 0:
			for _, name := range selector.DNSNames {
				name = pki.DNSNameKey(name)
				zone := longest(name, func(zone string) int { return zones[zone] })
				if len(zones) == 0 || zone > 0 {
					note(s.names, candidate{name, of}, choice{i, weight{names: 1, zone: zone, labels: fits.labels}})
				}
			}
		case len(zones) > 0:
			for zone, labels := range zones {
				note(s.zones, candidate{zone, of}, choice{i, weight{zone: labels, labels: fits.labels}})
			}
		default:
			note(s.anyName, candidate{of: of}, choice{i, fits})
		}
	}
	return s
}

// zonesOf returns the zones of a selector, with how many labels each has.
func zonesOf(selector *acmev1.CertificateDNSNameSelector) map[string]int {
	zones := make(map[string]int, len(selector.DNSZones))
	for _, zone := range selector.DNSZones {
		zone = pki.DNSNameKey(zone)
		zones[zone] = strings.Count(zone, ".") + 1
	}
	return zones
}

// longest looks for the zones that a name is in, the longest first, and returns the first that is not zero.
func longest(name string, look func(zone string) int) int {
	if len(name) > maxName {
		return 0
	}
	for zone, more := pki.DNSNameKey(name), true; more; _, zone, more = strings.Cut(zone, ".") {
		if found := look(zone); found > 0 {
			return found
		}
	}
	return 0
}

func fitLabels(wanted, orderLabels map[string]string) bool {
	for key, value := range wanted {
		if got, has := orderLabels[key]; !has || got != value {
			return false
		}
	}
	return true
}

// Select chooses the solver for an authorization of an Order with the given
// labels (spec §5.4). The error says what was offered and why no solver fits.
func Select(orderLabels map[string]string, a acmev1.ACMEAuthorization, solvers []acmev1.ACMEChallengeSolver) (Selection, error) {
	return For(orderLabels, solvers).Select(a)
}

// Select chooses the solver for an authorization (spec §5.4). The error says what was offered and why no solver fits.
// It is ErrTooLarge for a solver that is too large for a copy in each Challenge.
func (s *Solvers) Select(a acmev1.ACMEAuthorization) (Selection, error) {
	chosen, err := s.Choose(a)
	if err == nil {
		chosen.Size = s.size(chosen.place)
		err = s.checkSize(chosen.place)
	}
	return chosen, err
}

// Choose is Select for an authorization that has a Challenge already: how large the solver is does not matter, and is
// not found out.
func (s *Solvers) Choose(a acmev1.ACMEAuthorization) (Selection, error) {
	domain := a.Identifier
	if a.Wildcard != nil && *a.Wildcard {
		domain = "*." + domain
	}
	best, offered := choice{place: -1}, offeredOf(a.Challenges)
	for of := range offered {
		c, has := s.best(domain, of)
		if has && (best.place < 0 || c.weight.beats(best.weight) || !best.weight.beats(c.weight) && c.place < best.place) {
			best = c
		}
	}
	if best.place < 0 {
		return Selection{}, s.noSolverError(domain, a.Challenges, offered)
	}
	of := typeOf(s.all[best.place])
	return Selection{
		Solver: s.all[best.place], Type: of, Challenge: offered[of], Why: fmt.Sprintf("solvers[%d] of the issuer: %s", best.place, best.weight.why()),
		place: best.place,
	}, nil
}

// best is the solver of a type that fits a domain best.
func (s *Solvers) best(domain string, of acmev1.ACMEChallengeType) (choice, bool) {
	if c, has := s.names[candidate{pki.DNSNameKey(domain), of}]; has {
		return c, true
	}
	var c choice
	if longest(domain, func(zone string) int { c = s.zones[candidate{zone, of}]; return c.weight.zone }) > 0 {
		return c, true
	}
	c, has := s.anyName[candidate{of: of}]
	return c, has
}

// checkSize refuses a solver of more than limits.SolverBytes.
func (s *Solvers) checkSize(place int) error {
	if size := s.size(place); size > limits.SolverBytes {
		return fmt.Errorf("solvers[%d] of the issuer is %w: it has %d bytes of JSON, and %d are the limit, since the Challenge for each name "+
			"holds a copy", place, ErrTooLarge, size, limits.SolverBytes)
	}
	return nil
}

// size is how long a solver is as JSON.
func (s *Solvers) size(place int) int {
	size, known := s.sizes[place]
	if !known {
		text, _ := json.Marshal(s.all[place]) // cannot fail: it came as JSON
		size = len(text)
		s.sizes[place] = size
	}
	return size
}

// noSolverError says what to do about a name that no solver is for.
func (s *Solvers) noSolverError(domain string, challenges []acmev1.ACMEChallenge, offered map[acmev1.ACMEChallengeType]acmev1.ACMEChallenge) error {
	var types []string
	for _, c := range challenges {
		types = append(types, c.Type)
	}
	slices.Sort(types)
	types = slices.Compact(types)
	hint := ""
	if s.types[acmev1.ChallengeTypeDNSAccount01] > 0 && !slices.Contains(types, "dns-account-01") {
		hint = " (dns01 with accountLabel is for dns-account-01)"
	}
	unoffered := len(s.all)
	for of := range offered {
		unoffered -= s.types[of]
	}
	const failed = "Failed to determine a valid solver configuration for %q: "
	switch {
	case len(s.all) == 0:
		return fmt.Errorf(failed+"the issuer has no solvers; add one to spec.acme.solvers", domain)
	case unoffered == len(s.all):
		return fmt.Errorf(failed+"the ACME server offers %s, and none of the issuer's solvers is of such a type; add one to spec.acme.solvers%s",
			domain, cmp.Or(strings.Join(types, ", "), "no challenge"), hint)
	case unoffered > 0:
		return fmt.Errorf(failed+"the ACME server offers %s, and the selectors of all the issuer's solvers of such a type exclude it; amend spec.acme.solvers%s",
			domain, strings.Join(types, ", "), hint)
	default:
		return fmt.Errorf(failed+"the selectors of all the issuer's solvers exclude it; amend spec.acme.solvers", domain)
	}
}

// typeOf is what a solver solves; empty for what is none of ours.
func typeOf(solver acmev1.ACMEChallengeSolver) acmev1.ACMEChallengeType {
	switch {
	case solver.DNSPersist01 != nil:
		return acmev1.ChallengeTypeDNSPersist01
	case solver.TLSALPN01 != nil:
		return acmev1.ChallengeTypeTLSALPN01
	case solver.DNS01 != nil && solver.DNS01.AccountLabel:
		return acmev1.ChallengeTypeDNSAccount01
	case solver.DNS01 != nil:
		return acmev1.ChallengeTypeDNS01
	case solver.HTTP01 != nil:
		return acmev1.ChallengeTypeHTTP01
	}
	return ""
}

// offeredOf finds the challenge that the CA offers for each type: the first of each.
func offeredOf(challenges []acmev1.ACMEChallenge) map[acmev1.ACMEChallengeType]acmev1.ACMEChallenge {
	offered := map[acmev1.ACMEChallengeType]acmev1.ACMEChallenge{}
	for _, of := range []acmev1.ACMEChallengeType{
		acmev1.ChallengeTypeDNSPersist01, acmev1.ChallengeTypeTLSALPN01, acmev1.ChallengeTypeDNSAccount01, acmev1.ChallengeTypeDNS01, acmev1.ChallengeTypeHTTP01,
	} {
		if i := slices.IndexFunc(challenges, func(c acmev1.ACMEChallenge) bool { return strings.EqualFold(c.Type, string(of)) }); i >= 0 {
			offered[of] = challenges[i]
		}
	}
	return offered
}

// ApplyOverrides returns the solver with the Order's annotations applied (spec §5.5). It does not change the given one.
func ApplyOverrides(o *acmev1.Order, solver acmev1.ACMEChallengeSolver) (acmev1.ACMEChallengeSolver, error) {
	if solver.HTTP01 == nil {
		return solver, nil
	}
	changed := *solver.DeepCopy()
	if changed.HTTP01.Ingress != nil {
		if err := overrideIngress(o, changed.HTTP01.Ingress); err != nil {
			return acmev1.ACMEChallengeSolver{}, err
		}
	}
	if changed.HTTP01.GatewayHTTPRoute != nil {
		if err := overrideParents(o, changed.HTTP01.GatewayHTTPRoute); err != nil {
			return acmev1.ACMEChallengeSolver{}, err
		}
	}
	return changed, nil
}

func overrideIngress(o *acmev1.Order, ingress *acmev1.HTTP01IngressSolver) error {
	name := o.Annotations[acmev1.OverrideIngressNameAnnotation]
	class := o.Annotations[acmev1.OverrideIngressClassAnnotation]
	className := o.Annotations[acmev1.OverrideIngressClassNameAnnotation]
	switch set := slices.DeleteFunc([]string{name, class, className}, func(v string) bool { return v == "" }); {
	case len(set) == 0:
		return nil
	case len(set) > 1:
		return fmt.Errorf("at most one of the annotations %s, %s and %s may be set",
			acmev1.OverrideIngressNameAnnotation, acmev1.OverrideIngressClassAnnotation, acmev1.OverrideIngressClassNameAnnotation)
	}
	ingress.Name, ingress.Class, ingress.IngressClassName = name, nil, nil
	if class != "" {
		ingress.Class = &class
	}
	if className != "" {
		ingress.IngressClassName = &className
	}
	return nil
}

func overrideParents(o *acmev1.Order, route *acmev1.HTTP01GatewaySolver) error {
	name := o.Annotations[acmev1.ParentRefNameAnnotation]
	kind := o.Annotations[acmev1.ParentRefKindAnnotation]
	if (name == "") != (kind == "") {
		return fmt.Errorf("the annotations %s and %s have to be set together",
			acmev1.ParentRefKindAnnotation, acmev1.ParentRefNameAnnotation)
	}
	if name != "" {
		namespace := gwapiv1.Namespace(cmp.Or(o.Annotations[acmev1.ParentRefNamespaceAnnotation], o.Namespace))
		parentKind := gwapiv1.Kind(kind)
		added := gwapiv1.ParentReference{Kind: &parentKind, Namespace: &namespace, Name: gwapiv1.ObjectName(name)}
		route.ParentRefs = append(slices.DeleteFunc(route.ParentRefs, func(p gwapiv1.ParentReference) bool {
			return p.Namespace != nil && *p.Namespace == namespace && p.Name == added.Name &&
				(p.Kind == nil || *p.Kind == parentKind)
		}), added)
	}
	if len(route.ParentRefs) == 0 {
		return fmt.Errorf("the gatewayHTTPRoute solver has no parentRefs: set them on the issuer, or name a Gateway with the annotations %s and %s",
			acmev1.ParentRefKindAnnotation, acmev1.ParentRefNameAnnotation)
	}
	return nil
}
