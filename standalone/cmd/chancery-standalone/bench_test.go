package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"chancery.dev/internal/rig/slow"
	"chancery.dev/internal/rig/tool"
	"chancery.dev/standalone/bench"
)

// controllerBinary returns the controller's program: CHANCERY_BIN, or it is built into the user's cache.
func controllerBinary() (string, error) {
	if path := os.Getenv("CHANCERY_BIN"); path != "" {
		return path, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, "chancery-test", "chancery")
	out, err := exec.Command("go", "build", "-C", filepath.Join("..", "..", ".."), "-buildvcs=false", "-o", path, "./cmd/chancery").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, out)
	}
	return path, nil
}

// What a certificate costs the API server is a promise. How long it takes depends on the machine, and is not asserted.
func TestRequestsStayWithinBudget(t *testing.T) {
	controller, err := controllerBinary()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("CHANCERY_BIN", controller)
	budgets := map[string]int{"ca": 6, "acme-dns01": 22, "late-dns01": 22}
	if slow.Runs(slow.Numbers) {
		maps.Copy(budgets, map[string]int{"selfsigned": 8, "csr": 4, "requests": 3, "acme-http01": 24, "pods": 3, "pods-accounts": 4})
	}
	names := slices.Sorted(maps.Keys(budgets))
	stdout, stderr, err := run(t, "bench", "--certificates", "5", "--scenario", strings.Join(names, ","), "--json")
	if err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	var report bench.Report
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatalf("%v: %s", err, stdout)
	}
	var measured []string
	for _, s := range report.Scenarios {
		measured = append(measured, s.Name)
		wantWithin(t, s, budgets[s.Name])
	}
	if slices.Sort(measured); !slices.Equal(measured, names) {
		t.Errorf("%v were measured, want %v", measured, names)
	}
}

// TestBenchMeasuresAnotherController: it does what ours does, in the same run. One that cannot is told of, and ends
// nothing.
func TestBenchMeasuresAnotherController(t *testing.T) {
	slow.Test(t, slow.Numbers)
	controller, err := controllerBinary()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("CHANCERY_BIN", controller)
	broken := tool.Script(t, "#!/bin/sh\necho no such thing; exit 3\n")
	for other, check := range map[string]func(bench.Scenario) bool{
		controller: func(s bench.Scenario) bool {
			each, last := rowOf(t, s, "requests for each certificate", ""), s.Rows[len(s.Rows)-1]
			return s.Failure == "" && each.Value >= 3 && each.Value <= 6 && strings.HasSuffix(last.Name, "times ours") && last.Value > 0
		},
		broken: func(s bench.Scenario) bool {
			return strings.Contains(s.Failure, "ended by itself") && strings.Contains(s.Failure, "no such thing")
		},
	} {
		stdout, stderr, err := run(t, "bench", "--certificates", "3", "--scenario", "ca", "--controller", other, "--controller-arg=--concurrent-workers=2", "--json")
		if err != nil {
			t.Fatalf("%v: %s", err, stderr)
		}
		var report bench.Report
		if err := json.Unmarshal([]byte(stdout), &report); err != nil {
			t.Fatalf("%v: %s", err, stdout)
		}
		if len(report.Scenarios) != 2 || report.Scenarios[0].Controller != "" || report.Scenarios[1].Controller != other || !check(report.Scenarios[1]) {
			t.Errorf("with %s: %s", other, stdout)
		}
	}
}

// rowOf returns the row of a scenario whose name begins so, and whose part is that.
func rowOf(t *testing.T, s bench.Scenario, name, part string) bench.Row {
	t.Helper()
	for _, row := range s.Rows {
		if strings.HasPrefix(row.Name, name) && row.Part == part {
			return row
		}
	}
	t.Errorf("%s: there is no row %q, %q: %v", s.Name, name, part, s.Rows)
	return bench.Row{}
}

// wantPositive: all these rows are measured. They have no part.
func wantPositive(t *testing.T, s bench.Scenario, names ...string) {
	t.Helper()
	for _, name := range names {
		if row := rowOf(t, s, name, ""); row.Value <= 0 {
			t.Errorf("%s: %q is not measured: %v", s.Name, name, row)
		}
	}
}

