package request

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/rig/golden"
)

func forms() []Form {
	return []Form{FormCertificateRequest, FormCSR, FormCSRIssuer, FormCSRClusterIssuer}
}

func approvers() []Approver { return []Approver{ApproveExternal, ApproveAuto, ApproveAuthorized} }

func issuerStates() []IssuerState {
	return []IssuerState{IssuerUnknown, IssuerMissing, IssuerForeign, IssuerTypeless, IssuerUnmanaged, IssuerOutOfReach, IssuerNotReady, IssuerReady}
}

// flags are what else can be said of a request, in words for the table.
func flags() []struct {
	name string
	set  func(*State)
} {
	yes, no := true, false
	return []struct {
		name string
		set  func(*State)
	}{
		{"new", func(*State) {}},
		{"approved", func(s *State) { s.Approved = true }},
		{"deleted", func(s *State) { s.Deleted = true }},
		{"denied", func(s *State) { s.Denied = true }},
		{"denied, said", func(s *State) { s.Denied, s.DeniedSaid = true, true }},
		{"denied, invalid", func(s *State) { s.Denied, s.Invalid = true, true }},
		{"failed", func(s *State) { s.Failed = true }},
		{"issued", func(s *State) { s.Issued = true }},
		{"machine", func(s *State) { s.Machine = GroupNodes }},
		{"machine, approved", func(s *State) { s.Machine, s.Approved = GroupNodes, true }},
		{"invalid", func(s *State) { s.Invalid = true }},
		{"CA", func(s *State) { s.WantsCA = true }},
		{"CA, approved", func(s *State) { s.WantsCA, s.Approved = true, true }},
		{"CA, may reference", func(s *State) { s.WantsCA, s.MayReference = true, &yes }},
		{"CA, may not reference", func(s *State) { s.WantsCA, s.MayReference = true, &no }},
		{"may reference", func(s *State) { s.MayReference = &yes }},
		{"may not reference", func(s *State) { s.MayReference = &no }},
		{"approved, may reference", func(s *State) { s.Approved, s.MayReference = true, &yes }},
		{"approved, may not reference", func(s *State) { s.Approved, s.MayReference = true, &no }},
		{"problem", func(s *State) { s.Problem, s.MayReference = fault.Terminal("InvalidDuration", "too short"), &yes }},
		{"problem, approved", func(s *State) { s.Problem, s.Approved, s.MayReference = errors.New("odd"), true, &yes }},
	}
}

// named is an Order, in words for the table.
type named struct {
	name  string
	order Order
}

// orders are what can be known of the Order of a request.
func orders() []named {
	found := func(status acmev1.OrderStatus, change func(*Order)) Order {
		o := Order{Namespace: "ns", Name: "o", Found: &acmev1.Order{Status: status}}
		if change != nil {
			change(&o)
		}
		return o
	}
	valid := acmev1.OrderStatus{State: acmev1.Valid, Certificate: []byte("chain")}
	return []named{
		{"none can be made", Order{Problem: fault.Failed(fault.ClassPermanent, "InvalidOrder", "no such name")}},
		{"none", Order{Namespace: "ns", Name: "o"}},
		{"none, and not yet", Order{Namespace: "ns", Name: "o", Held: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}},
		{"new", found(acmev1.OrderStatus{}, nil)},
		{"somebody else's", found(valid, func(o *Order) { o.Foreign = true })},
		{"waits", found(acmev1.OrderStatus{State: acmev1.Pending, Reason: "no solver"}, nil)},
		{"failed", found(acmev1.OrderStatus{State: acmev1.Errored, Reason: "no"}, func(o *Order) { o.Class = fault.ClassRefused })},
		{"valid, without a certificate", found(acmev1.OrderStatus{State: acmev1.Valid}, nil)},
		{"valid, going", found(valid, func(o *Order) { o.Found.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} })},
		{"valid, wrong", found(valid, func(o *Order) { o.Wrong = errors.New("another key") })},
		{"valid", found(valid, nil)},
	}
}

func issuerName(i IssuerState) string {
	return [...]string{"", "unknown", "missing", "foreign", "typeless", "unmanaged", "out of reach", "not ready", "ready"}[i]
}

func formName(f Form) string {
	return [...]string{"", "CertificateRequest", "CSR cert-manager.io/name", "CSR issuers.cert-manager.io/ns.name", "CSR clusterissuers.cert-manager.io/name"}[f]
}

func approverName(a Approver) string {
	return [...]string{"", "external", "auto", "authorized"}[a]
}

// TestDecideTable is exhaustive over forms, approvers, flags and states of the issuer.
func TestDecideTable(t *testing.T) {
	var out strings.Builder
	for _, form := range forms() {
		for _, approver := range approvers() {
			fmt.Fprintf(&out, "%s, approval %s\n", formName(form), approverName(approver))
			for _, flag := range flags() {
				var said []string
				for _, issuer := range issuerStates() {
					s := State{Form: form, Approver: approver, Issuer: issuer, IssuerName: `Issuer "ca"`, IssuerSays: "no key"}
					flag.set(&s)
					said = append(said, issuerName(issuer)+": "+describe(Decide(s)))
				}
				fmt.Fprintf(&out, "  %s\n", flag.name)
				for i := 0; i < len(said); { // what several states have in common is said once
					same := []string{strings.SplitN(said[i], ": ", 2)[0]}
					what := strings.SplitN(said[i], ": ", 2)[1]
					for i++; i < len(said) && strings.SplitN(said[i], ": ", 2)[1] == what; i++ {
						same = append(same, strings.SplitN(said[i], ": ", 2)[0])
					}
					fmt.Fprintf(&out, "    %s: %s\n", strings.Join(same, ", "), what)
				}
			}
		}
	}
	fmt.Fprintln(&out, "signed by an Order")
	for _, o := range orders() {
		s := State{Form: FormCertificateRequest, Approver: ApproveAuto, Issuer: IssuerReady, Order: &o.order}
		fmt.Fprintf(&out, "  %s\n    new: %s\n", o.name, describe(Decide(s)))
		s.Approved = true
		fmt.Fprintf(&out, "    approved: %s\n", describe(Decide(s)))
	}
	golden.Check(t, "decide.txt", out.String())
}

func describe(a Action) string {
	text := a.Step.String()
	if a.Approve {
		text = "approve, " + text
	}
	if a.Reason != "" {
		text += " " + a.Reason + " (" + a.Message + ")"
	}
	if a.Class != "" {
		text += ", class " + string(a.Class)
	}
	if a.Retry {
		text += ", again with back-off"
	}
	if !a.Wake.IsZero() {
		text += ", until " + a.Wake.Format(time.RFC3339)
	}
	return text
}
