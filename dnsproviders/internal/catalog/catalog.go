// Package catalog lists the DNS providers, and the names of the credentials and settings of each provider. An issuer
// can set only these credentials and settings.
//
// Most entries are generated from lego's descriptions of its providers; native.go has the other entries. The package
// removes the settings that a tenant must not set, such as the path of a file on the machine. The package runs no
// provider.
package catalog

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

//go:generate go run ./cmd/generate

//go:embed zz_generated.providers.json
var generated []byte

// Entry describes one provider.
type Entry struct {
	// Name is what Issuers call it; Aliases are other names.
	Name    string   `json:"name"`
	Aliases []string `json:"aliases,omitempty"`
	// Title and URL are for people.
	Title string `json:"title"`
	URL   string `json:"url,omitempty"`
	// Credentials and Settings are the variables it takes, with what they mean.
	Credentials map[string]string `json:"credentials,omitempty"`
	Settings    map[string]string `json:"settings,omitempty"`
	// Stateful providers remember in memory what it takes to clean up.
	Stateful bool `json:"stateful,omitempty"`
}

// variable is what the name of an environment variable looks like. Some entries
// describe credentials of another kind in its place.
var variable = regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`)

// file matches variables that name a file, a profile in one, or a place to look for it.
// What is there belongs to the machine, not to whoever writes an Issuer.
var file = regexp.MustCompile(`_FILE$|_FILE_PATH$|_PATH$|_PASSPORT_LOCATION$|^INFOBLOX_CA_CERTIFICATE$|_EDGERC(_SECTION)?$|^AWS_PROFILE$|^AWS_SDK_LOAD_CONFIG$|^OCI_PROFILE$|^OS_CLOUD$|_DEBUG$`)

// why are the providers of lego that are refused: they would run any command, ask a
// person, or call any address.
func why(name string) string {
	switch name {
	case "exec":
		return "it runs a program of the Issuer's choice; let the operator list the program, which then speaks the provider protocol"
	case "manual":
		return "it asks a person at a terminal, and there is none"
	case "httpreq":
		return "it calls any address, with the rights of this network; use the webhook solver, or a program that speaks the provider protocol"
	}
	return ""
}

// Entries returns all providers that may be used, by name.
func Entries() ([]Entry, error) {
	var all []Entry
	if err := json.Unmarshal(generated, &all); err != nil {
		return nil, fmt.Errorf("the embedded catalog: %w", err)
	}
	all = append(slices.DeleteFunc(all, func(e Entry) bool {
		return why(e.Name) != "" || slices.ContainsFunc(native(), func(n Entry) bool { return n.Name == e.Name })
	}), native()...)
	for i := range all {
		all[i].Credentials = allowed(all[i].Credentials)
		all[i].Settings = allowed(all[i].Settings)
	}
	slices.SortFunc(all, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// allowed drops what is no variable, or must not be set.
func allowed(variables map[string]string) map[string]string {
	out := map[string]string{}
	for name, meaning := range variables {
		if variable.MatchString(name) && !file.MatchString(name) {
			out[name] = meaning
		}
	}
	return out
}

// Find returns the provider with a name or alias.
func Find(name string) (Entry, error) {
	if reason := why(name); reason != "" {
		return Entry{}, fmt.Errorf("the provider %q is refused: %s", name, reason)
	}
	if reason := gone(name); reason != "" {
		return Entry{}, fmt.Errorf("the provider %q no longer exists: %s", name, reason)
	}
	all, err := Entries()
	if err != nil {
		return Entry{}, err
	}
	for _, e := range all {
		if e.Name == name || slices.Contains(e.Aliases, name) {
			return e, nil
		}
	}
	return Entry{}, fmt.Errorf("there is no provider %q: chancery-dns list names all %d", name, len(all))
}

// Check returns an error for the first variable, by name, that the provider must not
// be told. It never quotes a value.
func (e Entry) Check(variables map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		_, credential := e.Credentials[name]
		_, setting := e.Settings[name]
		needless, relied := former(e.Name, name)
		switch {
		case needless:
		case relied:
			return fmt.Errorf("%s: %q is no longer read: remove it; requests go to the address that the provider publishes", e.Name, name)
		case credential || setting:
			if strings.ContainsRune(variables[name], 0) {
				return fmt.Errorf("%s: the value of %q has a NUL in it", e.Name, name)
			}
		case file.MatchString(name):
			return fmt.Errorf("%s: %q is refused: it names a file of the machine; credentials are data, here", e.Name, name)
		default:
			return fmt.Errorf("%s: %q is not one of its variables: chancery-dns describe %s lists them", e.Name, name, e.Name)
		}
	}
	return nil
}
