package acmeflow

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"
	"unicode"
)

// MaxNamePrefix is the length to which ComputeName cuts a prefix.
const MaxNamePrefix = 52

// ComputeName is the prefix, shortened to 52 bytes, and the FNV-1 sum of v's JSON
// (spec §3.4). It gives the same thing the same name after a crash.
func ComputeName(prefix string, v any) (string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("compute a name for %q: %w", prefix, err)
	}
	sum := fnv.New32()
	_, _ = sum.Write(text) // it never fails
	if len(prefix) >= MaxNamePrefix {
		prefix = strings.TrimRightFunc(prefix[:MaxNamePrefix], func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsDigit(r)
		})
	}
	return fmt.Sprintf("%s-%d", prefix, sum.Sum32()), nil
}
