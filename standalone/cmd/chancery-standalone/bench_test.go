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
		maps.Copy(budgets, map[string]int{"selfsigned": 8, "csr": 4, "requests": 3, "acme-http01": 24})
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
			last := s.Ratios[len(s.Ratios)-1]
			return s.Failure == "" && s.RequestsEach >= 3 && s.RequestsEach <= 6 && strings.HasSuffix(last.Name, "times ours") && last.Value > 0
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

// wantWithin: a scenario costs no more than its budget, and all of it is measured.
func wantWithin(t *testing.T, s bench.Scenario, budget int) {
	t.Helper()
	if s.RequestBudget != budget {
		t.Errorf("%s has the budget %d, want %d", s.Name, s.RequestBudget, budget)
	}
	// Three is what the least takes: create, approve, sign.
	if s.RequestsEach > float64(budget) || s.RequestsEach < 3 || !s.Settled {
		t.Errorf("%s: %.2f requests each, budget %d, settled %v: %+v", s.Name, s.RequestsEach, budget, s.Settled, s.Requests)
	}
	if late := 600.0; s.Name == "late-dns01" && s.Pace.P50Millis < late {
		t.Errorf("half of the certificates took %.0f ms: no self check has failed", s.Pace.P50Millis)
	}
	if len(s.ControllerRequestsEach) == 0 || s.Pace.PerSecond <= 0 || s.ResidentBytes <= 0 || len(s.Ceilings) == 0 {
		t.Errorf("%s: not everything is measured: %+v", s.Name, s)
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
	if len(report.Scenarios) != 1 || report.Scenarios[0].Waiting == nil {
		t.Fatalf("nothing is measured: %s", stdout)
	}
	w := report.Scenarios[0].Waiting
	if w.Challenges != 4 || w.InFlight != 4 || w.WindowSeconds != 10 || len(w.Requests) != 0 || w.OtherQuestions != 0 {
		t.Errorf("%d of %d in flight, requests %v, %d other questions", w.InFlight, w.Challenges, w.Requests, w.OtherQuestions)
	}
	// A window of one period may begin or end within a round.
	if w.Checks < 0.5 || w.Checks > 1.5 {
		t.Errorf("%.2f questions for each record and period", w.Checks)
	}
	if w.CPUBudgetPercent != 5 || report.Scenarios[0].ResidentBytes <= 0 {
		t.Errorf("not everything is measured: %+v", report.Scenarios[0])
	}
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
	if len(report.Scenarios) != 1 || report.Scenarios[0].Hanging == nil {
		t.Fatalf("nothing is measured: %s", stdout)
	}
	h := report.Scenarios[0].Hanging
	if h.Issuers != 20 || h.Certificates != 2 || h.Calls[0] < 1 || h.Alone.P50Millis <= 0 || h.Beside.P50Millis <= 0 || h.Ratio <= 0 {
		t.Errorf("not everything is measured: %+v", h)
	}
}

func TestBenchNeedsTheController(t *testing.T) {
	t.Setenv("CHANCERY_BIN", filepath.Join(t.TempDir(), "nothing"))
	_, stderr, err := run(t, "bench", "--certificates", "1", "--scenario", "csr")
	wantFailure(t, err, stderr, "the controller's binary is not there", "CHANCERY_BIN")
	_, stderr, err = run(t, "bench", "--certificates", "1", "--scenario", "csr", "--controller", filepath.Join(t.TempDir(), "nothing"))
	wantFailure(t, err, stderr, "--controller: the program is not there")
}
