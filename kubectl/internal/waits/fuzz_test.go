package waits

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
)

// FuzzWaits: a list of waits that is taken is the same once it is written again, and is shown one line for each.
func FuzzWaits(f *testing.F) {
	f.Add([]byte(`{"items":[{"kind":"Order","namespace":"a","name":"b","for":"call","until":"2026-01-01T00:00:00Z"}]}`))
	f.Add([]byte(`{"items":[{"name":"a\nb\tc","detail":"x\u000b\u2028"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		list, err := decode(http.StatusOK, body)
		if err != nil {
			return
		}
		text, err := json.Marshal(map[string]any{"items": list})
		if err != nil {
			t.Fatal(err)
		}
		again, err := decode(http.StatusOK, text)
		if err != nil || len(again) != len(list) {
			t.Fatalf("%s: %v", text, err)
		}
		var out bytes.Buffer
		if err := table(&out, (filter{}).of(list), true, true, time.Unix(0, 0)); err != nil || strings.Count(out.String(), "\n") != len(list)+1 {
			t.Errorf("%d waits are shown as %q, %v", len(list), out.String(), err)
		}
	})
}
