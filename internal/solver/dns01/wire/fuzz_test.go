package wire_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"chancery.dev/internal/solver/dns01/wire"
)

// refusing fails with what it was asked, as a program may.
type refusing struct{}

func (refusing) Capabilities() wire.Capabilities {
	return wire.Capabilities{Providers: []string{"a\nb"}}
}

func (refusing) Configure(_ context.Context, c wire.Configuration) (wire.Capabilities, error) {
	return wire.Capabilities{}, wire.Failed(wire.ClassConfig, "no provider %s", c.Provider)
}

func (refusing) Present(_ context.Context, r wire.Record) error { return errors.New(r.Value) }

func (refusing) CleanUp(context.Context, wire.Record) error { return nil }

// FuzzServe: each line of a request has one line of an answer with its ID, in order, until the first line that is no
// request; and that one is not quoted.
func FuzzServe(f *testing.F) {
	f.Add([]byte(`{"id":1,"op":"capabilities"}` + "\n" + `{"id":2,"op":"configure","provider":"x","secrets":{"A":"b"}}` + "\n"))
	f.Add([]byte(`{"id":3,"op":"present","value":"a\nb"}` + "\n\n"))
	f.Add([]byte("null\n[]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var out bytes.Buffer
		err := wire.Serve(t.Context(), bytes.NewReader(text), &out, refusing{})
		answers := bytes.Split(out.Bytes(), []byte("\n"))
		answers = answers[:len(answers)-1]
		n := 0
		for part := range bytes.SplitSeq(text, []byte("\n")) {
			part = bytes.TrimSuffix(part, []byte("\r"))
			var q wire.Request
			if json.Unmarshal(part, &q) != nil {
				break
			}
			var a wire.Response
			if n == len(answers) || json.Unmarshal(answers[n], &a) != nil || a.ID != q.ID || a.OK != (a.Error == "") && q.Op != wire.OpPresent {
				t.Fatalf("%q is answered by %q", text, out.String())
			}
			n++
		}
		if n != len(answers) || err != nil && len(text) > 8 && strings.Contains(err.Error(), string(text)) {
			t.Errorf("%q is answered by %q, %v", text, out.String(), err)
		}
	})
}
