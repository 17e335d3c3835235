package terminal_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"testing"

	"chancery.dev/internal/cli/terminal"
)

// TestText: nothing that a terminal obeys is left, whatever it is.
func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "",
		"plain, ü, 証明書, …\n\tnext": "plain, ü, 証明書, …\n\tnext",
		"\x1b[31mred":              `\u001b[31mred`,
		"a\rb\bc\ad\x00e\x7f":      `a\u000db\u0008c\u0007d\u0000e\u007f`,
		"csi \u009b2J":             `csi \u009b2J`,
		"a\u202eb\u2066c\u200fd":   `a\u202eb\u2066c\u200fd`,
		"hidden\u200b\ufeff\u00ad": `hidden\u200b\ufeff\u00ad`,
		"lines\u2028\u2029":        `lines\u2028\u2029`,
		"tag \U000e0041":           `tag \udb40\udc41`,
		"byte \x9b2J":              `byte \ufffd2J`,
	} {
		if got := terminal.Text(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := terminal.Line(" a\n\tb\x1b "); got != `a b\u001b` {
		t.Errorf("line: %q", got)
	}
}

// TestJSONStays: what programs read is the same, in other words.
func TestJSONStays(t *testing.T) {
	want := "\x1b[31m\u009b\u202e\u200b\U000e0041\n\"\\"
	encoded, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got string
	if err := json.Unmarshal([]byte(terminal.Text(string(encoded))), &got); err != nil || got != want {
		t.Errorf("%q, %v: want %q", got, err, want)
	}
}

// TestWriter: the same comes out however the text is cut into writes.
func TestWriter(t *testing.T) {
	const text = "ü\x1b[31m証\u009b2J\u202e\U000e0041 end\n"
	for size := 1; size <= len(text); size++ {
		var out bytes.Buffer
		w := terminal.NewWriter(terminal.NewWriter(&out))
		for at := 0; at < len(text); at += size {
			part := text[at:min(at+size, len(text))]
			if n, err := fmt.Fprint(w, part); err != nil || n != len(part) {
				t.Fatal(n, err)
			}
		}
		if out.String() != terminal.Text(text) {
			t.Errorf("in parts of %d bytes: %q", size, out.String())
		}
		if terminal.Raw(w) != io.Writer(&out) || terminal.Raw(&out) != io.Writer(&out) {
			t.Error("the writer below is another one")
		}
	}
}
