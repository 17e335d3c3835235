package main

import (
	"regexp"
	"slices"
	"strings"
)

// naming is where a difference is named: a page, and words on it.
type naming struct{ page, text string }

const (
	compatibility = "docs/compatibility.md"
	changelog     = "CHANGELOG.md"
)

// known is a difference that a page names. Patterns match somewhere in what a row says; an empty one matches anything.
type known struct {
	kind, where, other, ours string
	// alike, if there is one, says whether the two values differ only as the page says.
	alike func(other, ours string) bool
	named naming
}

const (
	nothing   = `^$`
	something = `.`
)

// nameOfDifference finds what names a difference; nil for nothing.
func nameOfDifference(d *row) *naming {
	for _, k := range differences() {
		matches := k.alike == nil || k.alike(d.other, d.ours)
		for _, m := range [][2]string{{k.kind, d.kind}, {k.where, d.where}, {k.other, d.other}, {k.ours, d.ours}} {
			matches = matches && regexp.MustCompile(m[0]).MatchString(m[1])
		}
		if matches {
			return &k.named
		}
	}
	return nil
}

// differences are those from cert-manager, which the page about compatibility names, and those between builds of ours,
// which the changelog does. The first that matches counts.
func differences() []known { return append(additions(), append(otherwise(), between()...)...) }

// additions are what only ours has.
func additions() []known {
	added := func(kind, where, text string) known {
		return known{kind: kind, where: where, other: nothing, ours: something, named: naming{compatibility, text}}
	}
	return []known{
		added("", `observedGeneration$`, "`status.observedGeneration`, an addition"),
		added("", `^status\.conditions\[(Reconciling|Stalled)\]`, "the conditions `Reconciling` and `Stalled` are additions"),
		added("^Certificate$", `^status\.(cause\.|nextTry)`, "`status.cause` and `status.nextTry` are additions"),
		added("^Certificate$", `^status\.renewalTimeSource$`, "`status.renewalTimeSource`, an addition"),
		added("Issuer$", `^status\.ca\.`, "`status.ca` of a CA issuer, an addition"),
		{where: `^metadata\.annotations\[chancery\.dev/`, ours: something, named: naming{compatibility, "annotations that begin with `chancery.dev/`, additions"}},
		{kind: "^(CertificateRequest|Order|Challenge)$", where: `^status\.cause\.`, other: nothing, named: naming{changelog, "The fields `status.cause` of Certificates, CertificateRequests and Orders"}},
	}
}

// otherwise is what ours does in another way.
func otherwise() []known {
	says := func(text string) naming { return naming{compatibility, text} }
	const events = "an event for each step"
	const cause = "the condition `Ready` says what is wrong with the Secret"
	const left = "a usage that the CA has left out of the certificate is not noticed"
	const shared = "a Certificate whose Secret belongs to another Certificate says nothing"
	return []known{
		{kind: "^Event", where: `^Normal `, alike: saysLess, named: says(events)},
		{kind: "^Event", where: `^\(the object\)`, other: `^there: Normal [^;]*$`, ours: nothing, named: says(events)},
		{kind: "^Event of Certificate$", where: `^Warning Waiting `, other: nothing, named: says(events)},
		{kind: "^Event of Certificate$", where: `^\(the object\)`, other: nothing, ours: `^there: Warning Waiting [^;]*`, named: says(events)},
		{kind: "^Event of Ingress$", where: `^Warning BadConfig `, other: nothing, named: says("an annotation of an Ingress or Gateway that is wrong is tried again without a word")},
		{kind: "^Event of Ingress$", where: `^\(the object\)`, other: nothing, ours: `^there: Warning BadConfig `, named: says("an annotation of an Ingress or Gateway that is wrong is tried again without a word")},
		{kind: "^Event of Certificate$", where: `^Warning Failed `, alike: saysMore, named: says(cause)},
		{kind: "^Certificate$", where: `^status\.conditions\[(Ready|Issuing)\]\.message$`, alike: saysMore, named: says(cause)},
		{kind: "^Certificate$", where: `^status\.conditions\[`, other: nothing, ours: "same spec.secretName", named: says(shared)},
		{kind: "^Event of Certificate$", where: `^Warning UsageLeftOut `, other: nothing, named: says(left)},
		{kind: "^Certificate$", where: `^status\.renewalTime$`, other: "third", ours: "half", named: says("a third of the lifetime is kept in reserve")},
		{kind: "^Certificate$", where: `^spec\.uris$`, other: nothing, ours: something, named: says("some fields of a Certificate that was made from an Ingress are not compared, `uri-sans` is not read")},
		{kind: "^CertificateRequest$", where: `private-key-secret-name\]$`, other: something, ours: nothing, named: says("`Issuing` is True, and the next private key is in a Secret, before anything else is done")},
		{kind: "^Order$", where: `^status\.`, other: nothing, ours: "valid solver configuration", named: says("an Order without a usable solver is pending for ever, with an event")},
	}
}

// between is what an earlier build of ours does in another way.
func between() []known {
	says := func(text string) naming { return naming{changelog, text} }
	const cause = "The condition `Ready` of a Certificate [begins with the cause]"
	const word = "certificates expire and are renewed"
	const expired = "A CA certificate that has expired above a certificate is a cause of the Certificate"
	const left = "Where an issuer leaves a usage out that `spec.usages` asks for"
	return []known{
		{kind: "^Event of Certificate$", where: `^Warning UsageLeftOut `, other: nothing, named: says(left)},
		{kind: "^Certificate$", where: `^status\.conditions\[Issuing\]\.message$`, other: `^CertificateRequest "[^"]+" waits: `, named: says(cause)},
		{kind: "^Certificate$", where: `\.message$`, alike: func(other, ours string) bool {
			return strings.ReplaceAll(other, "certificate ends", "certificate expires") == ours
		}, named: says(word)},
		{kind: "^Event", where: `^Warning WindowError `, alike: func(other, ours string) bool {
			return strings.ReplaceAll(other, "certificate ends", "certificate expires") == ours
		}, named: says(word)},
		{kind: "^Event of Certificate$", where: `^Warning CAExpired `, other: nothing, named: says(expired)},
	}
}

// saysMore reports whether ours says all that the other one says of a failure.
func saysMore(other, ours string) bool {
	other = strings.TrimPrefix(other, "The certificate request has failed to complete and will be retried: ")
	if _, of, found := strings.Cut(other, `order is in "errored" state: `); found {
		other = of
	}
	return other != "" && strings.Contains(ours, other)
}

// saysLess reports whether the other one tells of all that ours tells of.
func saysLess(other, ours string) bool {
	told := strings.Split(other, "\n")
	for line := range strings.SplitSeq(ours, "\n") {
		if line != "" && !slices.Contains(told, line) {
			return false
		}
	}
	return true
}
