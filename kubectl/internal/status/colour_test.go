package status

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/clientside/explain"
	"chancery.dev/internal/rig"
)

// TestColour: each state has its colour, on a terminal whose user takes colours, and nowhere else.
func TestColour(t *testing.T) {
	reports := []explain.Report{}
	for _, outcome := range []explain.Outcome{explain.Issued, explain.Failed, explain.Waiting} {
		reports = append(reports, explain.Report{Node: explain.Node{Kind: "Certificate", Name: "web", State: "state", Outcome: outcome.String()}, Trouble: explain.Trouble{Cause: "why", WhatToDo: "help"}})
	}
	draw := func(colour bool) string {
		var out bytes.Buffer
		printer{out: &out, colour: colour}.all(reports, time.Now())
		return out.String()
	}
	said := draw(true)
	for _, want := range []string{green + "state" + plain, red + "state" + plain, yellow + "state" + plain, bold + "what to do:"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is missing in %q", want, said)
		}
	}
	if said := draw(false); strings.Contains(said, "\x1b") {
		t.Errorf("colours, although there is no terminal: %q", said)
	}

	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("SKIPPED in part: no pseudo terminals here:", err)
	}
	defer func() { _ = terminal.Close() }()
	for _, c := range []struct {
		refused string
		out     io.Writer
		want    bool
	}{{"", terminal, true}, {"1", terminal, false}, {"", &bytes.Buffer{}, false}} {
		t.Setenv("NO_COLOR", c.refused)
		if got := coloured(c.out); got != c.want {
			t.Errorf("NO_COLOR=%q, %T: colours %t", c.refused, c.out, got)
		}
	}
}

// TestExpiryColumn: kubectl get certificate -o wide shows when a certificate ends. kubectl prints the API server's
// table.
func TestExpiryColumn(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	crt := &certmanagerv1.Certificate{ObjectMeta: named("web"), Spec: certmanagerv1.CertificateSpec{
		SecretName: "web", DNSNames: []string{"www.example.com"}, IssuerRef: cmmeta.IssuerReference{Name: "ca"},
	}}
	w.Create(t, crt)
	ends := metav1.NewTime(time.Now().Add(90 * 24 * time.Hour).UTC().Truncate(time.Second))
	crt.Status.NotAfter = &ends
	if err := w.Client.Status().Update(t.Context(), crt); err != nil {
		t.Fatal(err)
	}
	hc, err := rest.HTTPClientFor(w.Admin)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		w.Admin.Host+"/apis/cert-manager.io/v1/namespaces/"+w.Namespace+"/certificates", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	answer, err := hc.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	table := &metav1.Table{}
	if err := json.Unmarshal(text, table); err != nil || len(table.Rows) != 1 {
		t.Fatal(err, string(text))
	}
	for i, column := range table.ColumnDefinitions {
		if strings.HasPrefix(strings.ToLower(column.Name), "expir") {
			if got := table.Rows[0].Cells[i]; column.Type != "string" || got != ends.UTC().Format(time.RFC3339) {
				t.Errorf("%s is %v, a %s", column.Name, got, column.Type)
			}
			return
		}
	}
	t.Errorf("there is no such column: %s", text)
}
