package venafi

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"time"

	"github.com/Venafi/vcert/v5/pkg/certificate"
	"github.com/Venafi/vcert/v5/pkg/endpoint"

	"chancery.dev/internal/limits"
)

// policyTimeout is how long a request is compared with a policy at most: three times what a thousand domains and a
// thousand names take.
const policyTimeout = 15 * time.Second

// unfitError says which bound a policy is above.
type unfitError struct{ what string }

// Error implements error. The words go on after "the policy of zone x".
func (e *unfitError) Error() string { return e.what }

// policyLists are the fields of a policy of which the library makes a regular expression for each entry, and those with
// the keys that are allowed: of TPP, then of SaaS and NGTS.
func policyLists() []string {
	return []string{
		"WhitelistedDomains", "Values", "Value",
		"subjectCNRegexes", "subjectORegexes", "subjectOURegexes", "subjectSTRegexes", "subjectLRegexes", "subjectCValues",
		"sanRegexes", "sanRfc822NameRegexes", "sanIpAddressRegexes", "sanUniformResourceIdentifierRegexes",
		"keyTypes", "keyLengths", "keyCurves",
	}
}

// checkBounds returns an unfitError for the body of an answer with a policy that is above a bound of internal/limits.
// The library bounds nothing. What is not JSON is left to the library.
func checkBounds(body []byte) error {
	if !json.Valid(body) {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	return checkValue(d, "")
}

// checkValue reads one value. list is the name of the policy's list that has the value, or empty.
func checkValue(d *json.Decoder, list string) error {
	token, err := d.Token()
	if err != nil {
		return err
	}
	if text, is := token.(string); is && list != "" && len(text) > limits.PolicyEntryBytes {
		return &unfitError{fmt.Sprintf("has an entry of more than %d bytes in its list %s", limits.PolicyEntryBytes, list)}
	}
	open, is := token.(json.Delim)
	if !is {
		return nil
	}
	for n := 1; d.More(); n++ {
		switch {
		case open == '{':
			key, err := d.Token()
			if err != nil {
				return err
			}
			list = listOf(key)
		case list != "" && n > limits.PolicyEntries:
			return &unfitError{fmt.Sprintf("has more than %d entries in its list %s", limits.PolicyEntries, list)}
		}
		if err := checkValue(d, list); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}

// listOf is the list of a policy that a key names, for encoding/json in any case, or nothing.
func listOf(key json.Token) string {
	text, _ := key.(string)
	for _, name := range policyLists() {
		if strings.EqualFold(name, text) {
			return name
		}
	}
	return ""
}

// rule is one list of a policy, with what of a request it has to allow.
type rule struct {
	field, verb string
	// allowed are regular expressions. Each of values has to match one of them.
	allowed, values []string
}

// rulesOf are the lists of a policy that allow a request, in the order and the words of the library. A subject without
// a field is compared as one with an empty field.
func rulesOf(p *endpoint.Policy, csr *x509.CertificateRequest) []*rule {
	const plural, singular = "do not match regular expressions", "doesn't match regular expressions"
	var ips, uris []string
	for _, ip := range csr.IPAddresses {
		ips = append(ips, ip.String())
	}
	for _, uri := range csr.URIs {
		uris = append(uris, uri.String())
	}
	subject := func(values []string) []string {
		if len(values) == 0 {
			return []string{""}
		}
		return slices.Clone(values)
	}
	s := csr.Subject
	return []*rule{
		{"common name", "is not allowed in this policy", p.SubjectCNRegexes, []string{s.CommonName}},
		{"DNS SANs", plural, p.DnsSanRegExs, slices.Clone(csr.DNSNames)},
		{"email addresses", plural, p.EmailSanRegExs, slices.Clone(csr.EmailAddresses)},
		{"IP addresses", plural, p.IpSanRegExs, ips},
		{"URIs", plural, p.UriSanRegExs, uris},
		{"organization", singular, p.SubjectORegexes, subject(s.Organization)},
		{"organization unit", singular, p.SubjectOURegexes, subject(s.OrganizationalUnit)},
		{"country", singular, p.SubjectCRegexes, subject(s.Country)},
		{"location", singular, p.SubjectLRegexes, subject(s.Locality)},
		{"state (province)", singular, p.SubjectSTRegexes, subject(s.Province)},
	}
}

// turns has room for the one comparison that is made at a time, whoever's it is: all else has the other cores. A
// comparison is of one name with one entry, and who waits is served in turn.
type turns struct{ room chan struct{} }

func newTurns() *turns { return &turns{room: make(chan struct{}, 1)} }

// budget is how long a request may still be compared. Waiting for a turn costs nothing.
type budget struct {
	left time.Duration
	now  func() time.Time
	*turns
}

// errSpent says that a request has used up its budget.
var errSpent = errors.New("the comparison takes too long")

// take has a turn, in which it does what is to be done. It returns the end of the context, or errSpent.
func (b *budget) take(ctx context.Context, do func()) error {
	select {
	case b.room <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-b.room }()
	if err := ctx.Err(); err != nil {
		return err
	}
	if b.left <= 0 {
		return errSpent
	}
	began := b.now()
	do()
	b.left -= b.now().Sub(began)
	return nil
}

// dropMatches takes out of a rule the values that an expression matches, with a turn for each.
func (b *budget) dropMatches(ctx context.Context, r *rule, expression *regexp.Regexp) (ended error) {
	r.values = slices.DeleteFunc(r.values, func(value string) (matches bool) {
		if ended == nil {
			ended = b.take(ctx, func() { matches = expression.MatchString(value) })
		}
		return matches
	})
	return ended
}

// compare removes the allowed values from each rule. It compiles each expression once, for all values, and keeps none.
// Like the library, compare ignores an expression that does not compile. The end of the context or of the budget is an
// error, and so is an expression above limits.PolicySteps: an unfitError.
func compare(ctx context.Context, b *budget, rules []*rule) error {
	users := map[string][]*rule{}
	for _, r := range rules {
		for _, text := range r.allowed {
			users[text] = append(users[text], r)
		}
	}
	for _, text := range slices.Sorted(maps.Keys(users)) {
		if !slices.ContainsFunc(users[text], func(r *rule) bool { return len(r.values) > 0 }) {
			continue
		}
		parsed, err := syntax.Parse(text, syntax.Perl)
		if err != nil {
			continue
		}
		if steps(parsed) > limits.PolicySteps {
			return &unfitError{fmt.Sprintf("has the expression %q, which has too many classes of characters or repeats too often", text)}
		}
		expression, err := regexp.Compile(text)
		if err != nil {
			continue
		}
		for _, r := range users[text] {
			if err := b.dropMatches(ctx, r, expression); err != nil {
				return err
			}
		}
	}
	return nil
}

// steps is about how many steps an expression has once it is compiled: a literal has its runes, a class of characters
// its ranges, and what is repeated up to n times is there n times.
func steps(e *syntax.Regexp) int {
	n := 1
	switch e.Op {
	case syntax.OpLiteral:
		n = len(e.Rune)
	case syntax.OpCharClass:
		n = len(e.Rune) / 2
	default:
	}
	for _, sub := range e.Sub {
		n += steps(sub)
	}
	if e.Op == syntax.OpRepeat {
		n *= max(e.Min, e.Max, 1)
	}
	return n
}

// permits refuses a request that the policy of a zone does not allow. Its own check of all lists stands in place of the
// library's, which compiles each expression again for each name. The library checks what else there is: the key.
func permits(ctx context.Context, b *budget, zone *endpoint.ZoneConfiguration, req *certificate.Request, csr *x509.CertificateRequest) error {
	rules := rulesOf(&zone.Policy, csr)
	if err := compare(ctx, b, rules); err != nil {
		return err
	}
	for _, r := range rules {
		if len(r.values) > 0 {
			return fmt.Errorf("%s %s %s: %v", r.field, strings.Join(r.values, ", "), r.verb, r.allowed)
		}
	}
	p, all := zone.Policy, []string{""}
	p.SubjectCNRegexes, p.SubjectORegexes, p.SubjectOURegexes = all, all, all
	p.SubjectCRegexes, p.SubjectLRegexes, p.SubjectSTRegexes = all, all, all
	p.DnsSanRegExs, p.EmailSanRegExs, p.IpSanRegExs, p.UriSanRegExs = all, all, all, all
	return p.ValidateCertificateRequest(req)
}

// allow is permits for no longer than timeout. What is wrong with the policy itself is noted in the exchange, and so is
// the end of the call: neither is a refusal of the request.
func (o order) allow(x *exchange, zone *endpoint.ZoneConfiguration, req *certificate.Request, timeout time.Duration) error {
	err := permits(x.ctx, &budget{timeout, x.now, x.comparing}, zone, req, o.csr)
	var unfit *unfitError
	switch {
	case err == nil:
	case x.ctx.Err() != nil:
		x.err = x.ctx.Err()
	case errors.Is(err, errSpent):
		x.unfit = &unfitError{fmt.Sprintf("takes longer than %s to compare with the request", timeout)}
	case errors.As(err, &unfit):
		x.unfit = unfit
	}
	return err
}
