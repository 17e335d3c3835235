package explain

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/cli/terminal"
	"chancery.dev/internal/fault"
)

// IssuerRow is an Issuer or ClusterIssuer in a list, with what uses it.
type IssuerRow struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Type is ACME, CA, SelfSigned, Vault or Venafi, and Server what it asks: a URL, or the Secret of a CA.
	Type   string `json:"type"`
	Server string `json:"server,omitempty"`
	State  string `json:"state"`
	// Account is the URL of its ACME account. ParkedUntil is until when the CA wants no requests of that account: only
	// the controller knows, so whoever can ask the controller fills it in.
	Account     string       `json:"account,omitempty"`
	ParkedUntil *metav1.Time `json:"parkedUntil,omitempty"`
	// CANotAfter is when the first certificate of the CA expires, for a CA issuer.
	CANotAfter *metav1.Time `json:"caNotAfter,omitempty"`
	// Challenges are those that have not ended.
	Challenges ChallengeCounts `json:"challenges"`
	// Certificates are those that name it, NotReady how many of them are not ready.
	Certificates int `json:"certificates"`
	NotReady     int `json:"notReady"`
	// NextRenewal is when the next of them is renewed, and NextRenewalOf its namespace and name.
	NextRenewal   *metav1.Time `json:"nextRenewal,omitempty"`
	NextRenewalOf string       `json:"nextRenewalOf,omitempty"`

	Trouble
}

// ChallengeCounts counts Challenges by their Place.
type ChallengeCounts struct {
	// InFlight have a slot, Queued were not started, and Parked have given their slot to others while they wait.
	InFlight int `json:"inFlight"`
	Queued   int `json:"queued"`
	Parked   int `json:"parked"`
}

// IssuerRows lists the issuers among objects, with what their Certificates and Challenges among objects tell; by
// namespace and name, ClusterIssuers first.
func IssuerRows(objects []metav1.Object, now time.Time) []IssuerRow {
	rows := map[string]*IssuerRow{}
	for _, o := range objects {
		if issuer, is := o.(certmanagerv1.GenericIssuer); is {
			rows[Name(KindOf(o), o.GetNamespace(), o.GetName())] = issuerRow(issuer, now)
		}
	}
	of := func(ref cmmeta.IssuerReference, namespace string) *IssuerRow {
		if ref.IsExternal() {
			return nil
		}
		return rows[Name(ref.KindOrDefault(), ref.NamespaceFrom(namespace), ref.Name)]
	}
	for _, o := range objects {
		switch o := o.(type) {
		case *certmanagerv1.Certificate:
			if row := of(o.Spec.IssuerRef, o.Namespace); row != nil {
				row.count(o)
			}
		case *acmev1.Challenge:
			if row := of(o.Spec.IssuerRef, o.Namespace); row != nil {
				row.Challenges.count(o)
			}
		}
	}
	out := make([]IssuerRow, 0, len(rows))
	for _, row := range rows {
		out = append(out, *row)
	}
	slices.SortFunc(out, func(x, y IssuerRow) int {
		return cmp.Or(strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name))
	})
	return out
}

func issuerRow(issuer certmanagerv1.GenericIssuer, now time.Time) *IssuerRow {
	node := NodeOf(issuer)
	row := &IssuerRow{Kind: node.Kind, Namespace: node.Namespace, Name: node.Name, State: node.State}
	row.Type, row.Server = serverOf(issuer.GetSpec())
	if acme := issuer.GetStatus().ACME; acme != nil {
		row.Account = acme.URI
	}
	if ca := issuer.GetStatus().CA; ca != nil && issuer.GetSpec().CA != nil {
		row.CANotAfter = ca.NotAfter
	}
	row.Trouble = ofIssuersCA(Name(node.Kind, node.Namespace, node.Name), issuer, now)
	if notReady(issuer) != nil {
		f := (&Cluster{}).ofIssuer(node, issuer)
		row.Trouble = f.trouble(now)
	}
	return row
}

// serverOf names the type of an issuer, and what it asks.
func serverOf(spec *certmanagerv1.IssuerSpec) (is, server string) {
	switch {
	case spec.ACME != nil:
		return "ACME", spec.ACME.Server
	case spec.CA != nil:
		return "CA", "Secret " + spec.CA.SecretName
	case spec.SelfSigned != nil:
		return "SelfSigned", ""
	case spec.Vault != nil:
		return "Vault", spec.Vault.Server
	case spec.Venafi != nil && spec.Venafi.TPP != nil:
		return "Venafi", spec.Venafi.TPP.URL
	case spec.Venafi != nil:
		return "Venafi", "zone " + spec.Venafi.Zone
	default:
		return "none", ""
	}
}

func (r *IssuerRow) count(crt *certmanagerv1.Certificate) {
	r.Certificates++
	if Describe(crt).Outcome != Issued {
		r.NotReady++
	}
	at := crt.Status.RenewalTime
	if at != nil && (r.NextRenewal == nil || at.Before(r.NextRenewal)) {
		r.NextRenewal, r.NextRenewalOf = at, crt.Namespace+"/"+crt.Name
	}
}

func (t *ChallengeCounts) count(c *acmev1.Challenge) {
	if c.Status.State.IsFinal() {
		return
	}
	switch PlaceOf(c) {
	case InFlight:
		t.InFlight++
	case Parked:
		t.Parked++
	case Queued:
		t.Queued++
	}
}

// Park notes until when the CA of an issuer wants no requests of its account.
func (r *IssuerRow) Park(until time.Time, why string) {
	at := metav1.NewTime(until)
	r.ParkedUntil = &at
	if r.Cause == "" {
		r.Cause, r.NextTry = "the CA wants no requests of this account: "+terminal.Line(why), until.UTC().Format(time.RFC3339)
		r.WhatToDo = (&cause.Scene{Cause: cause.New(cause.Class(fault.ClassRateLimited), "", "", "")}).Cure()
	}
}
