package main

import (
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
			if err := report(strings.NewReader(strings.ReplaceAll(tc.in, "\t\t\t", "")), &out); err != nil {
				t.Fatal(err)
			}
			if out.String() != tc.want {
				t.Errorf("got:\n%s\nwant:\n%s", &out, tc.want)
			}
		})
	}
}
