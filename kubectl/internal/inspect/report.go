package inspect

import (
	"cmp"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"chancery.dev/internal/cli/terminal"
	"chancery.dev/internal/pki"
)

// Result is what a check has found.
type Result string

// The results.
const (
	// OK says that all is as it should be.
	OK Result = "ok"
	// Wrong says that something has to be done.
	Wrong Result = "wrong"
	// Unknown says that it could not be found out.
	Unknown Result = "unknown"
	// None says that there is nothing to check.
	None Result = "none"
)

// What checks are about.
const (
	aboutNames      = "names"
	aboutKey        = "private key"
	aboutValidity   = "validity"
	aboutChain      = "chain"
	aboutTrust      = "trust"
	aboutRevocation = "revocation"
	aboutRenewal    = "renewal"
	aboutSignature  = "signature"
	aboutIssued     = "certificate"
)

// Check is one question about what was inspected, and its answer.
type Check struct {
	// About is what was checked.
	About  string `json:"about"`
	Result Result `json:"result"`
	// Text says what was found.
	Text string `json:"text"`
	// WhatToDo is what helps; empty if nothing is wrong.
	WhatToDo string `json:"whatToDo,omitempty"`
}

// Report is what was found out.
type Report struct {
	// Source is where the certificates or the request come from.
	Source string `json:"source"`
	// Certificate is the one that the Secret or the request belongs to.
	Certificate string `json:"certificate,omitempty"`
	// Certificates of the chain, as they stand.
	Certificates []Certificate `json:"certificates,omitempty"`
	Request      *Request      `json:"request,omitempty"`
	// Renewal is when the ACME server wants the certificate to be renewed (RFC 9773).
	Renewal *Renewal `json:"renewal,omitempty"`
	Checks  []Check  `json:"checks"`

	now time.Time
}

// Certificate is what one certificate says.
type Certificate struct {
	Subject   string      `json:"subject"`
	Issuer    string      `json:"issuer"`
	Names     []string    `json:"names,omitempty"`
	NotBefore metav1.Time `json:"notBefore"`
	NotAfter  metav1.Time `json:"notAfter"`
	Key       string      `json:"key"`
	CA        bool        `json:"ca,omitempty"`
	Serial    string      `json:"serial"`
	// SHA256 is the fingerprint: the SHA-256 of the whole certificate.
	SHA256 string `json:"sha256"`
}

// Request is what a request for a certificate says.
type Request struct {
	Subject string   `json:"subject"`
	Names   []string `json:"names,omitempty"`
	Key     string   `json:"key"`
	CA      bool     `json:"ca,omitempty"`
	Usages  []string `json:"usages,omitempty"`
}

func certificateOf(c *x509.Certificate) Certificate {
	names, err := pki.CertificateAltNames(c)
	sum := sha256.Sum256(c.Raw)
	return Certificate{
		Subject: subject(c.Subject.String(), "no subject"), Issuer: subject(c.Issuer.String(), "no name"), Names: namesOf(names, err),
		NotBefore: metav1.NewTime(c.NotBefore), NotAfter: metav1.NewTime(c.NotAfter), Key: keyOf(c.PublicKey), CA: c.IsCA,
		Serial: hex.EncodeToString(c.SerialNumber.Bytes()), SHA256: hex.EncodeToString(sum[:]),
	}
}

func subject(name, none string) string { return cmp.Or(name, "("+none+")") }

func namesOf(n pki.AltNames, err error) []string {
	names := slices.Concat(n.DNSNames, n.IPAddresses, n.URIs, n.EmailAddresses)
	for _, other := range n.OtherNames {
		names = append(names, other.OID+"="+other.Value)
	}
	if err != nil {
		names = append(names, "(names of other types cannot be read)")
	}
	return names
}

func keyOf(public crypto.PublicKey) string {
	facts := pki.FactsOfKey(public)
	switch {
	case facts.Algorithm == "":
		return fmt.Sprintf("unknown (%T)", public)
	case facts.Size == 0:
		return facts.Algorithm
	default:
		return fmt.Sprintf("%s %d", facts.Algorithm, facts.Size)
	}
}

// add adds a check.
func (r *Report) add(about string, result Result, whatToDo, format string, args ...any) {
	r.Checks = append(r.Checks, Check{About: about, Result: result, WhatToDo: whatToDo, Text: terminal.Line(fmt.Sprintf(format, args...))})
}

// print writes the report for people: each certificate, then the checks, what is wrong last.
func (r *Report) print(out io.Writer) {
	fmt.Fprint(out, r.Source)
	if r.Certificate != "" {
		fmt.Fprint(out, ", of ", r.Certificate)
	}
	fmt.Fprintln(out)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(out, "   %-13s%s\n", name+":", terminal.Line(fmt.Sprintf(format, args...)))
	}
	for i, c := range r.Certificates {
		fmt.Fprintf(out, "%d  %s\n", i+1, terminal.Line(c.Subject))
		line("issuer", "%s", c.Issuer)
		if len(c.Names) > 0 {
			line("names", "%s", strings.Join(c.Names, ", "))
		}
		line("valid", "%s to %s, %s", stamp(c.NotBefore.Time), stamp(c.NotAfter.Time), distance(c.NotAfter.Time, r.now))
		line("key", "%s", c.Key)
		line("serial", "%s", c.Serial)
		line("sha256", "%s", c.SHA256)
	}
	if q := r.Request; q != nil {
		fmt.Fprintf(out, "   %s\n", terminal.Line(q.Subject))
		line("names", "%s", cmp.Or(strings.Join(q.Names, ", "), "(none)"))
		line("key", "%s", q.Key)
		line("usages", "%s", cmp.Or(strings.Join(q.Usages, ", "), "(none)"))
		line("ca", "%t", q.CA)
	}
	fmt.Fprintln(out)
	order := []Result{None, OK, Unknown, Wrong}
	checks := slices.Clone(r.Checks)
	slices.SortStableFunc(checks, func(a, b Check) int { return cmp.Compare(slices.Index(order, a.Result), slices.Index(order, b.Result)) })
	for _, c := range checks {
		fmt.Fprintf(out, "%-8s %-12s %s\n", c.Result, c.About+":", c.Text)
		if c.WhatToDo != "" {
			fmt.Fprintf(out, "%-8s %-12s %s\n", "", "what to do:", c.WhatToDo)
		}
	}
}

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// distance says how far an end is.
func distance(end, now time.Time) string {
	if end.After(now) {
		return "expires in " + duration.HumanDuration(end.Sub(now))
	}
	return "expired " + duration.HumanDuration(now.Sub(end)) + " ago"
}
