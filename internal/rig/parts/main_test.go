package main

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestList(t *testing.T) {
	file := func(body string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte("package p\n" + body)}
	}
	root := fstest.MapFS{
		"go.mod": {}, "nested/go.mod": {},
		"a/a_test.go": file(`
			func TestWhole(t *testing.T) { slow.Test(t, slow.Crash) }
			func TestOther(t *testing.T) { slow.Test(t, slow.Docs) }
			func TestQuick(t *testing.T) {}
			func TestRows(t *testing.T) { for range rows() {} }
			func TestMethod(t *testing.T) { var w world; w.table() }`),
		"a/b_test.go":               file("func rows() []int { if slow.Runs(slow.Crash) { return nil }; return rows() }\nfunc (w world) table() { _ = slow.Crash }"),
		"nested/b/b_test.go":        file("func TestNested(t *testing.T) { slow.Test(t, slow.Crash) }"),
		"a/testdata/x_test.go":      file("func TestData(t *testing.T) { slow.Test(t, slow.Crash) }"),
		".hidden/hidden_test.go":    file("func TestHidden(t *testing.T) { slow.Test(t, slow.Crash) }"),
		"a/not_a_test_of_anyone.go": file("func TestProduct() { slow.Crash() }"),
		"go/go.go":                  file("func f() { go f() }"),
		"go/go_test.go":             file("func TestGo(t *testing.T) {}"),
		"untested/go.go":            file("func f() { go f() }"),
		"nested/go/go_test.go":      file("func TestNestedGo(t *testing.T) { go f() }"),
		"e2e/peer/peer_test.go":     file("func TestPeer(t *testing.T) { go f() }"),
		"chan/chan_test.go":         file("func TestChan(t *testing.T) { f(make(chan int)) }"),
		"sync/sync_test.go":         file("import _ \"sync/atomic\"\nfunc TestSync(t *testing.T) {}"),
		"mutex/mutex.go":            file("import \"sync\"\nvar mu sync.Mutex"),
		"mutex/mutex_test.go":       file("func TestMutex(t *testing.T) {}"),
		"once/once_test.go":         file("import \"sync\"\nvar one = sync.OnceValue(two)\nfunc TestOnce(t *testing.T) {}"),
		"server/server_test.go":     file("import _ \"chancery.dev/internal/rig\"\nfunc TestServer(t *testing.T) { go f() }"),
		"internal/rig/rig.go":       file("import _ \"k8s.io/client-go/rest\""),
		"client/client_test.go":     file("import _ \"chancery.dev/types\"\nfunc TestClient(t *testing.T) {}"),
		"types/types_test.go":       file("import _ \"chancery.dev/internal/rig\"\nfunc TestTypes(t *testing.T) {}"),
		"engine/engine.go":          file("import _ \"sigs.k8s.io/controller-runtime/pkg/client\""),
		"engine/engine_test.go":     file("func TestEngine(t *testing.T) {}"),
		"user/user_test.go":         file("import _ \"chancery.dev/engine\"\nfunc TestUser(t *testing.T) {}"),
	}
	for part, want := range map[string]string{
		"crash": "nested ^(TestNested)$ ./b\n. ^(TestMethod|TestRows|TestWhole)$ ./a\n",
		"docs":  ". ^(TestOther)$ ./a\n",
		"race":  ". ^(.*)$ ./chan ./go ./mutex ./server ./sync\n", "race-short": ". ^(.*)$ ./chan ./go ./mutex ./sync\n",
		"quick": ". ^(.*)$ ./a ./chan ./client ./go ./mutex ./once ./sync\n",
	} {
		var out strings.Builder
		if err := list(&out, root, part); err != nil || out.String() != want {
			t.Errorf("%s: %v, got\n%swant\n%s", part, err, &out, want)
		}
	}
	if err := list(&strings.Builder{}, root, "faults"); err == nil || !strings.Contains(err.Error(), `no test belongs to the part "faults"`) {
		t.Errorf("a part without tests: %v", err)
	}
}
