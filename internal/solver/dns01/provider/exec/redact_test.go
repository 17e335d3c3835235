package exec

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"

	"chancery.dev/internal/fault"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/bounds"
	"chancery.dev/internal/solver/dns01"
	"chancery.dev/internal/solver/dns01/wire"
)

// A secret is taken out in every form that a program is likely to print it in.
func TestRedactor(t *testing.T) {
	key := "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj\n-----END PRIVATE KEY-----\n"
	quoted, err := json.Marshal(map[string]string{"private_key": key})
	if err != nil {
		t.Fatal(err)
	}
	const password = `p&ss "w/rd+\=`
	redact := redactor(map[string]string{"A": password, "B": string(quoted), "C": "abc", "D": password + "-longer", "E": " padded-secret \n"})
	inJSON, err := json.Marshal(password)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		password, string(inJSON), url.QueryEscape(password), url.PathEscape(password),
		"Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(password)), base64.RawURLEncoding.EncodeToString([]byte(password)),
		password + "-longer", string(quoted), key, "padded-secret",
	} {
		got := redact("before " + text + " after")
		for _, piece := range []string{"p&ss", "w/rd", "p%26ss", "MIIEvQ", "padded", "-longer", base64.StdEncoding.EncodeToString([]byte(password))[:12]} {
			if strings.Contains(got, piece) {
				t.Errorf("of %q it leaves %q", text, got)
			}
		}
		if !strings.HasPrefix(got, "before ") || !strings.HasSuffix(got, " after") {
			t.Errorf("of %q it takes too much: %q", text, got)
		}
	}
	if got := redact("abc is in any text"); got != "abc is in any text" {
		t.Errorf("too short to be told from other text: %q", got)
	}
}

// TestCredentialsAreBounded: what is taken out of texts is kept in many forms, so that a Secret of a megabyte with
// short lines took a hundred.
func TestCredentialsAreBounded(t *testing.T) {
	pool := &Pool{o: Options{Programs: map[string]string{AnyProvider: "/bin/true"}}}
	config := func(size int) Config {
		var lines strings.Builder
		for i := 0; lines.Len() < size-len("A"); i++ {
			fmt.Fprintf(&lines, "%015x\"\n", i*7919)
		}
		return Config{Configuration: wire.Configuration{Provider: "any", Secrets: map[string]string{"A": lines.String()[:size-len("A")]}}}
	}
	bounds.Holds(t, "credentials of a program", func(n int) limits.Outcome {
		_, err := pool.Provider(config(n))
		if err != nil && (fault.Of(err) == nil || fault.Of(err).Reason != dns01.ReasonSecret) {
			t.Errorf("credentials of %d bytes: %v, want reason %s", n, err, dns01.ReasonSecret)
		}
		return bounds.Refusal(t, err, "at most 65536 are taken")
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	redact := redactor(config(limits.Credentials).Secrets)
	redact("text")
	runtime.ReadMemStats(&after)
	if taken := after.TotalAlloc - before.TotalAlloc; taken > 32<<20 {
		t.Errorf("%d MiB were allocated for credentials of the largest size", taken>>20)
	}
}

func TestSteady(t *testing.T) {
	for text, want := range map[string]string{
		"a\n  b":                            "a b",
		"":                                  "it failed and does not say why",
		"status 403, RequestID: 4f1c2a9e-x": "status 403, […]",
		"at 2026-01-02T03:04:05.6Z: no":     "at […]: no",
		"trace 11111111-2222-3333-4444-555555555555.": "trace […].",
		strings.Repeat("x", 3000):                     strings.Repeat("x", 509) + "…",
	} {
		if got := steady(text); got != want {
			t.Errorf("steady(%.60q) = %.80q, want %.80q", text, got, want)
		}
	}
}

// A secret that an error or a line is cut in, or that looks like a request's id, is taken
// out all the same: first the secrets, then the rest.
func TestNothingOfASecretIsLeft(t *testing.T) {
	const id = "11111111-2222-3333-4444-555555555555"
	secrets := map[string]string{"A": "begin-" + id + "-secret", "B": "two  blanks", "C": strings.Repeat("long-secret-", 8)}
	var logged []string
	for name, text := range map[string]string{
		"cut": strings.Repeat("x", 490) + secrets["C"], "id": "no: " + secrets["A"], "blanks": "no: " + secrets["B"],
		"line": strings.Repeat("x", maxStderrLine-20) + secrets["C"], "chunks": strings.Repeat("x", 8*maxStderrLine-20) + secrets["C"],
	} {
		s := &session{redact: redactor(secrets)}
		w := &worker{session: s}
		said := w.judge(wire.Request{}, wire.Response{Error: text}).Error()
		l := &logLines{redact: s.redact, left: maxStderr, log: funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})}
		for chunk := range slices.Chunk([]byte(text+"\n"+"next\n"), maxStderrLine+7) {
			if n, err := l.Write(chunk); n != len(chunk) || err != nil {
				t.Fatalf("wrote %d, %v", n, err)
			}
		}
		for _, got := range []string{said, strings.Join(logged, "\n")} {
			for _, piece := range []string{"begin", "secret", "long-s", "two"} {
				if strings.Contains(got, piece) {
					t.Errorf("%s: %q is left of a secret in %.60q…%q", name, piece, got, got[max(0, len(got)-60):])
				}
			}
		}
		if len(logged) != 2 || !strings.Contains(logged[1], "next") || len(logged[0]) > maxStderrLine+100 {
			t.Errorf("%s: logged %d lines, the first of %d octets, want this one, bounded, and the next", name, len(logged), len(logged[0]))
		}
		logged = nil
	}
}
