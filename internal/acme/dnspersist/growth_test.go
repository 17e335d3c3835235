package dnspersist

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/growth"
)

// TestRecordsGrow: what is in DNS at the name of a record is read at a cost that grows with its size, whether it is one
// value or thousands.
func TestRecordsGrow(t *testing.T) {
	want, now := Record{Issuer: "a", AccountURI: "u"}, time.Unix(1_800_000_000, 0)
	one := func(before, part, after string) func(size int) []string {
		return func(size int) []string {
			return []string{before + strings.Repeat(part, (size-len(before)-len(after))/len(part)) + after}
		}
	}
	many := func(each int, text func(i int) string) func(size int) (texts []string) {
		return func(size int) (texts []string) {
			for i := range size / each { // a record has 12 bytes more
				texts = append(texts, text(i))
			}
			return texts
		}
	}
	for name, of := range map[string]func(size int) []string{
		"parameters": func(size int) []string {
			var text strings.Builder
			for i := range size / 10 {
				fmt.Fprintf(&text, ";%x=", 0x1000000+i)
			}
			return []string{"a" + text.String()}
		},
		"labels of an issuer":       one("a", ".a", ";"),
		"a long issuer":             one("", "a", ";"),
		"spaces":                    one("a", " \t", ";"),
		"spaces before a parameter": one("a;", " \t", "b"),
		"a parameter that is none":  one("a;", "\x00", ""),
		"a long account":            one("a;accounturi=", "b", ""),
		"a long end":                one("a;accounturi=u;persistUntil=", "9", ""),
		"malformed records":         many(20, func(i int) string { return fmt.Sprintf("a;%07x", i) }),
		"records of other accounts": many(32, func(i int) string { return fmt.Sprintf("a;accounturi=%07x", i) }),
		"records of other CAs":      many(20, func(i int) string { return fmt.Sprintf("%07x", i) }),
		"records that end":          many(52, func(i int) string { return fmt.Sprintf("a;accounturi=u;persistUntil=%d", 1_900_000_000+i) }),
	} {
		t.Run(name, func(t *testing.T) {
			growth.Linear(t, limits.DNSMessage, func(size int) func() {
				texts := of(size)
				return func() {
					for _, text := range texts { // also one that is for another CA
						_, _ = Parse(text)
					}
					if until, problem := want.Find(texts, now); (problem == "") != !until.IsZero() {
						t.Fatal(until, problem)
					}
				}
			})
		})
	}
}
