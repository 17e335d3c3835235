// Package notice is the pure decision which CloudEvent about a Certificate is to be sent next: issued, failed, late or
// revoked.
//
// What was told is kept in status.told of the Certificate, so no event is sent twice after a restart, unless the
// process ended between the answer of the receiver and the write. The identifier of an event is the same each time, so
// receivers can tell. It sends nothing: internal/cloudevents does.
package notice

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/machine/revocation"
)

// Type is the type of an event (CloudEvents 1.0, context attribute type).
type Type string

// The types of events.
const (
	// Issued: a certificate is in the Secret.
	Issued Type = "dev.chancery.certificate.issued"
	// Failed: an issuance has failed, and is tried again later.
	Failed Type = "dev.chancery.certificate.failed"
	// Late: the time of the renewal has passed, and there is no new certificate.
	Late Type = "dev.chancery.certificate.late"
	// Revoked: the CA has revoked a certificate.
	Revoked Type = "dev.chancery.certificate.revoked"
)

const (
	// lateAfter is how long after its time a renewal is late, at most; it is a twentieth of the life of the certificate
	// where that is less.
	lateAfter = 24 * time.Hour
	// recent is how far before the start of the process a change of an unknown Certificate may be to be told: what
	// another process did not live to tell. Some CAs date their certificates back by an hour.
	recent = 2 * time.Hour
	// Patience is how long an event is sent again and again.
	Patience = 24 * time.Hour
)

// State is what is known.
type State struct {
	Certificate *certmanagerv1.Certificate
	// Began is when the process began.
	Began time.Time
	// Kept is what this process has told, for a Certificate without status.told: an older custom resource definition
	// does not know the field, and the API server drops it. Nil if the process has told nothing.
	Kept *certmanagerv1.CertificateTold
}

// Event is an event to send.
type Event struct {
	// ID is the same for the same event.
	ID   string
	Type Type
	// Time of what the event tells of.
	Time time.Time
	// Data says more.
	Data Data
	// Told is the status to write once the event is delivered, or given up.
	Told *certmanagerv1.CertificateTold
}

// Data are the details of an event. Nothing in it is secret.
type Data struct {
	Namespace   string                 `json:"namespace"`
	Name        string                 `json:"name"`
	SecretName  string                 `json:"secretName"`
	Issuer      cmmeta.IssuerReference `json:"issuer"`
	Names       []string               `json:"names,omitempty"`
	Revision    *int                   `json:"revision,omitempty"`
	NotBefore   *metav1.Time           `json:"notBefore,omitempty"`
	NotAfter    *metav1.Time           `json:"notAfter,omitempty"`
	RenewalTime *metav1.Time           `json:"renewalTime,omitempty"`
	// RenewedLate says of a certificate that was issued that its renewal was late.
	RenewedLate bool `json:"renewedLate,omitempty"`
	// Reason, Message and Attempts say why an issuance has failed, and how many in a row have.
	Reason   string `json:"reason,omitempty"`
	Message  string `json:"message,omitempty"`
	Attempts *int   `json:"attempts,omitempty"`
	// Serial of the certificate that was revoked, in hexadecimal.
	Serial string `json:"serial,omitempty"`
}

// Action is what to do.
type Action struct {
	// Event to send; nil for none.
	Event *Event
	// Known is the status.told to write if Event cannot be sent at once; nil if the Certificate has one. Without it, a
	// process that starts hours later would take Event for old, and would not send it.
	Known *certmanagerv1.CertificateTold
	// Wake is when to decide again without a change; zero for never.
	Wake time.Time
}

// Decide says which event is next. It is total.
func Decide(s State, now time.Time) Action {
	crt := s.Certificate
	if crt == nil || crt.DeletionTimestamp != nil {
		return Action{}
	}
	told, known := s.told()
	a := s.next(told, now)
	if a.Event != nil && !known {
		a.Known = &told
	}
	return a
}

// next says which event is next after what was told.
func (s State) next(told certmanagerv1.CertificateTold, now time.Time) Action {
	crt, late := s.Certificate, lateAt(s.Certificate)
	switch {
	case crt.Status.LastFailureTime != nil && !crt.Status.LastFailureTime.Equal(told.FailureTime):
		return Action{Event: s.failed(told)}
	case revoked(crt).Serial != told.Revoked && revoked(crt).Outcome == revocation.Revoked:
		return Action{Event: s.revoked(told)}
	case !same(crt.Status.Revision, told.Revision) && crt.Status.Revision != nil:
		return Action{Event: s.issued(told)}
	case late.IsZero() || same(crt.Status.Revision, told.Late):
		return Action{}
	case now.Before(late):
		return Action{Wake: late}
	default:
		return Action{Event: s.late(told)}
	}
}

