package preflight

import (
	"fmt"
	"slices"
	"strings"

	"chancery.dev/internal/acme/caa"
)

// criticalFlag says that a CA that does not know the property must not issue (RFC 8659 §4.1).
const criticalFlag = 128

// CAARecord is a CAA record (RFC 8659 §4.1).
type CAARecord struct {
	Flag       uint8
	Tag, Value string
}

// Authority is the CA for which CAA judges the records.
type Authority struct {
	// Identities are the names that the CA goes by in CAA records: caaIdentities of its directory.
	Identities []string
	// Account is the URL of the account, empty if there is none yet.
	Account string
}

// CAA judges whether the CAA records of owner, which hold for a name, let a CA issue for the name (RFC 8659, RFC 8657).
func CAA(p Proof, owner string, records []CAARecord, ca Authority) Finding {
	f := Finding{Check: "CAA", Subject: p.Display(), Outcome: OK, Message: "no CAA records: every CA may issue"}
	if len(records) == 0 {
		return f
	}
	for _, r := range records {
		if r.Flag&criticalFlag != 0 && !slices.Contains([]string{"issue", "issuewild", "issuemail", "iodef"}, strings.ToLower(r.Tag)) {
			return refusedBy(f, owner, fmt.Sprintf("the critical property %q, which CAs need not know", r.Tag), ca)
		}
	}
	properties := tagged(records, "issue")
	if wild := tagged(records, "issuewild"); p.Wildcard && len(wild) > 0 {
		properties = wild
	}
	if len(properties) == 0 {
		f.Message = fmt.Sprintf("the CAA records of %s restrict nobody for this name", owner)
		return f
	}
	shown := `"` + strings.Join(properties, `", "`) + `"`
	if len(ca.Identities) == 0 {
		f.Outcome = NotChecked
		f.Message = fmt.Sprintf("%s lets only %s issue, and the directory of the CA does not say by which name the CA goes", owner, shown)
		f.WhatToDo = "Compare with the documentation of the CA"
		return f
	}
	why := "none of them names the CA"
	for _, value := range properties {
		domain, parameters := parseIssue(value)
		if !slices.ContainsFunc(ca.Identities, func(i string) bool { return strings.EqualFold(i, domain) }) {
			continue
		}
		switch reason, ofAccount := refusal(parameters, p, ca); {
		case reason == "":
			f.Outcome, f.WhatToDo = OK, ""
			f.Message = fmt.Sprintf("%s lets the CA issue: %q", owner, value)
			return f
		case ca.Account == "" && ofAccount:
			f.Outcome = NotChecked
			f.Message = fmt.Sprintf("%s lets one account of the CA issue, and the issuer has no account yet: %q", owner, value)
		default:
			why = reason
		}
	}
	if f.Outcome == NotChecked {
		return f
	}
	return refusedBy(f, owner, shown+": "+why, ca)
}

func refusedBy(f Finding, owner, why string, ca Authority) Finding {
	f.Outcome, f.Message = Failed, fmt.Sprintf("%s does not let the CA issue: %s", owner, why)
	f.WhatToDo = "Change the CAA records of " + owner
	if len(ca.Identities) > 0 {
		f.WhatToDo += fmt.Sprintf(", for example to 0 issue %q", ca.Identities[0])
	}
	return f
}

// tagged are the values of a property, without regard to case (RFC 8659 §4.1).
func tagged(records []CAARecord, tag string) (values []string) {
	for _, r := range records {
		if strings.EqualFold(r.Tag, tag) {
			values = append(values, r.Value)
		}
	}
	return values
}

// parseIssue reads the value of the properties issue and issuewild (RFC 8659 §4.2). A parameter that occurs twice has
// all its values. A malformed value names no CA.
func parseIssue(value string) (domain string, parameters map[string][]string) {
	domain, rest, _ := strings.Cut(value, ";")
	parameters = map[string][]string{}
	if domain, rest = caa.Trim(domain), caa.Trim(rest); rest == "" {
		return domain, parameters
	}
	for part := range strings.SplitSeq(rest, ";") {
		key, v, ok := caa.Cut(part)
		if !ok || !caa.IsValue(v) {
			return "", nil
		}
		parameters[key] = append(parameters[key], v)
	}
	return domain, parameters
}

// refusal says which parameter excludes an order (RFC 8657), and whether that is the account's; empty if none does.
// More than one accounturi, or more than one validationmethods, excludes all (RFC 8657 §3, §4).
func refusal(parameters map[string][]string, p Proof, ca Authority) (reason string, ofAccount bool) {
	if accounts := parameters["accounturi"]; len(accounts) > 1 || len(accounts) == 1 && accounts[0] != ca.Account {
		return fmt.Sprintf("accounturi is %s, and the account of the issuer is %s", strings.Join(accounts, ", "), ca.Account), true
	}
	methods := parameters["validationmethods"]
	if len(methods) == 0 || p.Type == "" {
		return "", false
	}
	for method := range strings.SplitSeq(methods[0], ",") {
		if len(methods) == 1 && strings.EqualFold(strings.TrimSpace(method), string(p.Type)) {
			return "", false
		}
	}
	return fmt.Sprintf("validationmethods is %s, and the solver for the name proves it by %s", strings.Join(methods, "; "), strings.ToLower(string(p.Type))), false
}
