package toy

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// does reports whether the tests are to do something, which TOY says. What is done once, the first process does.
func does(what string) bool {
	switch os.Getenv("TOY") {
	case what:
		return true
	case what + " once":
		return os.Mkdir(filepath.Join(os.Getenv("TOY_DIR"), "done"), 0o700) == nil
	}
	return false
}

func TestMain(m *testing.M) {
	code := m.Run()
	if does("TestMain fails") {
		code = 1
	}
	if code == 1 && strings.HasPrefix(os.Getenv("TOY"), "both fail") {
		fmt.Println("something else is wrong, too")
	}
	os.Exit(code)
}

func TestOne(t *testing.T) {
	if does("fails") || does("both fail") {
		t.Error("wrong")
	}
	if strings.HasPrefix(os.Getenv("TOY"), "skips") {
		if does("skips later") {
			t.Fatal("wrong")
		}
		t.Skip("no more")
	}
	if does("panics") {
		panic("wrong")
	}
	if does("exits 1") {
		os.Exit(1)
	}
	if does("exits 0") {
		os.Exit(0)
	}
	if does("is ended") {
		syscall.Exit(0)
	}
	if does("hangs") {
		<-t.Context().Done()
	}
	if does("races") {
		n, done := 0, make(chan bool)
		go func() { n++; close(done) }()
		n++
		<-done
	}
}

func TestRows(t *testing.T) {
	t.Run("row", func(t *testing.T) {
		if does("a row fails") {
			t.Error("wrong")
		}
	})
	t.Run("skipped", func(t *testing.T) { t.Skip("why not") })
}

func six(t *testing.T) {
	if os.Getenv("TOY") == "six fail" {
		t.Error("wrong")
	}
}

func TestTwo(t *testing.T)   { six(t) }
func TestThree(t *testing.T) { six(t) }
func TestFour(t *testing.T)  { six(t) }
func TestFive(t *testing.T)  { six(t) }
func TestSix(t *testing.T)   { six(t) }
func TestSeven(t *testing.T) { six(t) }
