// Package shim decides which Certificates an Ingress, a Gateway or a ListenerSet asks for by its annotations. The
// package also decides what happens to the Certificates that the same object asked for earlier (spec §6).
//
// All three kinds are converted to one type, Object. The package is pure: it reads no cluster and writes nothing.
package shim

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/kube/stub"
)

// The reasons of events about an Object (spec §6.2).
const (
	ReasonCreated   = "CreateCertificate"
	ReasonUpdated   = "UpdateCertificate"
	ReasonDeleted   = "DeleteCertificate"
	ReasonBadConfig = "BadConfig"
	// ReasonTooLarge is an addition.
	ReasonTooLarge = "TooLarge"
)

// Settings are what a user can set.
type Settings struct {
	// DefaultIssuer is for an Ingress with one of AutoAnnotations; its group is for all objects.
	DefaultIssuer cmmeta.IssuerReference
	// AutoAnnotations ask, when they are true, for a certificate by DefaultIssuer.
	AutoAnnotations []string
	// ExtraAnnotations are copied to Certificates.
	ExtraAnnotations []string
	// ExtraProtocols are protocols of listeners with TLS, beside HTTPS and TLS.
	ExtraProtocols []string
}

// Object is an Ingress, a Gateway or a ListenerSet.
type Object struct {
	// Owner refers to the object, as its Certificates do.
	Owner               metav1.OwnerReference
	Namespace           string
	Labels, Annotations map[string]string
	// Idle says that nothing is done for the object: it is being deleted, or lacks its parent.
	Idle bool
	// TooLarge says which bound the object is above; empty for none. It has no Parts then.
	TooLarge string
	// Parts are the entries of the object that can ask for a certificate.
	Parts []Part
	// Overrides are the annotations of each Certificate that choose how its challenges are solved (spec §6.4).
	Overrides map[string]string
	// Notes say what is wrong and holds nothing up.
	Notes []string
}

// Part is an entry of spec.tls of an Ingress, or a listener.
type Part struct {
	// Where the part is found in the object.
	Where string
	// Hosts that the certificate is for.
	Hosts []string
	// Secrets, of the object's namespace, that the part names.
	Secrets []string
	// Silent says that no certificate is asked for, and that this is in order.
	Silent bool
	// Problem says why no certificate can be made; empty if it can.
	Problem string
}

// State is what can be observed of an Object.
type State struct {
	Object

	Settings Settings
	// Certificates are those that the Object controls, and those that have the name of one of its Secrets.
	Certificates []*certmanagerv1.Certificate
	// Before is the last update of a Certificate, by name.
	Before map[string]Attempt
}

// Action is what to do for an Object.
type Action struct {
	// Create are Certificates to make.
	Create []*certmanagerv1.Certificate
	// Update are Certificates to change.
	Update []Change
	// Delete are Certificates to delete.
	Delete []*certmanagerv1.Certificate
	// Warnings say what is wrong, for events: a few at most.
	Warnings []string
	// TooLarge says which bound the Object is above, for an event; empty for none. Nothing else is done then.
	TooLarge string
	// Wake is when to decide again without an event; zero for never.
	Wake time.Time
}

// Change is an update of a Certificate.
type Change struct {
	Old, New *certmanagerv1.Certificate
	// Fields that differ.
	Fields []string

	// digest of what is wanted.
	digest string
}

// Decide returns what to do for an Object now.
func Decide(s State, now time.Time) Action {
	a := Action{}
	asks := Triggered(s.Annotations, autoOf(s.Owner.Kind, s.Settings))
	switch {
	case s.Idle:
		return a
	case s.TooLarge != "":
		if asks || len(s.Certificates) > 0 {
			a.TooLarge = s.tooLarge(s.TooLarge)
		}
		return a
	}
	wanted, used := map[string]bool{}, setOf(s.Secrets())
	if asks {
		certificates, problems, excess := s.wanted()
		if excess != "" {
			return Action{TooLarge: s.tooLarge(excess)}
		}
		a.Warnings = problems
		if certificates == nil {
			a.Warnings = few(a.Warnings)
			return a
		}
		existing := s.byName()
		for _, crt := range certificates {
			wanted[crt.Name] = true
			s.decideCertificate(existing[crt.Name], crt, now, &a)
		}
		a.Warnings = append(a.Warnings, s.Notes...)
		for _, part := range s.Parts {
			if part.Problem != "" {
				a.Warnings = append(a.Warnings, fmt.Sprintf("Skipped a %s block: %s %s", s.blockName(), part.Where, part.Problem))
			}
		}
		a.Warnings = few(a.Warnings)
	}
	for _, crt := range s.Certificates {
		if s.owns(crt) && crt.DeletionTimestamp == nil && !wanted[crt.Name] && !used[crt.Spec.SecretName] {
			a.Delete = append(a.Delete, crt)
		}
	}
	return a
}

