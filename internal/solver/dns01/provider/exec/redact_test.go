package exec

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
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

func TestSteady(t *testing.T) {
	for text, want := range map[string]string{
		"a\n  b":                            "a b",
		"":                                  "it failed and does not say why",
		"status 403, RequestID: 4f1c2a9e-x": "status 403, […]",
		"at 2026-01-02T03:04:05.6Z: no":     "at […]: no",
		"trace 11111111-2222-3333-4444-555555555555.": "trace […].",
		strings.Repeat("x", 3000):                     strings.Repeat("x", maxWords) + "…",
	} {
		if got := steady(text); got != want {
			t.Errorf("steady(%.60q) = %.80q, want %.80q", text, got, want)
		}
	}
}
