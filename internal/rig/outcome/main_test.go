package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"passed": {
			`{"Action":"start","Package":"p"}
			{"Action":"run","Package":"p","Test":"TestA"}
			{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
			{"Action":"output","Package":"p","Test":"TestA","Output":"--- PASS: TestA (0.00s)\n"}
			{"Action":"pass","Package":"p","Test":"TestA","Elapsed":0}
			{"Action":"output","Package":"p","Output":"chatter\n"}
			{"Action":"output","Package":"p","Output":"PASS\n"}
			{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
			{"Action":"pass","Package":"p","Elapsed":0.1}`,
			"ok  \tp\t0.1s\n",
		},
		"failed": {
			`{"Action":"run","Package":"p","Test":"TestA"}
			{"Action":"run","Package":"p","Test":"TestB"}
			{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:7: wrong\n"}
			{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:7: right\n"}
			{"Action":"output","Package":"p","Test":"TestA","Output":"--- FAIL: TestA (0.00s)\n"}
			{"Action":"fail","Package":"p","Test":"TestA"}
			{"Action":"pass","Package":"p","Test":"TestB"}
			{"Action":"output","Package":"p","Output":"FAIL\n"}
			{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
			{"Action":"fail","Package":"p"}`,
			"    a_test.go:7: wrong\n--- FAIL: TestA (0.00s)\nFAIL\nFAIL\tp\t0.1s\n",
		},
		"skipped": {
			`{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
			{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:7: no IPv6 here\n"}
			{"Action":"output","Package":"p","Test":"TestA","Output":"--- SKIP: TestA (0.00s)\n"}
			{"Action":"skip","Package":"p","Test":"TestA"}`,
			"SKIP\tp TestA: a_test.go:7: no IPv6 here\n",
		},
		"a whole package skipped": {
			`{"Action":"output","Package":"p","Output":"SKIPPED, all tests of this package: no namespace\n"}
			{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
			{"Action":"pass","Package":"p"}`,
			"SKIPPED, all tests of this package: no namespace\nok  \tp\t0.1s\n",
		},
		"no tests": {
			`{"Action":"output","Package":"p","Output":"?   \tp\t[no test files]\n"}
			{"Action":"skip","Package":"p"}`,
			"?   \tp\t[no test files]\n",
		},
		"does not compile": {
			`{"ImportPath":"p","Action":"build-output","Output":"# p\n"}
			{"ImportPath":"p","Action":"build-output","Output":"a.go:1: no\n"}
			{"ImportPath":"p","Action":"build-fail"}
			{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}
			{"Action":"fail","Package":"p","FailedBuild":"p"}`,
			"# p\na.go:1: no\nFAIL\tp [build failed]\n",
		},
		"cut off": {
			`{"Action":"start","Package":"p"}
			{"Action":"run","Package":"p","Test":"TestB"}
			{"Action":"output","Package":"p","Test":"TestB","Output":"=== RUN   TestB\n"}
			{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:9: waiting\n"}
			{"Action":"run","Package":"p","Test":"TestA"}
			{"Action":"pass","Package":"p","Test":"TestA"}`,
			"UNFINISHED\tp \nUNFINISHED\tp TestB\n    b_test.go:9: waiting\n",
		},
		"not JSON": {"no required module provides package\n", "no required module provides package\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := report(strings.NewReader(strings.ReplaceAll(tc.in, "\t\t\t", "")), &out, newTimes()); err != nil {
				t.Fatal(err)
			}
			if out.String() != tc.want {
				t.Errorf("got:\n%s\nwant:\n%s", &out, tc.want)
			}
		})
	}
}

func TestTimes(t *testing.T) {
	const stream = `
		{"Action":"pass","Package":"p","Test":"TestTable/a","Elapsed":2.5}
		{"Action":"pass","Package":"p","Test":"TestTable/b","Elapsed":1.5}
		{"Action":"pass","Package":"p","Test":"TestTable","Elapsed":4}
		{"Action":"fail","Package":"p","Test":"TestFails","Elapsed":9.25}
		{"Action":"pass","Package":"p","Test":"TestQuick","Elapsed":0.04}
		{"Action":"fail","Package":"p","Elapsed":15}
		{"Action":"skip","Package":"p","Test":"TestSkipped","Elapsed":0}
		{"Action":"pass","Package":"q","Test":"TestTable","Elapsed":61}
		{"Action":"pass","Package":"q","Elapsed":61.5}
		{"Action":"pass","Package":"quick","Elapsed":0.3}
		{"Action":"skip","Package":"empty","Elapsed":0.2}`
	times := newTimes()
	var out strings.Builder
	if err := report(strings.NewReader(strings.ReplaceAll(stream, "\n\t\t", "\n")), &strings.Builder{}, times); err != nil {
		t.Fatal(err)
	}
	times.note("4.250\tcontrol planes\n0.004\twaiting for a clock\nhalf a line\n3.000\tcontrol planes\nx\ty\n")
	times.print(&out)
	const want = `TIME of packages, in seconds:
      61.5  q
      15.0  p
       0.5  2 others, each below a second
      77.0  all
TIME of the slowest tests, in seconds:
      61.0  q TestTable
       9.2  p TestFails
       4.0  p TestTable (2 subtests)
TIME beside the tests' own work, in seconds, how often, and on what; much of it side by side:
       7.2     2  control planes
       0.0     1  waiting for a clock
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", &out, want)
	}
}

func TestTimesOfNothing(t *testing.T) {
	var out strings.Builder
	newTimes().print(&out)
	if out.String() != "" {
		t.Errorf("got:\n%s\nand there was nothing", &out)
	}
}

// TestTheSlowestOnly: of many tests no more than slowest are printed.
func TestTheSlowestOnly(t *testing.T) {
	times := newTimes()
	for i := range slowest + 3 {
		times.take(event{Action: "pass", Package: "p", Test: fmt.Sprintf("Test%d", i), Elapsed: float64(i + 1)})
	}
	var out strings.Builder
	times.print(&out)
	if n := strings.Count(out.String(), "p Test"); n != slowest || strings.Contains(out.String(), "Test2\n") || !strings.Contains(out.String(), "Test3\n") {
		t.Errorf("got %d tests:\n%s", n, &out)
	}
}
