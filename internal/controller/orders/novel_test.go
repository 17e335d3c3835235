package orders_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/rig/faulty"
)

// TestWhatIsNotKnownDoesNoHarm: a CA that has Merkle tree certificates (draft-ietf-plants-merkle-tree-certs), or
// whatever comes next, adds fields, statuses, types of challenges, media types and relations of links, and has an
// alternate chain that is ready in a day. The certificate comes as from any other CA, and without a delay.
func TestWhatIsNotKnownDoesNoHarm(t *testing.T) {
	t.Parallel()
	w := newSwift(t, withAlternate)
	w.RunAs(t, w.cfg, w.connection())
	novel := func(object map[string]any, status string) {
		object["landmarkURL"], object["novel"] = "https://ca.example/landmark", map[string]any{"status": []any{1, nil}}
		if status != "" {
			object["status"] = status
		}
	}
	issuance := preferring(&issuance{name: "novel", plan: func(r faulty.Request) faulty.Fault {
		status := ""
		if r.Step == faulty.Finalize || r.Step == faulty.Issuing && r.Nth < 6 || r.Step == faulty.Validating && r.Nth == 1 {
			status = "sealing"
		}
		switch r.Step {
		case faulty.Alternate:
			return func(x *faulty.Exchange) {
				x.Send(&faulty.Answer{Status: http.StatusAccepted, Header: http.Header{"Retry-After": {"86400"}}})
			}
		case faulty.Certificate:
			return func(x *faulty.Exchange) {
				a := x.Ask()
				if a != nil {
					a.Header.Set("Content-Type", "application/pem-certificate-chain-with-properties")
					a.Header.Add("Link", `<`+x.Proxy().DirectoryURL+`/landmark>;rel="acme-optional-alternate"`)
				}
				x.Send(a)
			}
		case faulty.NewNonce, faulty.Challenge:
			return nil
		case faulty.Authorization, faulty.Validating:
			return edited(func(authz map[string]any, _ http.Header) {
				novel(authz, status)
				challenges, _ := authz["challenges"].([]any)
				authz["challenges"] = append([]any{map[string]any{"type": "novel-01", "status": "novel", "url": "https://ca.example/1", "proof": 1}}, challenges...)
			})
		default:
			return edited(func(object map[string]any, _ http.Header) { novel(object, status) })
		}
	}})
	prefer := issuance.change
	issuance.change = func(spec *acmev1.ACMEIssuer) {
		prefer(spec)
		withoutARI(spec)
	}
	before := w.clock.Ahead()
	i := w.start(t, issuance)
	i.settle(t)
	i.wantRoot(t, 0)
	if took := w.clock.Ahead() - before; took > 30*time.Minute {
		t.Errorf("it took %s", took)
	}
	asked := map[faulty.Step]int{}
	for _, r := range i.proxy.Seen() {
		asked[r.Step]++
		if strings.HasPrefix(string(r.Step), "unknown") {
			t.Errorf("the CA was asked for %s", r.Step)
		}
	}
	if asked[faulty.Alternate] != 1 || asked[faulty.Finalize] != 1 {
		t.Errorf("the CA was asked %v, want each of the alternate and finalize once", asked)
	}
}

// edited changes the object that Pebble answers with.
func edited(change func(map[string]any, http.Header)) faulty.Fault {
	return func(x *faulty.Exchange) {
		a, object := x.Ask(), map[string]any{}
		if a != nil && a.Status < http.StatusBadRequest && json.Unmarshal(a.Body, &object) == nil {
			change(object, a.Header)
			a.Body, _ = json.Marshal(object) // it came as JSON
		}
		x.Send(a)
	}
}
