package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/clientside/preflight"
)

// Node is an object of the chain, and what was made for it.
type Node struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// About says what the object is for, if its own name tells people nothing.
	About    string `json:"about,omitempty"`
	Outcome  string `json:"outcome"`
	State    string `json:"state"`
	Reason   string `json:"reason,omitempty"`
	Children []Node `json:"children,omitempty"`
}

// Report describes the state of a Certificate or of a request, and the reason.
type Report struct {
	Node

	// Issuer is the issuer that it names; without State if that was not read.
	Issuer Node `json:"issuer,omitzero"`
	// Health is the health of a Certificate.
	Health Health `json:"health,omitempty"`
	// Volume is the volume of a Pod that the certificate is in.
	Volume string `json:"volume,omitempty"`
	// Secret is the Secret of a Certificate, and Names the names that it asks for.
	Secret string   `json:"secret,omitempty"`
	Names  []string `json:"names,omitempty"`
	// Expires and Renews are when the certificate in the Secret ends, and when the next one is asked for.
	Expires *metav1.Time `json:"expires,omitempty"`
	Renews  *metav1.Time `json:"renews,omitempty"`
	// CAExpires is when a CA above the certificate expires, if that is sooner. Tries is when the next try is, if the
	// controller has written a time.
	CAExpires *metav1.Time `json:"caExpires,omitempty"`
	Tries     *metav1.Time `json:"nextTryTime,omitempty"`
	// Since is when the present state began, if that is known.
	Since *metav1.Time `json:"since,omitempty"`
	// Announced are the fields that cannot work as a public CA has announced it; filled in by those who ask for one
	// Certificate.
	Announced []preflight.Announced `json:"announced,omitempty"`
	// CA is what is known of the CA of a CA issuer.
	CA *Succession `json:"ca,omitempty"`

	Trouble
}

// Trouble is what is in the way of a certificate; empty if nothing is.
type Trouble struct {
	// Class is the kind of trouble in a word or two, the same for all certificates with such a trouble: a problem type
	// of ACME, a class of failure, or words of this package.
	Class string `json:"class,omitempty"`
	// Cause is what is wrong.
	Cause string `json:"cause,omitempty"`
	// NextTry is when it is tried again: a time, or in words.
	NextTry string `json:"nextTry,omitempty"`
	// WhatToDo is what helps.
	WhatToDo string `json:"whatToDo,omitempty"`
	// Command is what to run first.
	Command string `json:"command,omitempty"`

	// subject is what the cause is about, such as a host.
	subject string
}

// Cluster is what is known of a cluster, or of a namespace of it.
type Cluster struct {
	now      time.Time
	children map[types.UID][]metav1.Object
	issuers  map[string]certmanagerv1.GenericIssuer
	shared   map[types.NamespacedName]string // the names of the Certificates, where several name one Secret
	unread   map[string]bool
}

// NewCluster returns a Cluster of the objects that were read. The kinds in unread could not be read.
func NewCluster(objects []metav1.Object, unread map[string]bool, now time.Time) *Cluster {
	w := &Cluster{
		now: now, unread: unread, children: map[types.UID][]metav1.Object{},
		issuers: map[string]certmanagerv1.GenericIssuer{}, shared: map[types.NamespacedName]string{},
	}
	secrets := map[types.NamespacedName][]*certmanagerv1.Certificate{}
	for _, o := range objects {
		switch o := o.(type) {
		case certmanagerv1.GenericIssuer:
			w.issuers[Name(KindOf(o), o.GetNamespace(), o.GetName())] = o
		case *certmanagerv1.Certificate:
			key := secretOf(o)
			secrets[key] = append(secrets[key], o)
		}
		for _, owner := range o.GetOwnerReferences() {
			w.children[owner.UID] = append(w.children[owner.UID], o)
		}
	}
	for secret, claims := range secrets {
		if len(claims) > 1 {
			w.shared[secret] = names(claims)
		}
	}
	return w
}

// At returns the same Cluster at another time.
func (w *Cluster) At(now time.Time) *Cluster {
	at := *w
	at.now = now
	return &at
}

// Certificate explains a Certificate.
func (w *Cluster) Certificate(crt *certmanagerv1.Certificate) Report {
	r := Report{
		Node: NodeOf(crt), Issuer: w.issuerNode(crt.Spec.IssuerRef, crt.Namespace),
		Expires: crt.Status.NotAfter, Renews: crt.Status.RenewalTime, Secret: crt.Spec.SecretName, Names: namesOf(crt),
	}
	if issuing := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionIssuing); issuing != nil {
		r.Since = issuing.LastTransitionTime
	}
	if request := w.requestOf(crt); request != nil {
		r.Children = []Node{w.tree(request)}
	}
	above := w.above(crt)
	r.Trouble = w.troubleOf(crt, above)
	r.Health = w.health(crt, r.Trouble, above)
	r.Tries = crt.Status.NextTry
	if above != nil && r.Expires != nil && above.caEnds.Before(r.Expires.Time) {
		r.CAExpires = &metav1.Time{Time: above.caEnds}
	}
	if r.Health == Late && r.Tries != nil && r.Expires != nil && !r.Tries.Before(r.Expires) {
		r.WhatToDo = soonerThan(r.Trouble)
	}
	return r
}

