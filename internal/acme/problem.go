package acme

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"chancery.dev/internal/fault"
)

// ProblemNamespace precedes the error codes of RFC 8555 §6.7 in a problem's type.
const ProblemNamespace = "urn:ietf:params:acme:error:"

// Code is a problem's type without its namespace.
type Code string

// Codes of RFC 8555 §6.7, RFC 9773 §7.4 and draft-ietf-acme-profiles §5.
const (
	CodeAccountDoesNotExist     Code = "accountDoesNotExist"
	CodeAlreadyReplaced         Code = "alreadyReplaced"
	CodeAlreadyRevoked          Code = "alreadyRevoked"
	CodeBadCSR                  Code = "badCSR"
	CodeBadNonce                Code = "badNonce"
	CodeBadPublicKey            Code = "badPublicKey"
	CodeCAA                     Code = "caa"
	CodeCompound                Code = "compound"
	CodeConnection              Code = "connection"
	CodeDNS                     Code = "dns"
	CodeExternalAccountRequired Code = "externalAccountRequired"
	CodeIncorrectResponse       Code = "incorrectResponse"
	CodeInvalidProfile          Code = "invalidProfile"
	CodeMalformed               Code = "malformed"
	CodeOrderNotReady           Code = "orderNotReady"
	CodeRateLimited             Code = "rateLimited"
	CodeRejectedIdentifier      Code = "rejectedIdentifier"
	CodeServerInternal          Code = "serverInternal"
	CodeTLS                     Code = "tls"
	CodeUnauthorized            Code = "unauthorized"
	CodeUnsupportedIdentifier   Code = "unsupportedIdentifier"
	CodeUserActionRequired      Code = "userActionRequired"
)

// Type is the code with its namespace, as it stands in a problem document.
func (c Code) Type() string { return ProblemNamespace + string(c) }

// CodeOf is the code in a problem's type; empty if the type is not one of RFC 8555.
func CodeOf(problemType string) Code {
	code, is := strings.CutPrefix(problemType, ProblemNamespace)
	if !is {
		return ""
	}
	return Code(code)
}

// Problem is a problem document (RFC 8555 §6.7, RFC 7807): an error of a request, or the reason
// why an order or a challenge failed.
type Problem struct {
	// Type is a URI that says what went wrong; "" or "about:blank" says only the status.
	Type string `json:"type"`
	// Title is a short summary; few servers send it.
	Title string `json:"title,omitempty"`
	// Detail is for a person. Like all texts of a problem it has passed fault.Quote.
	Detail string `json:"detail,omitempty"`
	// Status is the HTTP status; that of the response for an error of a request.
	Status int `json:"status,omitempty"`
	// Instance is a URI with more: for userActionRequired, where the user must go (§7.3.3).
	Instance string `json:"instance,omitempty"`
	// Subproblems are the parts of a compound problem (§6.7.1).
	Subproblems []Subproblem `json:"subproblems,omitempty"`

	// RetryAfter is how long the response asked to wait (§6.6); 0 if it did not say.
	RetryAfter time.Duration `json:"-"`
}

// Subproblem is a part of a problem. Parts have no parts of their own.
type Subproblem struct {
	// Type is a URI that says what went wrong.
	Type string `json:"type"`
	// Detail is for a person.
	Detail string `json:"detail,omitempty"`
	// Identifier is what the part is about.
	Identifier Identifier `json:"identifier,omitzero"`
}

// Code is the type without its namespace; "" if the type is not one of ACME's.
func (p *Problem) Code() Code {
	return CodeOf(p.Type)
}

// Cause is the code of the problem or, where the problem only stands for its parts (§6.7.1), that of the first
// part that has one; "" for no problem.
func (p *Problem) Cause() Code {
	if p == nil {
		return ""
	}
	if code := p.Code(); code != "" && code != CodeCompound {
		return code
	}
	for _, part := range p.Subproblems {
		if code := CodeOf(part.Type); code != "" && code != CodeCompound {
			return code
		}
	}
	return ""
}

// Unpause is the link by which a person lifts the pause that the problem tells of; "" if it tells of none. Let's
// Encrypt refuses orders for names whose validations have failed too often in a row, until somebody has visited a page
// of its self-service portal. It calls that rateLimited, and only the link tells it from a limit that passes by itself.
func (p *Problem) Unpause() string {
	if p.Cause() != CodeRateLimited { // nor is there a problem
		return ""
	}
	for _, link := range fault.Links(p.Detail) {
		if u, err := url.Parse(link); err == nil && path.Base(u.Path) == "unpause" {
			return link
		}
	}
	return ""
}

// Error is the status, the type and the detail, where a user must go (RFC 8555 §7.3.3), then the subproblems with
// their identifiers: as many as have room beside the detail.
func (p *Problem) Error() string {
	said := p.Type
	if p.Status != 0 {
		said = fmt.Sprintf("%d %s", p.Status, said)
	}
	detail := cmp.Or(p.Detail, p.Title)
	if detail != "" {
		said += ": " + detail
	}
	if p.Code() == CodeUserActionRequired && p.Instance != "" {
		said += ": visit " + p.Instance
	}
	room := fault.MaxQuote - len(detail)
	for i, part := range p.Subproblems {
		text := "; "
		if part.Identifier.Value != "" {
			text += part.Identifier.Value + ": "
		}
		text += part.Type
		if part.Detail != "" {
			text += ": " + part.Detail
		}
		if room -= len(text); room < 0 {
			return fmt.Sprintf("%s; and %d more", said, len(p.Subproblems)-i)
		}
		said += text
	}
	return said
}

// maxSubproblems bounds how many parts of a problem are kept: one for each name of the largest order any CA accepts.
const maxSubproblems = 100

// UnmarshalJSON reads a problem document and makes its texts fit to be shown.
func (p *Problem) UnmarshalJSON(data []byte) error {
	type wire Problem
	var w wire
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	for _, text := range []*string{&w.Type, &w.Title, &w.Detail, &w.Instance} {
		*text = fault.Quote(*text)
	}
	w.Subproblems = slices.Clone(w.Subproblems[:min(len(w.Subproblems), maxSubproblems)])
	for i := range w.Subproblems {
		part := &w.Subproblems[i]
		for _, text := range []*string{&part.Type, &part.Detail, &part.Identifier.Value} {
			*text = fault.Quote(*text)
		}
	}
	*p = Problem(w)
	return nil
}

// ParseProblem reads the JSON body of an error response with the HTTP status; nil if the body is
// not a problem document.
func ParseProblem(status int, body []byte) *Problem {
	var p Problem
	understood := json.Unmarshal(body, &p) == nil
	if !understood || p.Type == "" && p.Detail+p.Title == "" {
		return nil
	}
	if p.Type == "" {
		p.Type = "about:blank" // RFC 7807 §3.1
	}
	p.Status = status
	return &p
}

// ProblemOf returns the Problem in err's chain, or nil.
func ProblemOf(err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	return nil
}

// HasCode reports whether err is a Problem with one of the codes.
func HasCode(err error, codes ...Code) bool {
	p := ProblemOf(err)
	return p != nil && slices.Contains(codes, p.Code())
}