// told is what was told of the Certificate, and whether that is known. Where it is not, all is taken for told that
// happened long before the process began: with the first start, nobody wants to hear of all certificates that there
// are.
func (s State) told() (told certmanagerv1.CertificateTold, known bool) {
	if told := cmp.Or(s.Certificate.Status.Told, s.Kept); told != nil {
		return *told.DeepCopy(), true
	}
	since := s.Began.Add(-recent)
	if at := s.Certificate.Status.NotBefore; at == nil || at.Time.Before(since) {
		told.Revision = s.Certificate.Status.Revision
	}
	if r := revoked(s.Certificate); r.Time.Before(since) {
		told.Revoked = r.Serial
	}
	return told, false
}

// event begins an event.
func (s State) event(t Type, what any, at time.Time, told certmanagerv1.CertificateTold) *Event {
	crt := s.Certificate
	names := slices.Concat(crt.Spec.DNSNames, crt.Spec.IPAddresses, crt.Spec.URIs, crt.Spec.EmailAddresses)
	if crt.Spec.CommonName != "" && !slices.Contains(names, crt.Spec.CommonName) {
		names = append(names, crt.Spec.CommonName)
	}
	return &Event{
		ID: fmt.Sprintf("%s.%s.%v", crt.UID, t, what), Type: t, Time: at.UTC(), Told: &told,
		Data: Data{
			Namespace: crt.Namespace, Name: crt.Name, SecretName: crt.Spec.SecretName, Issuer: crt.Spec.IssuerRef, Names: names,
			Revision: crt.Status.Revision, NotBefore: crt.Status.NotBefore, NotAfter: crt.Status.NotAfter, RenewalTime: crt.Status.RenewalTime,
		},
	}
}

func (s State) failed(told certmanagerv1.CertificateTold) *Event {
	at := s.Certificate.Status.LastFailureTime
	told.FailureTime = at
	e := s.event(Failed, at.Unix(), at.Time, told)
	e.Data.Attempts = s.Certificate.Status.FailedIssuanceAttempts
	if c := certmanagerv1.FindCertificateCondition(s.Certificate.Status.Conditions, certmanagerv1.CertificateConditionIssuing); c != nil {
		e.Data.Reason, e.Data.Message = c.Reason, c.Message
	}
	return e
}

func (s State) revoked(told certmanagerv1.CertificateTold) *Event {
	r := revoked(s.Certificate)
	told.Revoked = r.Serial
	e := s.event(Revoked, r.Serial, r.Time, told)
	e.Data.Serial, e.Data.Reason = r.Serial, string(r.Reason)
	return e
}

func (s State) issued(told certmanagerv1.CertificateTold) *Event {
	late := told.Late != nil
	told.Revision, told.Late = s.Certificate.Status.Revision, nil
	at := s.Began
	if from := s.Certificate.Status.NotBefore; from != nil {
		at = from.Time
	}
	e := s.event(Issued, *s.Certificate.Status.Revision, at, told)
	e.Data.RenewedLate = late
	return e
}

func (s State) late(told certmanagerv1.CertificateTold) *Event {
	told.Late = s.Certificate.Status.Revision
	return s.event(Late, *s.Certificate.Status.Revision, lateAt(s.Certificate), told)
}

// lateAt is when the renewal of a certificate is late; zero if none is planned.
func lateAt(crt *certmanagerv1.Certificate) time.Time {
	st := crt.Status
	if st.RenewalTime == nil || st.NotBefore == nil || st.NotAfter == nil || st.Revision == nil {
		return time.Time{}
	}
	return st.RenewalTime.Add(min(lateAfter, st.NotAfter.Sub(st.NotBefore.Time)/20))
}

// revoked is what the last revocation has come to; the zero Record without one.
func revoked(crt *certmanagerv1.Certificate) revocation.Record {
	r, _ := revocation.ParseRecord(crt.Annotations[revocation.RecordAnnotation])
	return r
}

func same(a, b *int) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }
