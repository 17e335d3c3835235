package shim

import (
	"fmt"
	"slices"
	"strings"

	"chancery.dev/internal/fault"
	"chancery.dev/internal/limits"
)

// tooLarge is the warning about an Object that is above a bound.
func (s *State) tooLarge(excess string) string {
	return fmt.Sprintf("%s: nothing is created, changed or deleted for this %s, and what it has is renewed as before: divide it into several", excess, s.Owner.Kind)
}

// tooMany says which bound an object is above that has as many of each; empty for none.
func tooMany(entries string, count, hosts, secrets int) string {
	switch {
	case count > limits.ShimEntries:
		return fmt.Sprintf("%s has more than %d entries", entries, limits.ShimEntries)
	case hosts > limits.ShimHosts:
		return fmt.Sprintf("%s has more than %d hosts", entries, limits.ShimHosts)
	case secrets > limits.ShimCertificates:
		return fmt.Sprintf("%s names more than %d Secrets", entries, limits.ShimCertificates)
	}
	return ""
}

// Reads reports whether an annotation of an Object matters to its Certificates, or to what is done for it.
func (s Settings) Reads(annotation string) bool {
	switch group, _, _ := strings.Cut(annotation, "/"); group {
	case "cert-manager.io", "acme.cert-manager.io", "chancery.dev":
		return true
	}
	return slices.Contains(s.ExtraAnnotations, annotation) || slices.Contains(s.AutoAnnotations, annotation)
}

// tooLong says that the Certificates that an Object asks for would be too large together; empty if they are not.
func (s *State) tooLong() string {
	each := 0
	for key, value := range s.Labels {
		each += len(key) + len(value)
	}
	for key, value := range s.Annotations {
		if s.Settings.Reads(key) {
			each += len(key) + len(value)
		}
	}
	if each > limits.ShimMetadata {
		return fmt.Sprintf("the labels and annotations of each certificate have more than %d bytes", limits.ShimMetadata)
	}
	all := each * len(s.Secrets())
	for _, part := range s.Parts {
		for _, host := range part.Hosts {
			all += len(part.Secrets) * len(host)
		}
	}
	if all > limits.ShimBytes {
		return fmt.Sprintf("the labels, annotations and hosts of its certificates have more than %d bytes in all", limits.ShimBytes)
	}
	return ""
}

// few returns the first entries of a list, none of which is longer than an event, and how many more there are.
func few(list []string) []string {
	var out []string
	for _, entry := range list[:min(len(list), limits.Listed)] {
		out = append(out, fault.Cut(entry, limits.EventBytes))
	}
	if more := len(list) - limits.Listed; more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return out
}

// short returns the beginning of a value that is quoted.
func short(value string) string {
	const most = 100
	if len(value) > most {
		return strings.ToValidUTF8(value[:most], "") + "…"
	}
	return value
}
