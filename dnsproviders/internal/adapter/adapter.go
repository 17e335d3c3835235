// Package adapter serves the provider protocol, which chancery.dev/internal/solver/dns01/wire defines. lego's DNS
// providers and the writers of internal/native write the records.
//
// The adapter gives a provider only the variables of this provider, unless ambient credentials are allowed. A provider
// of lego looks up the zone and the name of a record in DNS. The adapter answers these look-ups itself, with the zone
// and the name that Chancery has found. The adapter also finds the class of each failure (wire.Class).
package adapter

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-acme/lego/v5/challenge"
	"github.com/go-acme/lego/v5/challenge/dns01"
	legodns "github.com/go-acme/lego/v5/providers/dns"

	"chancery.dev/dnsproviders/internal/catalog"
	"chancery.dev/dnsproviders/internal/native"
	"chancery.dev/internal/solver/dns01/wire"
)

// Adapter implements wire.Handler for one provider and one credential: lego reads
// variables of the process, so that a second one would see those of the first.
type Adapter struct {
	entry  catalog.Entry
	native native.Writer
	lego   challenge.Provider
	stub   *stub
	// written are the records that lego's provider was told to present.
	written map[string]bool
}

var _ wire.Handler = (*Adapter)(nil)

// Capabilities implements wire.Handler.
func (*Adapter) Capabilities() wire.Capabilities {
	c := wire.Capabilities{}
	all, err := catalog.Entries()
	if err != nil {
		return c // configure says it
	}
	for _, e := range all {
		c.Providers = append(c.Providers, e.Name)
	}
	return c
}

// Configure implements wire.Handler.
func (a *Adapter) Configure(ctx context.Context, c wire.Configuration) (wire.Capabilities, error) {
	if a.entry.Name != "" {
		return wire.Capabilities{}, wire.Failed(wire.ClassConfig, "this process is configured already: start another one")
	}
	e, err := catalog.Find(c.Provider)
	if err != nil {
		return wire.Capabilities{}, wire.Failed(wire.ClassConfig, "%w", err)
	}
	variables := maps.Clone(c.Config)
	if variables == nil {
		variables = map[string]string{}
	}
	maps.Copy(variables, c.Secrets)
	if err := e.Check(variables); err != nil {
		return wire.Capabilities{}, wire.Failed(wire.ClassConfig, "%w", err)
	}
	if err := confine(http.DefaultTransport, c.Egress); err != nil {
		return wire.Capabilities{}, wire.Failed(wire.ClassConfig, "%s: %w", e.Name, err)
	}
	if a.native, err = native.New(ctx, e.Name, native.Settings{Variables: variables, Ambient: c.Ambient, Getenv: os.Getenv}); err != nil {
		return wire.Capabilities{}, classify(err, wire.Record{})
	}
	if a.native == nil {
		if err := a.startLego(e, variables, c.Ambient); err != nil {
			return wire.Capabilities{}, err
		}
	}
	a.entry = e
	return wire.Capabilities{Stateful: a.native == nil && e.Stateful}, nil
}

func (a *Adapter) startLego(e catalog.Entry, variables map[string]string, ambient bool) (err error) {
	if !ambient {
		if err := guard(e, variables); err != nil {
			return wire.Failed(wire.ClassConfig, "%w", err)
		}
		forgetMachine()
		variables["AWS_EC2_METADATA_DISABLED"] = "true"
	}
	if a.stub, err = newStub(); err != nil {
		return err
	}
	dns01.SetDefaultClient(dns01.NewClient(&dns01.Options{RecursiveNameservers: []string{a.stub.address}}))
	for name, value := range variables {
		if err := os.Setenv(name, value); err != nil {
			return wire.Failed(wire.ClassConfig, "%s: %q cannot be set", e.Name, name)
		}
	}
	a.lego, err = legodns.NewDNSChallengeProviderByName(e.Name)
	if err != nil {
		return classify(fmt.Errorf("%w (chancery-dns describe %s says what it needs)", err, e.Name), wire.Record{})
	}
	a.written = map[string]bool{}
	return nil
}

// Present implements wire.Handler.
func (a *Adapter) Present(ctx context.Context, r wire.Record) error {
	switch {
	case a.native != nil:
		return classify(a.native.Present(ctx, r), r)
	case a.lego == nil:
		return errNotConfigured
	case a.entry.Stateful && a.written[recordKey(r)]:
		return nil // it would write it twice
	}
	err := a.byLego(ctx, r, a.lego.Present)
	if err == nil {
		a.written[recordKey(r)] = true
	}
	return err
}

// CleanUp implements wire.Handler.
func (a *Adapter) CleanUp(ctx context.Context, r wire.Record) error {
	switch {
	case a.native != nil:
		return classify(a.native.CleanUp(ctx, r), r)
	case a.lego == nil:
		return errNotConfigured
	}
	err := a.byLego(ctx, r, a.lego.CleanUp)
	if err != nil && a.entry.Stateful && !a.written[recordKey(r)] {
		return fmt.Errorf("%w (the process that wrote the record is gone, and with it what this provider remembers: "+
			"remove TXT %s with value %s by hand)", err, r.FQDN, r.Value)
	}
	if err == nil {
		delete(a.written, recordKey(r))
	}
	return err
}

var errNotConfigured = errors.New("configure comes first")

func recordKey(r wire.Record) string { return r.FQDN + " " + r.Value }

