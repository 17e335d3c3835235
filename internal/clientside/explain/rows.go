package explain

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Row is a Certificate in the list, or a volume of a Pod with a certificate of its own.
type Row struct {
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	Volume    string       `json:"volume,omitempty"`
	Expires   *metav1.Time `json:"expires,omitempty"`
	Renews    *metav1.Time `json:"renews,omitempty"`
	Issuer    string       `json:"issuer"`
	State     string       `json:"state"`
	Health    Health       `json:"health,omitempty"`
	CAExpires *metav1.Time `json:"caExpires,omitempty"`
	Tries     *metav1.Time `json:"nextTryTime,omitempty"`
	Secret    string       `json:"secret"`
	Names     []string     `json:"names,omitempty"`

	Trouble
}

// Filter says which Certificates to list; the zero value lists all.
type Filter struct {
	// Expiring lists what ends within this time, NotReady what is not ready or has expired, and Pods in trouble; with
	// both, either is enough.
	Expiring time.Duration
	NotReady bool
	// Issuer is a name, or kind/name in any case.
	Issuer string
}

// Rows returns the Certificates that the filter takes, those that end first on top.
func Rows(reports []Report, f Filter, now time.Time) []Row {
	var rows []Row
	for _, r := range reports {
		if f.takes(r, now) {
			rows = append(rows, rowOf(r, now))
		}
	}
	slices.SortFunc(rows, byExpiry)
	return rows
}

// PodRows returns the volumes of Pods that the filter takes: those in trouble first, then those that wait.
func PodRows(reports []Report, f Filter, now time.Time) []Row {
	rank := func(r Report) int {
		switch {
		case r.Cause != "":
			return 0
		case r.Outcome != Issued.String():
			return 1
		default:
			return 2
		}
	}
	reports = slices.DeleteFunc(slices.Clone(reports), func(r Report) bool { return !f.takes(r, now) })
	slices.SortFunc(reports, func(x, y Report) int {
		return cmp.Or(cmp.Compare(rank(x), rank(y)), strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name), strings.Compare(x.Volume, y.Volume))
	})
	var rows []Row
	for _, r := range reports {
		rows = append(rows, rowOf(r, now))
	}
	return rows
}

// Until is when clients stop trusting the certificate: when it expires, or a CA above it.
func (r Row) Until() *metav1.Time {
	if r.CAExpires != nil {
		return r.CAExpires
	}
	return r.Expires
}

// WorstFirst returns Certificates by health, the worst first, and then by until when clients trust them.
func WorstFirst(reports []Report, now time.Time) []Row {
	var rows []Row
	for _, r := range reports {
		rows = append(rows, rowOf(r, now))
	}
	slices.SortFunc(rows, func(x, y Row) int {
		return cmp.Or(cmp.Compare(x.Health.rank(), y.Health.rank()), ends(x.Until()).Compare(ends(y.Until())), byExpiry(x, y))
	})
	return rows
}

func byExpiry(x, y Row) int {
	return cmp.Or(ends(x.Expires).Compare(ends(y.Expires)), strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name))
}

func (f Filter) takes(r Report, now time.Time) bool {
	if f.Issuer != "" && f.Issuer != r.Issuer.Name && !strings.EqualFold(f.Issuer, r.Issuer.Kind+"/"+r.Issuer.Name) {
		return false
	}
	if f.Expiring == 0 && !f.NotReady {
		return true
	}
	soon := f.Expiring != 0 && r.Expires != nil && r.Expires.Time.Before(now.Add(f.Expiring))
	return soon || f.NotReady && (r.Outcome != Issued.String() || expired(r, now) || r.Volume != "" && r.Cause != "")
}

func rowOf(r Report, now time.Time) Row {
	row := Row{
		Namespace: r.Namespace, Name: r.Name, Volume: r.Volume, Expires: r.Expires, Renews: r.Renews, Issuer: r.Issuer.Kind + "/" + r.Issuer.Name,
		State: r.State, Health: r.Health, CAExpires: r.CAExpires, Tries: r.Tries, Secret: r.Secret, Names: r.Names, Trouble: r.Trouble,
	}
	if expired(r, now) {
		row.State = "expired, " + r.State
	}
	return row
}

func expired(r Report, now time.Time) bool {
	return r.Expires != nil && r.Expires.Time.Before(now)
}

// ends is when a certificate ends; one that there is not yet has ended long ago.
func ends(at *metav1.Time) time.Time {
	if at == nil {
		return time.Time{}
	}
	return at.Time
}