// wantWithin: a scenario costs no more than its budget, and all of it is measured.
func wantWithin(t *testing.T, s bench.Scenario, budget int) {
	t.Helper()
	each := rowOf(t, s, "requests for each certificate", "")
	if each.Budget == nil || *each.Budget != float64(budget) {
		t.Errorf("%s: %v, want the budget %d", s.Name, each, budget)
	}
	least := 3.0 // create, approve, sign
	if strings.HasPrefix(s.Name, "pods") {
		least = 2 // nobody approves
	}
	if each.Value > float64(budget) || each.Value < least {
		t.Errorf("%s: %v: %v", s.Name, each, s.Rows)
	}
	if on := rowOf(t, s, "requests in the", ""); on.Value > 0 {
		t.Errorf("%s: %v", s.Name, on)
	}
	if late, p50 := 600.0, rowOf(t, s, s.Name, "p50"); s.Name == "late-dns01" && p50.Value < late {
		t.Errorf("half of the certificates took %.0f ms: no self check has failed", p50.Value)
	}
	wantPositive(t, s, "the controller has sent", "share of the rate", "controller's resident memory")
	if s.Name == "acme-dns01" || s.Name == "acme-http01" {
		wantPositive(t, s, "rate, share of the bare client's")
	}
	if rate := rowOf(t, s, s.Name, "per second"); rate.Value <= 0 {
		t.Errorf("%s: no rate is measured", s.Name)
	}
}

// A self check whose answer is that of the last one writes nothing, and asks for nothing but the record.
func TestWaitingCostsQuestionsOnly(t *testing.T) {
	slow.Test(t, slow.Numbers)
	controller, err := controllerBinary()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("CHANCERY_BIN", controller)
	stdout, stderr, err := run(t, "bench", "--certificates", "4", "--scenario", "waiting", "--window", "10s", "--json")
	if err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	var report bench.Report
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatalf("%v: %s", err, stdout)
	}
	if len(report.Scenarios) != 1 {
		t.Fatalf("nothing is measured: %s", stdout)
	}
	waiting := report.Scenarios[0]
	for name, want := range map[string]float64{
		"challenges that wait": 4, "… of them in flight": 4, "measured for": 10, "requests to the API server": 0, "other questions": 0,
	} {
		if row := rowOf(t, waiting, name, ""); row.Value != want {
			t.Errorf("%v, want %v", row, want)
		}
	}
	// A window of one period may begin or end within a round.
	if checks := rowOf(t, waiting, "questions for the record", ""); checks.Value < 0.5 || checks.Value > 1.5 {
		t.Errorf("%.2f questions for each record and period", checks.Value)
	}
	if cpu := rowOf(t, waiting, "controller's CPU", ""); cpu.Budget == nil || *cpu.Budget != 5 {
		t.Errorf("the budget of the CPU is not 5 %%: %v", cpu)
	}
	wantPositive(t, waiting, "controller's resident memory")
}

// The scenario hanging measures certificates alone, and beside servers that never answer.
func TestBenchBesideSilentServers(t *testing.T) {
	slow.Test(t, slow.Numbers)
	controller, err := controllerBinary()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("CHANCERY_BIN", controller)
	stdout, stderr, err := run(t, "bench", "--certificates", "3", "--scenario", "hanging", "--hanging", "20", "--json")
	if err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	var report bench.Report
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatalf("%v: %s", err, stdout)
	}
	if len(report.Scenarios) != 1 {
		t.Fatalf("nothing is measured: %s", stdout)
	}
	hanging := report.Scenarios[0]
	if issuers, asked := rowOf(t, hanging, "issuers of another namespace", ""), rowOf(t, hanging, "its certificates", ""); issuers.Value != 20 || asked.Value != 2 {
		t.Errorf("%v issuers, %v certificates hang", issuers.Value, asked.Value)
	}
	for _, row := range []bench.Row{
		rowOf(t, hanging, "calls to such servers", "at the beginning"), rowOf(t, hanging, "alone", "p50"), rowOf(t, hanging, "beside them", "p50"),
	} {
		if row.Value <= 0 {
			t.Errorf("not measured: %v", row)
		}
	}
	wantPositive(t, hanging, "latency p50 beside them")
}

func TestBenchNeedsTheController(t *testing.T) {
	t.Setenv("CHANCERY_BIN", filepath.Join(t.TempDir(), "nothing"))
	_, stderr, err := run(t, "bench", "--certificates", "1", "--scenario", "csr")
	wantFailure(t, err, stderr, "the controller's binary is not there", "CHANCERY_BIN")
	_, stderr, err = run(t, "bench", "--certificates", "1", "--scenario", "csr", "--controller", filepath.Join(t.TempDir(), "nothing"))
	wantFailure(t, err, stderr, "--controller: the program is not there")
}
