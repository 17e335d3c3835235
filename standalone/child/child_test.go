package child

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"chancery.dev/internal/rig/tool"
)

// wantWords: an error says all of it.
func wantWords(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

func start(t *testing.T, script string) *Process {
	t.Helper()
	p, err := Start(Program{Name: "the controller", Path: tool.Script(t, "#!/bin/sh\n"+script), Log: filepath.Join(t.TempDir(), "log"), StopWithin: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop() })
	return p
}

// TestStartSaysWhatIsWrongWithTheFile: each way a file can be no program has its own words.
func TestStartSaysWhatIsWrongWithTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain, foreign := filepath.Join(dir, "plain"), filepath.Join(dir, "foreign")
	if err := os.WriteFile(plain, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// An ELF header of a machine that nobody has.
	if err := tool.WriteProgram(foreign, "\x7fELF\x02\x01\x01"+strings.Repeat("\x00", 9)+"\x02\x00\xff\xff"+strings.Repeat("\x00", 44)); err != nil {
		t.Fatal(err)
	}
	for path, words := range map[string][]string{
		filepath.Join(dir, "none"):        {"there is no file", "check the path"},
		dir:                               {"is a directory"},
		plain:                             {"is not executable", "chmod +x"},
		foreign:                           {"is no program for", "take a build for this machine"},
		tool.Script(t, "no first line\n"): {"is no program for", "#!"},
		tool.Script(t, "#!/nowhere/interpreter -x\n"): {"is there, but not the interpreter"},
	} {
		_, err := Start(Program{Name: "the controller", Path: path})
		wantWords(t, err, append(words, "the controller cannot be started", path)...)
	}
}

func TestEndsByItself(t *testing.T) {
	t.Parallel()
	for script, words := range map[string][]string{
		"echo 'unknown flag: --kubeconfig' >&2; exit 3": {"with exit status 3", "unknown flag: --kubeconfig", "run it by hand"},
		"exit 0":          {"with exit status 0", "(it has printed nothing)"},
		"kill -SEGV $$":   {"with signal: segmentation fault"},
		"sleep 0.2; exit": {"ended by itself after 0."},
	} {
		p := start(t, script)
		err := p.Until(t.Context(), 10*time.Second, "it works", func(context.Context) error { return errors.New("not yet") })
		wantWords(t, err, append(words, "the controller ended by itself", p.program.Log, p.program.Path)...)
		wantWords(t, p.Stop(), "ended by itself")
		if _, err := os.Stat(p.program.Log); err != nil {
			t.Error(err)
		}
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	obeys := start(t, "exec sleep 100")
	if err := errors.Join(obeys.ByItself(), obeys.Stop()); err != nil {
		t.Error(err)
	}
	// It has a child of its own, which holds its output open.
	ignores := start(t, "trap '' TERM; echo ready; sleep 100")
	if err := ignores.Until(t.Context(), 10*time.Second, "it is ready", func(context.Context) error {
		if ignores.output.String() == "" {
			return errors.New("not yet")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	wantWords(t, ignores.Stop(), "did not end within 300ms of SIGTERM, and was killed")
}

func TestUntilIsBounded(t *testing.T) {
	t.Parallel()
	p := start(t, "exec sleep 100")
	err := p.Until(t.Context(), 100*time.Millisecond, "it works", func(context.Context) error { return errors.New("not yet") })
	wantWords(t, err, "waiting until it works", "not yet")
}

// TestEndlessOutput: of a program that prints without end, the end is kept, in memory and on the disk.
func TestEndlessOutput(t *testing.T) {
	t.Parallel()
	p := start(t, "exec yes line")
	if err := p.Until(t.Context(), 30*time.Second, "it has printed more than is kept", func(context.Context) error {
		p.output.mu.Lock()
		defer p.output.mu.Unlock()
		if p.output.written < 5*keptOutput {
			return errors.New("not yet")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	wantWords(t, p.LastWords(), "line\nline")
	info, err := os.Stat(p.program.Log)
	if err != nil || info.Size() != keptOutput {
		t.Errorf("%v: the log has %d bytes, want %d", err, info.Size(), keptOutput)
	}
	if kept := cap(p.output.kept); kept > 4*keptOutput {
		t.Errorf("%d bytes of memory are held", kept)
	}
}

// TestHelp: a program gets its command and the flags that it knows.
func TestHelp(t *testing.T) {
	t.Parallel()
	for script, want := range map[string][]string{
		"#!/bin/sh\necho '  --kubeconfig string\n  --leader-elect  bool\n'":                                             {"--leader-elect=false"},
		"#!/bin/sh\nif [ \"$1\" = controller ]; then echo '  --kubeconfig string\n  --known=x'; else echo Commands; fi": {"controller", "--known=1"},
		"#!/bin/sh\nexit 1": nil,
	} {
		help, err := HelpOf(tool.Script(t, script), "controller")
		if err != nil {
			t.Fatal(err)
		}
		if got := help.Arguments("--leader-elect=false", "--known=1", "--unknown=1"); !slices.Equal(got, want) {
			t.Errorf("%q gets %q, want %q", script, got, want)
		}
	}
	_, err := HelpOf(tool.Script(t, "no first line"), "controller")
	wantWords(t, err, "is no program for")
}