// byName returns the Certificates that there are by their names.
func (s *State) byName() map[string]*certmanagerv1.Certificate {
	out := make(map[string]*certmanagerv1.Certificate, len(s.Certificates))
	for _, crt := range s.Certificates {
		out[crt.Name] = crt
	}
	return out
}

// decideCertificate decides what becomes of a Certificate that is asked for; existing is the one of its name, nil for
// none.
func (s *State) decideCertificate(existing, wanted *certmanagerv1.Certificate, now time.Time, a *Action) {
	switch {
	case existing == nil:
		a.Create = append(a.Create, wanted)
	case existing.DeletionTimestamp != nil: // it is made again when it is gone
	case stub.Is(existing): // it says so itself, and what it is like is not known
	case !s.owns(existing):
		if missing := notCovered(wanted, existing); len(missing) > 0 {
			a.Warnings = append(a.Warnings, s.taken(existing, missing))
		}
	default:
		change, differs := changeOf(existing, wanted)
		if !differs {
			return
		}
		before := s.Before[wanted.Name]
		switch at := before.next(change, now); {
		case before.kept(change): // a write changes nothing: admission has its own idea
			a.Warnings = append(a.Warnings, fought(change))
		case at.After(now):
			a.Warnings = append(a.Warnings, fought(change))
			if a.Wake.IsZero() || at.Before(a.Wake) {
				a.Wake = at
			}
		default:
			a.Update = append(a.Update, change)
		}
	}
}

func (s *State) taken(existing *certmanagerv1.Certificate, missing []string) string {
	of := "was not made from an Ingress or Gateway"
	if owner := metav1.GetControllerOfNoCopy(existing); owner != nil {
		of = fmt.Sprintf("belongs to %s %q", owner.Kind, owner.Name)
	}
	return fmt.Sprintf("Certificate %q %s, and is not for %s, which this %s wants in the same Secret: add these names there, or name another Secret here",
		existing.Name, of, strings.Join(few(missing), ", "), s.Owner.Kind)
}

func fought(c Change) string {
	return fmt.Sprintf("Certificate %q: another writer, or an admission rule, keeps changing %s: put the values on the %s, or stop the other writer",
		c.New.Name, strings.Join(c.Fields, ", "), metav1.GetControllerOfNoCopy(c.New).Kind)
}

func (s *State) owns(crt *certmanagerv1.Certificate) bool {
	owner := metav1.GetControllerOfNoCopy(crt)
	return owner != nil && owner.UID == s.Owner.UID
}

// Kept returns the updates to remember, of those in Before: the ones of Certificates that exist.
func (s *State) Kept() map[string]Attempt {
	out := make(map[string]Attempt, len(s.Before))
	for _, crt := range s.Certificates {
		if before, updated := s.Before[crt.Name]; updated {
			out[crt.Name] = before
		}
	}
	return out
}

func (s *State) blockName() string {
	if s.Owner.Kind == KindIngress {
		return "TLS"
	}
	return "listener"
}

// Secrets returns the names of all Secrets that an Object names, each once. It includes parts that no certificate can
// be made for.
func (o *Object) Secrets() []string {
	var out []string
	for _, part := range o.Parts {
		out = append(out, part.Secrets...)
	}
	return unique(out)
}

// Attempt is an update that was made.
type Attempt struct {
	// Digest of what was wanted.
	Digest string
	// Version of the Certificate that the API server has answered.
	Version string
	// Writes in a row that wanted the same.
	Writes int
	// At is when the last one was made.
	At time.Time
}

const (
	// freeWrites in a row want the same without a pause: two people may have edited a Certificate.
	freeWrites = 2
	// firstPause doubles with each further write, up to longestPause.
	firstPause, longestPause = 10 * time.Second, time.Hour
)

// Next returns the attempt after a change was written: the change's New is what the API server has answered.
func (b Attempt) Next(c Change, now time.Time) Attempt {
	next := Attempt{Digest: c.digest, Version: c.New.ResourceVersion, Writes: 1, At: now}
	if b.Digest == next.Digest && now.Sub(b.At) < 2*longestPause {
		next.Writes += b.Writes
	}
	return next
}

// next returns when a change may be written: at once, unless others keep undoing the same change.
func (b Attempt) next(c Change, now time.Time) time.Time {
	if b.Writes < freeWrites || b.Digest != c.digest {
		return now
	}
	return b.At.Add(min(firstPause<<min(b.Writes-freeWrites, 16), longestPause))
}

// kept reports whether the Certificate is what the API server has answered when the same change was written last.
func (b Attempt) kept(c Change) bool {
	return b.Writes > 0 && b.Version == c.Old.ResourceVersion && b.Digest == c.digest
}