// Announced returns the fields of a Certificate that cannot work as its CA has announced it; see preflight.OfCalendar.
func (w *Cluster) Announced(crt *certmanagerv1.Certificate, withWindows bool) []preflight.Announced {
	issuer, _ := w.issuer(crt.Spec.IssuerRef, crt.Namespace)
	if issuer == nil || issuer.GetSpec().ACME == nil {
		return nil
	}
	all := preflight.OfCalendar(crt, issuer.GetSpec().ACME, w.now, withWindows)
	if owner := cause.OwnerOf(crt); owner != "" {
		for i := range all {
			all[i].WhatToDo += ". The Certificate is made for " + owner + ": change the annotations of " + owner
		}
	}
	return all
}

// Request explains a CertificateRequest that no Certificate has made.
func (w *Cluster) Request(cr *certmanagerv1.CertificateRequest) Report {
	r := Report{Node: w.tree(cr), Issuer: w.issuerNode(cr.Spec.IssuerRef, cr.Namespace), Since: &cr.CreationTimestamp}
	f := w.ofRequest(cr)
	r.Trouble = f.trouble(w.now)
	if Describe(cr).Outcome == Failed {
		r.NextTry = "never: a CertificateRequest that is finished is not looked at again"
	}
	return r
}

// SigningRequest explains a CertificateSigningRequest.
func (w *Cluster) SigningRequest(csr *certificatesv1.CertificateSigningRequest) Report {
	kind, namespace, name := SignerOf(csr.Spec.SignerName)
	ref := cmmeta.IssuerReference{Kind: kind, Name: name}
	r := Report{Node: w.tree(csr), Issuer: w.issuerNode(ref, namespace), Since: &csr.CreationTimestamp}
	state := Describe(csr)
	order := w.orderOf(csr)
	issuer, missing := w.issuer(ref, namespace)
	switch {
	case state.Outcome == Issued:
	case name == "":
		r.Trouble = Trouble{
			Cause:    fmt.Sprintf("the signerName %q names no issuer", csr.Spec.SignerName),
			WhatToDo: "Create the CertificateSigningRequest anew with a signerName as in issuers." + certmanagerv1.GroupName + "/NAMESPACE.NAME", NextTry: "never",
		}
	case state.Outcome == Failed:
		r.Trouble = Trouble{
			Cause: state.Words(), NextTry: "never: a CertificateSigningRequest that is finished is not looked at again",
			WhatToDo: "Correct what the cause names, and create the CertificateSigningRequest anew",
		}
	case order != nil:
		f := found{Scene: cause.Scene{Issuer: issuer}}
		w.ofOrder(&f, order)
		r.Trouble = f.trouble(w.now)
	case missing || signsNot(issuer) != nil:
		f := w.ofIssuer(r.Issuer, issuer)
		r.Trouble = f.trouble(w.now)
	case state.State == "new":
		r.Trouble = Trouble{
			Cause: "the CertificateSigningRequest is not approved", NextTry: "as soon as it is approved",
			WhatToDo: "kubectl certificate approve " + csr.Name,
		}
	}
	return r
}

// NodeOf returns the Node of an object, without what was made for it.
func NodeOf(o metav1.Object) Node {
	d := Describe(o)
	n := Node{
		Kind: KindOf(o), Namespace: o.GetNamespace(), Name: o.GetName(),
		Outcome: d.Outcome.String(), State: d.State, Reason: d.Reason,
	}
	if own := Name(n.Kind, n.Namespace, n.Name); own != d.Name {
		n.About = d.Name
	}
	return n
}

// tree is an object with what was made for it.
func (w *Cluster) tree(o metav1.Object) Node {
	n := NodeOf(o)
	for _, child := range w.below(o) {
		n.Children = append(n.Children, w.tree(child))
	}
	return n
}

// below is what an object owns, by what it is about.
func (w *Cluster) below(o metav1.Object) []metav1.Object {
	owned := slices.Clone(w.children[o.GetUID()])
	slices.SortFunc(owned, func(x, y metav1.Object) int {
		return cmp.Or(strings.Compare(Describe(x).Name, Describe(y).Name), strings.Compare(x.GetName(), y.GetName()))
	})
	return owned
}

// Requests are those of a Certificate, the latest last.
func (w *Cluster) Requests(crt *certmanagerv1.Certificate) (requests []*certmanagerv1.CertificateRequest) {
	for _, child := range w.children[crt.UID] {
		if r, is := child.(*certmanagerv1.CertificateRequest); is {
			requests = append(requests, r)
		}
	}
	slices.SortFunc(requests, func(x, y *certmanagerv1.CertificateRequest) int {
		return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), strings.Compare(x.Name, y.Name))
	})
	return requests
}

// requestOf is the latest request of a Certificate; nil if there is none.
func (w *Cluster) requestOf(crt *certmanagerv1.Certificate) *certmanagerv1.CertificateRequest {
	requests := w.Requests(crt)
	if len(requests) == 0 {
		return nil
	}
	return requests[len(requests)-1]
}

// issuer is what a reference names; nil with missing if it does not exist, and nil without if it was not read.
func (w *Cluster) issuer(ref cmmeta.IssuerReference, namespace string) (issuer certmanagerv1.GenericIssuer, missing bool) {
	if ref.IsExternal() {
		return nil, false
	}
	kind := ref.KindOrDefault()
	issuer = w.issuers[Name(kind, ref.NamespaceFrom(namespace), ref.Name)]
	return issuer, issuer == nil && !w.unread[kind]
}

func (w *Cluster) issuerNode(ref cmmeta.IssuerReference, namespace string) Node {
	issuer, missing := w.issuer(ref, namespace)
	if issuer != nil {
		return NodeOf(issuer)
	}
	n := Node{Kind: ref.KindOrDefault(), Namespace: ref.NamespaceFrom(namespace), Name: ref.Name}
	if missing {
		n.Outcome, n.State = Failed.String(), "does not exist"
	}
	return n
}
