// Package selection chooses the solver of an ACME issuer that proves a name, and applies the
// Order's annotations to it. The law is spec §5.4 and §5.5.
//
// It is pure. What a solver then presents is internal/machine/acmeflow's to say; presenting it is internal/solver's.
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
)

// ErrTooLarge is what is wrong with a solver of more than limits.SolverBytes.
var ErrTooLarge = errors.New("too large")

// Selection is the solver for one authorization.
type Selection struct {
	// Solver is the chosen entry of the issuer.
	Solver acmev1.ACMEChallengeSolver
	// Type is what it solves.
	Type acmev1.ACMEChallengeType
	// Challenge is the one offered by the CA.
	Challenge acmev1.ACMEChallenge
	// Why says which of the issuer's solvers it is and what decided for it, for people.
	Why string
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

// Solvers are those of an issuer, ready to be chosen from for each name of an Order.
type Solvers struct {
	all []acmev1.ACMEChallengeSolver
	// labels say of each whether its labels fit the Order.
	labels []bool
	// names and zones are the places of those that list a name or a zone, in order; anyName are those that list
	// neither.
	names, zones map[string][]int
	anyName      []int
	// tooLarge says of those that were chosen so far what is wrong with their size.
	tooLarge map[int]error
}

// For readies the solvers for the names of an Order with the given labels.
func For(orderLabels map[string]string, solvers []acmev1.ACMEChallengeSolver) *Solvers {
	s := &Solvers{all: solvers, labels: make([]bool, len(solvers)), names: map[string][]int{}, zones: map[string][]int{}, tooLarge: map[int]error{}}
	note := func(in map[string][]int, key string, place int) {
		if known := in[key]; len(known) == 0 || known[len(known)-1] != place {
			in[key] = append(known, place)
		}
	}
	for i, solver := range solvers {
		selector := solver.Selector
		if selector == nil {
			selector = &acmev1.CertificateDNSNameSelector{}
		}
		s.labels[i] = fitLabels(selector.MatchLabels, orderLabels)
		for _, name := range selector.DNSNames {
			note(s.names, name, i)
		}
		for _, zone := range selector.DNSZones {
			note(s.zones, strings.ToLower(zone), i)
		}
		if len(selector.DNSNames)+len(selector.DNSZones) == 0 {
			s.anyName = append(s.anyName, i)
		}
	}
	return s
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
func (s *Solvers) Select(a acmev1.ACMEAuthorization) (Selection, error) {
	domain := a.Identifier
	if a.Wildcard != nil && *a.Wildcard {
		domain = "*." + domain
	}
	var best *Selection
	var bestWeight weight
	var place int
	fitting, weights := s.fitting(domain)
	for _, i := range fitting {
		w := weights[i]
		t, offered, ok := offeredFor(s.all[i], a.Challenges)
		if !ok || best != nil && !w.beats(bestWeight) {
			continue
		}
		place, bestWeight = i, w
		best = &Selection{Solver: s.all[i], Type: t, Challenge: offered, Why: fmt.Sprintf("solvers[%d] of the issuer: %s", i, w.why())}
	}
	if best != nil {
		return *best, s.checkSize(place)
	}
	unoffered := 0
	for _, solver := range s.all {
		if _, _, ok := offeredFor(solver, a.Challenges); !ok {
			unoffered++
		}
	}
	return Selection{}, noSolverError(domain, a.Challenges, s.all, unoffered)
}

// checkSize refuses a solver of more than limits.SolverBytes: the Challenge for each name holds a copy of it.
func (s *Solvers) checkSize(place int) error {
	err, known := s.tooLarge[place]
	if known {
		return err
	}
	text, err := json.Marshal(s.all[place])
	if err == nil && len(text) > limits.SolverBytes {
		err = fmt.Errorf("solvers[%d] of the issuer is %w: it has %d bytes of JSON, and %d are the limit, since the Challenge for each name "+
			"holds a copy", place, ErrTooLarge, len(text), limits.SolverBytes)
	}
	s.tooLarge[place] = err
	return err
}

// fitting are the places of the solvers whose selectors fit a domain, in order, and how well each fits.
func (s *Solvers) fitting(domain string) ([]int, map[int]weight) {
	weights := map[int]weight{}
	for _, i := range s.names[domain] {
		weights[i] = weight{names: 1}
	}
	for zone, more := strings.ToLower(domain), true; more; _, zone, more = strings.Cut(zone, ".") { // the longest first
		for _, i := range s.zones[zone] {
			if w := weights[i]; w.zone == 0 {
				w.zone = strings.Count(zone, ".") + 1
				weights[i] = w
			}
		}
	}
	for _, i := range s.anyName {
		weights[i] = weight{}
	}
	var places []int
	for i, w := range weights {
		selector := s.all[i].Selector
		if !s.labels[i] || selector != nil && (len(selector.DNSNames) > 0 && w.names == 0 || len(selector.DNSZones) > 0 && w.zone == 0) {
			continue
		}
		if selector != nil {
			w.labels = len(selector.MatchLabels)
			weights[i] = w
		}
		places = append(places, i)
	}
	slices.Sort(places)
	return places, weights
}

// noSolverError says what to do about a name that no solver is for.
func noSolverError(domain string, offered []acmev1.ACMEChallenge, solvers []acmev1.ACMEChallengeSolver, unoffered int) error {
	var types []string
	for _, c := range offered {
		types = append(types, c.Type)
	}
	slices.Sort(types)
	types = slices.Compact(types)
	const failed = "Failed to determine a valid solver configuration for %q: "
	switch {
	case len(solvers) == 0:
		return fmt.Errorf(failed+"the issuer has no solvers; add one to spec.acme.solvers", domain)
	case unoffered == len(solvers):
		return fmt.Errorf(failed+"the ACME server offers %s, and none of the issuer's solvers is of such a type; add one to spec.acme.solvers%s",
			domain, cmp.Or(strings.Join(types, ", "), "no challenge"), labelHint(types, solvers))
	case unoffered > 0:
		return fmt.Errorf(failed+"the ACME server offers %s, and the selectors of all the issuer's solvers of such a type exclude it; amend spec.acme.solvers%s",
			domain, strings.Join(types, ", "), labelHint(types, solvers))
	default:
		return fmt.Errorf(failed+"the selectors of all the issuer's solvers exclude it; amend spec.acme.solvers", domain)
	}
}

// labelHint says which type a dns01 solver is for that is passed over, if it is not plain dns-01.
func labelHint(offered []string, solvers []acmev1.ACMEChallengeSolver) string {
	for _, s := range solvers {
		if s.DNS01 != nil && s.DNS01.AccountLabel && !slices.Contains(offered, "dns-account-01") {
			return " (dns01 with accountLabel is for dns-account-01)"
		}
	}
	return ""
}

// offeredFor finds the challenge that the CA offers for the solver's type.
func offeredFor(solver acmev1.ACMEChallengeSolver, offered []acmev1.ACMEChallenge) (acmev1.ACMEChallengeType, acmev1.ACMEChallenge, bool) {
	var t acmev1.ACMEChallengeType
	switch {
	case solver.DNSPersist01 != nil:
		t = acmev1.ChallengeTypeDNSPersist01
	case solver.TLSALPN01 != nil:
		t = acmev1.ChallengeTypeTLSALPN01
	case solver.DNS01 != nil && solver.DNS01.AccountLabel:
		t = acmev1.ChallengeTypeDNSAccount01
	case solver.DNS01 != nil:
		t = acmev1.ChallengeTypeDNS01
	case solver.HTTP01 != nil:
		t = acmev1.ChallengeTypeHTTP01
	}
	for _, c := range offered {
		if t != "" && strings.EqualFold(c.Type, string(t)) {
			return t, c, true
		}
	}
	return "", acmev1.ACMEChallenge{}, false
}

// ApplyOverrides is the solver with the Order's annotations applied (spec §5.5). The given solver is not changed.
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