// byLego lets lego name and hash the record itself, and sees to it that it comes to the
// same.
func (a *Adapter) byLego(ctx context.Context, r wire.Record, do func(ctx context.Context, domain, token, keyAuth string) error) (err error) {
	if r.KeyAuthorization == "" {
		return wire.Failed(wire.ClassConfig, "%s: lego makes the record's value of the key authorization, which is not known: "+
			"the Challenge does not carry the account's thumbprint; delete its Order to make another", a.entry.Name)
	}
	sum := sha256.Sum256([]byte(r.KeyAuthorization))
	if base64.RawURLEncoding.EncodeToString(sum[:]) != r.Value {
		return wire.Failed(wire.ClassConfig, "%s: the value is not that of the key authorization: the ACME account's key has changed", a.entry.Name)
	}
	a.stub.tell(r)
	dns01.DefaultClient().ClearFqdnCache()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: the provider failed: %v", a.entry.Name, p)
		}
	}()
	return classify(withoutBody(do(ctx, r.Domain, r.Token, r.KeyAuthorization)), r)
}

// forgetMachine drops the variables of the process that may hold credentials. The
// controller passes none on, but behind a socket they are those of a sidecar.
func forgetMachine() {
	kept := wire.Environment()
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); !slices.Contains(kept, name) {
			_ = os.Unsetenv(name) // it fails only for names that cannot be set
		}
	}
}

// guard refuses a configuration that would make a provider look for credentials of
// the machine.
func guard(e catalog.Entry, variables map[string]string) error {
	needs, never := []string(nil), []string(nil)
	switch e.Name {
	case "lightsail":
		needs = []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
	case "edgedns":
		needs = []string{"AKAMAI_HOST", "AKAMAI_CLIENT_TOKEN", "AKAMAI_CLIENT_SECRET", "AKAMAI_ACCESS_TOKEN"}
	case "oraclecloud":
		never = []string{"OCI_AUTH_TYPE"}
	case "alidns", "aliesa":
		never = []string{"ALICLOUD_RAM_ROLE"}
	}
	for _, name := range needs {
		if variables[name] == "" {
			return fmt.Errorf("%s: %s is missing, and this issuer may not use credentials of the machine", e.Name, strings.Join(needs, ", "))
		}
	}
	for _, name := range never {
		if variables[name] != "" {
			return fmt.Errorf("%s: %s uses credentials of the machine, which this issuer may not", e.Name, name)
		}
	}
	return nil
}

var (
	credentialWords = regexp.MustCompile(`(?i)\b40[13]\b|unauthori[sz]ed|forbidden|access ?denied|authentication (failed|error)|` +
		`invalid[ _]?(client|token|credential|grant|access|api)|not authorized|signature (?:does not match|mismatch)|invalid signature|SignatureDoesNotMatch|InvalidClientTokenId|UnrecognizedClient`)
	throttleWords = regexp.MustCompile(`(?i)\b429\b|throttl|rate.?limit|quota exceeded|too many requests|PriorRequestNotComplete`)
	configWords   = regexp.MustCompile(`(?i)credentials information are missing|credentials? missing|is missing`)
)

// classify names the class of a provider's error about a record. lego's are texts only.
func classify(err error, r wire.Record) error {
	var known *wire.Failure
	if err == nil || errors.As(err, &known) {
		return err
	}
	var status native.StatusError
	if errors.As(err, &status) {
		switch {
		// Google says 403 of quotas too, with words that tell (https://cloud.google.com/apis/design/errors).
		case status.Code == http.StatusTooManyRequests, status.Code == http.StatusForbidden && throttleWords.MatchString(withoutNames(status.Message, r)):
			seconds, _ := strconv.Atoi(status.RetryAfter) // a date, or nothing, is no number: 0
			return &wire.Failure{Class: wire.ClassThrottled, RetryAfter: seconds, Err: err}
		case status.Code == http.StatusUnauthorized, status.Code == http.StatusForbidden:
			return &wire.Failure{Class: wire.ClassCredential, Err: err}
		}
		return err
	}
	code := statusOf(err)
	if text := http.StatusText(code); text != "" && !strings.Contains(err.Error(), strconv.Itoa(code)) {
		err = fmt.Errorf("%w (%d %s)", err, code, text) // some say nothing else
	}
	switch text := withoutNames(err.Error(), r); {
	case code == http.StatusTooManyRequests, throttleWords.MatchString(text):
		return &wire.Failure{Class: wire.ClassThrottled, Err: err}
	case code == http.StatusUnauthorized, code == http.StatusForbidden, credentialWords.MatchString(text):
		return &wire.Failure{Class: wire.ClassCredential, Err: err}
	case configWords.MatchString(text):
		return &wire.Failure{Class: wire.ClassConfig, Err: err}
	}
	return err
}

var word = regexp.MustCompile(`[\pL\pN]+`)

// withoutNames is a text without the words that the record consists of. Who asks for a certificate
// chooses the domain, and a CA the token: 429.example.com is no limit of the provider's, and would
// pause the credential for everybody.
func withoutNames(text string, r wire.Record) string {
	of := map[string]bool{}
	for _, name := range []string{r.Domain, r.FQDN, r.Zone, r.Token, r.KeyAuthorization, r.Value} {
		for _, w := range word.FindAllString(name, -1) {
			of[strings.ToLower(w)] = true
		}
	}
	return word.ReplaceAllStringFunc(text, func(w string) string {
		if of[strings.ToLower(w)] {
			return "…"
		}
		return w
	})
}

// statusOf is the HTTP status that an error of a provider's library keeps beside its text,
// in a field by this name, as most do; 0 if there is none.
func statusOf(err error) int {
	for ; err != nil; err = errors.Unwrap(err) {
		v := reflect.ValueOf(err)
		if v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		if v.Kind() != reflect.Struct {
			continue
		}
		if field := v.FieldByName("StatusCode"); field.IsValid() && field.CanInt() {
			return int(field.Int())
		}
	}
	return 0
}
