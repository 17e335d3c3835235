package exec

import (
	"encoding/json"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/go-logr/logr/funcr"

	"chancery.dev/internal/fault"
	"chancery.dev/internal/solver/dns01/wire"
)

// inert takes what is written to it.
type inert struct{ io.Writer }

func (inert) Close() error { return nil }

// FuzzProgramAnswer: an answer of a program is taken if and only if its first line is JSON with the ID of the request,
// and an error does not quote the line.
func FuzzProgramAnswer(f *testing.F) {
	f.Add([]byte(`{"id":1,"ok":true}` + "\n"))
	f.Add([]byte(`{"id":1,"error":"x","class":"credential","retryAfter":99999999999}` + "\n{}"))
	f.Add([]byte("secret\n"))
	f.Add([]byte(`{"ID":1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s := &session{in: inert{io.Discard}, lines: make(chan line), stopped: make(chan struct{}), ended: make(chan struct{})}
		go s.read(strings.NewReader(string(text)))
		a, err := s.ask(t.Context(), wire.Request{Op: wire.OpCapabilities})
		close(s.stopped)
		first, _, _ := strings.Cut(string(text), "\n")
		var want wire.Response
		valid := len(text) > 0 && json.Unmarshal([]byte(strings.TrimSuffix(first, "\r")), &want) == nil && want.ID == 1
		if (err == nil) != valid || valid && a.Error != want.Error {
			t.Errorf("%q: %+v, %v", text, a, err)
		}
		if err != nil && len(first) > 3 && strings.Contains(err.Error(), first) && !strings.Contains("the program does not speak the provider protocol: "+
			"it wrote a line that is no answer to the request, ended without an answer", first) {
			t.Errorf("%q is quoted: %v", first, err)
		}
	})
}

// FuzzRedact: no secret is left in a text, as it is or encoded, wherever it stands; and a text without secrets stays.
func FuzzRedact(f *testing.F) {
	f.Add("Authorization: ", `p&ss "w/rd+\=`, "another-secret", " end")
	f.Add("", "abab", "baba", "ab")
	f.Add("x", "line one of a secret\nline two of a secret", "red!", "act")
	f.Fuzz(func(t *testing.T, before, secret, other, after string) {
		redact := redactor(map[string]string{"A": secret, "B": other})
		inJSON, err := json.Marshal(secret)
		if err != nil {
			t.Fatal(err)
		}
		forms := []string{secret, strings.Trim(string(inJSON), `"`), url.QueryEscape(secret), url.PathEscape(secret)}
		got := redact(before + strings.Join(forms, " ") + after)
		for _, form := range forms {
			if len(secret) >= leastSecret && !strings.ContainsAny(form, "[]") && !strings.Contains("redacted", form) && strings.Contains(got, form) {
				t.Errorf("%q is left in %q", form, got)
			}
		}
		if none := redactor(nil)(before); none != before {
			t.Errorf("%q becomes %q", before, none)
		}
	})
}

// FuzzSteady: the text of a failure is short and printable, and the same again.
func FuzzSteady(f *testing.F) {
	f.Add("failed at 2026-01-02T03:04:05.678Z, request id: 01234567-89ab-cdef-0123-456789abcdef")
	f.Add("RequestID=\x1b[31m see https://x.example/" + strings.Repeat("y", 5000))
	f.Fuzz(func(t *testing.T, text string) {
		got := steady(text)
		if got == "" || !utf8.ValidString(got) || strings.ContainsFunc(got, unicode.IsControl) || len(got) > fault.MaxQuote+fault.MaxQuotedLink+len("… …")+1 {
			t.Errorf("%d bytes: %q", len(got), got)
		}
	})
}

// FuzzLogLines: however a program writes its errors, each line of the log is short, all lines together are bounded,
// and no secret is in them.
func FuzzLogLines(f *testing.F) {
	f.Add([]byte("one\ntwo secret-word\nthree"), 5, 300)
	f.Add([]byte(strings.Repeat("secret-word", 1000)+"\n"), 11, 40)
	f.Fuzz(func(t *testing.T, text []byte, size, left int) {
		var logged []string
		log := funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})
		l := &logLines{log: log, redact: redactor(map[string]string{"A": "secret-word"}), left: left}
		for part := range slices.Chunk(text, max(1, size)) {
			if n, err := l.Write(part); n != len(part) || err != nil {
				t.Fatal(n, err)
			}
		}
		if len(l.rest) > maxHeldLine {
			t.Errorf("%d bytes are held", len(l.rest))
		}
		const around = 100 // what funcr writes around a text, which it quotes
		total := 0
		for _, line := range logged {
			if total += len(line); strings.Contains(line, "secret-word") || len(line) > 4*maxStderrLine+around {
				t.Errorf("a line of %d bytes: %s", len(line), line)
			}
		}
		if total > 4*(max(left, 0)+maxStderrLine)+around*(len(logged)+1) {
			t.Errorf("%d bytes in all", total)
		}
	})
}
