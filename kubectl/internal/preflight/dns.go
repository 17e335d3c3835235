package preflight

import (
	"context"
	"errors"
	"strings"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/acme"
	"chancery.dev/internal/acme/dnspersist"
	"chancery.dev/internal/clientside/preflight"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/solver"
	"chancery.dev/internal/solver/dns01"
)

// dns checks the zone of a name, or of the record that proves the name, and CAA, and returns the zone. A zone in zones
// is known already.
func (k *checker) dns(ctx context.Context, p preflight.Proof, ca preflight.Authority, zones map[string]bool) string {
	fqdn := p.Name
	switch p.Type {
	case acmev1.ChallengeTypeDNS01:
		fqdn = k.alias(ctx, p, acme.DNS01Name(p.Name, ""))
	case acmev1.ChallengeTypeDNSAccount01:
		fqdn = k.alias(ctx, p, acme.DNS01Name(p.Name, acme.AccountLabel(ca.Account)))
	case acmev1.ChallengeTypeDNSPersist01:
		k.add(k.persistent(ctx, p, ca))
	default: // no record is made
	}
	zone, err := k.resolver.Zone(ctx, fqdn, nil)
	f := preflight.Finding{Check: "zone", Subject: p.Display(), Outcome: preflight.OK, Message: fqdn + " is in the zone " + zone + k.by()}
	switch {
	case err != nil && fault.IsTerminal(err):
		f.Outcome, f.Message = preflight.Failed, err.Error()
		f.WhatToDo = "Register the domain, or correct the name; see: dig +trace NS " + p.Name
	case err != nil:
		f = unread(f.Check, f.Subject, err)
		f.WhatToDo = "Name other DNS servers with --dns01-recursive-nameservers"
	}
	k.add(f)
	if err != nil {
		return ""
	}
	if !zones[zone] {
		zones[zone] = true
		if d, err := k.resolver.Delegation(ctx, zone); err != nil {
			k.add(unread("delegation", zone, err))
		} else {
			k.add(d.Judge(p.Solver.DNS01 != nil))
		}
	}
	k.caa(ctx, p, ca)
	return zone
}

// by says whose answers they are.
func (k *checker) by() string { return " according to " + strings.Join(k.o.nameservers, ", ") }

// caa checks whether the CA may issue for the name.
func (k *checker) caa(ctx context.Context, p preflight.Proof, ca preflight.Authority) {
	owner, records, err := k.resolver.CAA(ctx, p.Name)
	if err != nil {
		// A CA that gets no answer must not issue (RFC 8659 §3).
		k.add(preflight.Finding{Check: "CAA", Subject: p.Display(), Outcome: preflight.Warning, Message: err.Error() + k.by(),
			WhatToDo: "See whether the name servers of the zone answer: dig CAA " + p.Name})
		return
	}
	k.add(preflight.CAA(p, owner, records, ca))
}

// alias checks whether the name of the record is a CNAME, and returns the name at which the solver writes the record.
func (k *checker) alias(ctx context.Context, p preflight.Proof, fqdn string) string {
	end, err := k.resolver.Follow(ctx, fqdn, nil)
	f := preflight.Finding{Check: "CNAME", Subject: fqdn, Outcome: preflight.OK}
	aliased := err == nil && pki.DNSNameKey(end) != pki.DNSNameKey(fqdn)
	follow, byService := p.Solver.DNS01.CNAMEStrategy == acmev1.CNAMEStrategyFollow, p.Solver.DNS01.AcmeDNS != nil
	switch {
	case err != nil:
		f.Outcome, f.Message, f.WhatToDo = preflight.Warning, err.Error(), "See where the name leads: dig CNAME "+fqdn
	case aliased && (follow || byService):
		f.Message = "leads to " + end + ", and the solver writes there"
	case aliased:
		f.Outcome, f.Message = preflight.Warning, "leads to "+end+", and the solver does not follow it: no TXT record can be beside a CNAME"
		f.WhatToDo = "Set cnameStrategy of the solver to Follow, or remove the CNAME"
	case byService:
		f.Outcome, f.Message = preflight.Failed, "no CNAME leads to the acme-dns server, which has the record"
		f.WhatToDo = "Make a CNAME that leads to the fulldomain of the account at the acme-dns server"
	default:
		return fqdn
	}
	k.add(f)
	if follow && err == nil {
		return end
	}
	return fqdn
}

// persistent checks the record of DNS-PERSIST-01, which the owner of the zone has to make.
func (k *checker) persistent(ctx context.Context, p preflight.Proof, ca preflight.Authority) preflight.Finding {
	f := preflight.Finding{Check: "record", Subject: p.Display(), Outcome: preflight.OK, Message: dnspersist.Name(p.Name) + " has the record for the account"}
	issuer, err := dnspersist.Choose(ca.Identities, p.Solver.DNSPersist01.IssuerDomainName)
	if err == nil && ca.Account == "" {
		err = errors.New("the issuer has no account yet, which the record has to name")
	}
	if err != nil {
		return unread(f.Check, f.Subject, err)
	}
	challenge := &acmev1.Challenge{Spec: acmev1.ChallengeSpec{
		DNSName: p.Name, Wildcard: p.Wildcard, Solver: p.Solver, Key: dnspersist.Record{Issuer: issuer, AccountURI: ca.Account, Wildcard: p.Wildcard}.String(),
	}}
	warn := func(text string) { f.Outcome, f.Message = preflight.Warning, text }
	if err := dns01.NewPersistent(k.resolver).Check(ctx, solver.Task{Challenge: challenge, Warn: warn}); err != nil {
		f.Outcome, f.Message, f.WhatToDo = preflight.Failed, err.Error(), "Make the record that the message names"
	}
	return f
}
