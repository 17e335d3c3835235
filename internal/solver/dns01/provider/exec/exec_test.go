package exec_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"

	"chancery.dev/internal/fault"
	"chancery.dev/internal/rig/tool"
	"chancery.dev/internal/solver/dns01"
	"chancery.dev/internal/solver/dns01/provider/exec"
	"chancery.dev/internal/solver/dns01/provider/limit"
	"chancery.dev/internal/solver/dns01/wire"
)

// programMode is the first argument that makes this test binary a provider program.
const programMode = "act-as-provider-program"

func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == programMode {
		act(os.Args[2], os.Args[3])
		return
	}
	os.Exit(m.Run())
}

// act is a provider program. It notes what it did in a file of its own for each process.
func act(behaviour, dir string) {
	notes, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("%d.log", os.Getpid())), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	p := &program{behaviour: behaviour, dir: dir, notes: notes}
	p.note("env " + strings.Join(os.Environ(), " "))
	p.note("args " + strings.Join(os.Args[4:], " "))
	if err := wire.Serve(context.Background(), os.Stdin, os.Stdout, p); err != nil {
		panic(err)
	}
	p.note("ended")
}

type program struct {
	behaviour, dir string
	notes          *os.File
	c              wire.Configuration
}

func (p *program) note(s string) { fmt.Fprintln(p.notes, s) }

func (p *program) Capabilities() wire.Capabilities {
	return wire.Capabilities{Providers: []string{"any"}}
}

func (p *program) Configure(_ context.Context, c wire.Configuration) (wire.Capabilities, error) {
	p.c = c
	text, err := json.Marshal(c)
	p.note("configure " + string(text))
	return wire.Capabilities{Stateful: p.behaviour == "stateful" || p.behaviour == "mortal"}, err
}

func (p *program) Present(_ context.Context, r wire.Record) error {
	p.note("present " + r.FQDN + " " + r.Value + " " + fmt.Sprint(r.TTL) + " " + r.KeyAuthorization)
	if r.Value == silent {
		<-time.After(time.Hour) // as below
	}
	return p.behave()
}

// silent is the value of a record that a program does not come back with.
const silent = "silent"

func (p *program) CleanUp(_ context.Context, r wire.Record) error {
	p.note("cleanup " + r.FQDN + " " + r.Value)
	return p.behave()
}

func (p *program) behave() error {
	switch p.behaviour {
	case "hang":
		<-time.After(time.Hour) // the program is killed before; without cgo, select {} would end it as a deadlock
	case "crash":
		os.Exit(3)
	case "once", "mortal":
		fmt.Fprintln(os.Stdout, `{"id":3,"ok":true}`)
		os.Exit(0)
	case "garbage":
		fmt.Fprintln(os.Stdout, "Password: "+p.c.Secrets["TOKEN"])
	case "leak":
		fmt.Fprintln(os.Stderr, "calling with "+p.c.Secrets["TOKEN"])
		return errors.New("the API says no to " + p.c.Secrets["TOKEN"] + ", request id: 8f14e45fceea167a, at " + time.Now().Format(time.RFC3339Nano))
	case "denied":
		return wire.Failed(wire.ClassCredential, "401 Unauthorized")
	case "throttled":
		return &wire.Failure{Class: wire.ClassThrottled, RetryAfter: 90, Err: errors.New("429 Too Many Requests")}
	case "forever":
		return &wire.Failure{Class: wire.ClassThrottled, RetryAfter: 1 << 55, Err: errors.New("come back in another life")}
	case "gate":
		for _, err := os.Stat(filepath.Join(p.dir, "open")); err != nil; _, err = os.Stat(filepath.Join(p.dir, "open")) {
			time.Sleep(10 * time.Millisecond) //nolint:forbidigo // a process, not our clock
		}
	case "nozone":
		return errors.New("no such zone")
	}
	return nil
}

// world is a pool with one program.
type world struct {
	dir  string
	pool *exec.Pool
	mu   sync.Mutex
	log  []string
	now  time.Time
}

func newWorld(t *testing.T, behaviour string, change func(*exec.Options)) *world {
	t.Helper()
	w := &world{dir: t.TempDir(), now: time.Unix(1_700_000_000, 0)}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := tool.Script(t, fmt.Sprintf("#!/bin/sh\nGORACE=atexit_sleep_ms=0 exec %q %s %s %q \"$@\"\n", self, programMode, behaviour, w.dir))
	o := exec.Options{
		Programs: map[string]string{"*": script},
		Environ:  []string{"PATH=" + os.Getenv("PATH"), "AWS_SECRET_ACCESS_KEY=of-the-controller", "HTTPS_PROXY=http://proxy.test"},
		Timeout:  30 * time.Second, Idle: time.Minute,
		Limits: limit.New(limit.Options{Now: func() time.Time { w.mu.Lock(); defer w.mu.Unlock(); return w.now }}),
		Log: funcr.New(func(prefix, args string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.log = append(w.log, prefix+args)
		}, funcr.Options{}),
	}
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if w.pool, err = exec.New(ctx, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		w.await(t, "all processes end", func() bool { return w.running() == 0 })
	})
	return w
}

func (w *world) step(d time.Duration) { w.mu.Lock(); defer w.mu.Unlock(); w.now = w.now.Add(d) }

// notes are the lines that all processes have noted.
func (w *world) notes() (lines []string) {
	files, _ := filepath.Glob(filepath.Join(w.dir, "*.log"))
	for _, f := range files {
		text, _ := os.ReadFile(f)
		scan := bufio.NewScanner(strings.NewReader(string(text)))
		for scan.Scan() {
			lines = append(lines, scan.Text())
		}
	}
	return lines
}

func (w *world) count(prefix string) int {
	n := 0
	for _, l := range w.notes() {
		if strings.HasPrefix(l, prefix) {
			n++
		}
	}
	return n
}

// running counts the processes that are there.
func (w *world) running() int {
	files, _ := filepath.Glob(filepath.Join(w.dir, "*.log"))
	n := 0
	for _, f := range files {
		if _, err := os.Stat("/proc/" + strings.TrimSuffix(filepath.Base(f), ".log") + "/fd"); err == nil {
			n++
		}
	}
	return n
}

func (w *world) await(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.After(2 * time.Minute) // as rig.Patience
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not in time: %s; notes %q", what, w.notes())
		}
	}
}

func (w *world) provider(t *testing.T, c exec.Config) *exec.Provider {
	t.Helper()
	p, err := w.pool.Provider(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const secret = "s3cr3t/with+odd=chars"

func config(name string) exec.Config {
	return exec.Config{Configuration: wire.Configuration{
		Provider: name, Config: map[string]string{"REGION": "here"}, Secrets: map[string]string{"TOKEN": secret},
	}}
}

func record(value string) dns01.Record {
	return dns01.Record{
		Domain: "example.test", FQDN: "_acme-challenge.example.test.", Zone: "example.test.",
		Value: value, Token: "token", KeyAuthorization: "token.thumb", TTL: 60,
	}
}

func isFault(t *testing.T, err error, reason string, words ...string) {
	t.Helper()
	f := fault.Of(err)
	if f == nil || f.Reason != reason {
		t.Fatalf("got %v (%+v), want reason %s", err, f, reason)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("it says %q, which lacks %q", err, word)
		}
	}
	if strings.Contains(err.Error(), secret) {
		t.Errorf("%q gives the secret away", err)
	}
}

func TestOneProcessForEachCredential(t *testing.T) {
	w := newWorld(t, "well", nil)
	other := config("any")
	other.Secrets = map[string]string{"TOKEN": "another"}
	for range 3 {
		for _, c := range []exec.Config{config("any"), other} {
			if err := w.provider(t, c).Present(t.Context(), record("value")); err != nil {
				t.Fatal(err)
			}
			if err := w.provider(t, c).CleanUp(t.Context(), record("value")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := w.count("configure"); got != 2 {
		t.Errorf("%d processes, want one for each of two credentials: %q", got, w.notes())
	}
	if !slices.Contains(w.notes(), "present _acme-challenge.example.test. value 60 token.thumb") {
		t.Errorf("the record did not arrive: %q", w.notes())
	}
	config60 := config("any")
	config60.TTL = 300
	if err := w.provider(t, config60).Present(t.Context(), record("long")); err != nil || w.count("present _acme-challenge.example.test. long 300") != 1 {
		t.Errorf("TTL of the configuration: %v, %q", err, w.notes())
	}
}

// Credentials are data: neither the environment nor the command line carries them, and
// the controller's own stay with it unless the issuer may use them.
func TestCredentialsAreData(t *testing.T) {
	hostile := config("any")
	hostile.Secrets = map[string]string{
		"LD_PRELOAD": "/tmp/evil.so", "PATH": "/tmp/evil", "AWS_WEB_IDENTITY_TOKEN_FILE": "/etc/shadow", "A=B": "x\ny", "--flag": "$(touch /tmp/evil)",
	}
	for _, ambient := range []bool{false, true} {
		w := newWorld(t, "well", nil)
		c := hostile
		c.Ambient = ambient
		if err := w.provider(t, c).Present(t.Context(), record("value")); err != nil {
			t.Fatal(err)
		}
		for _, l := range w.notes() {
			if !strings.HasPrefix(l, "env ") && !strings.HasPrefix(l, "args ") {
				continue
			}
			for _, word := range []string{"evil", "shadow", "--flag", "A=B"} {
				if strings.Contains(l, word) {
					t.Errorf("%q reached the process by %s", word, l)
				}
			}
			if strings.HasPrefix(l, "env ") && strings.Contains(l, "of-the-controller") != ambient {
				t.Errorf("ambient %t: %s", ambient, l)
			}
			if strings.HasPrefix(l, "env ") && !strings.Contains(l, "proxy.test") {
				t.Errorf("the operator's proxy is lost: %s", l)
			}
		}
	}
}

func TestIdleProcessEnds(t *testing.T) {
	w := newWorld(t, "well", func(o *exec.Options) { o.Idle = 50 * time.Millisecond })
	for n := range 2 {
		if err := w.provider(t, config("any")).Present(t.Context(), record("value")); err != nil {
			t.Fatal(err)
		}
		w.await(t, "the process ends", func() bool { return w.count("ended") == n+1 && w.running() == 0 })
	}
}

// A program that remembers what to clean up is kept until it has.
func TestStatefulProgramIsKept(t *testing.T) {
	w := newWorld(t, "stateful", func(o *exec.Options) { o.Idle = 20 * time.Millisecond })
	other := config("any")
	other.Identity = "other"
	p, q := w.provider(t, config("any")), w.provider(t, other)
	if err := errors.Join(p.Present(t.Context(), record("value")), q.Present(t.Context(), record("value")), q.CleanUp(t.Context(), record("value"))); err != nil {
		t.Fatal(err)
	}
	// The one with nothing left to do ends although it was used last; the other stays.
	w.await(t, "the one without work ends", func() bool { return w.count("ended") == 1 && w.running() == 1 })
	if err := p.CleanUp(t.Context(), record("value")); err != nil {
		t.Fatal(err)
	}
	w.await(t, "the other ends", func() bool { return w.count("ended") == 2 })
	if got := w.count("configure"); got != 2 {
		t.Errorf("%d processes, want 2", got)
	}
}

// A program that has died remembers nothing, and takes no place.
func TestDeadProgramIsNotKept(t *testing.T) {
	w := newWorld(t, "mortal", func(o *exec.Options) { o.Idle = 20 * time.Millisecond })
	if err := w.provider(t, config("any")).Present(t.Context(), record("value")); err != nil {
		t.Fatal(err)
	}
	w.await(t, "its place is free", func() bool { return w.pool.Places() == 0 })
}

func TestProcessesAreBounded(t *testing.T) {
	w := newWorld(t, "well", func(o *exec.Options) { o.MaxProcesses = 4 }) // a namespace alone has two
	most := 0
	for n := range 6 {
		c := config("any")
		c.Identity = fmt.Sprint(n)
		if err := w.provider(t, c).Present(t.Context(), record("value")); err != nil {
			t.Fatal(err)
		}
		w.await(t, "the one that had to make room is gone", func() bool { return w.running() <= 2 })
		most = max(most, w.running())
	}
	if most != 2 {
		t.Errorf("at most %d processes ran, want 2", most)
	}
}

// Who waits for a place gets it as soon as another has done its work, not when that has
// been idle for long enough.
func TestPlaceIsGivenUpToWhoWaits(t *testing.T) {
	w := newWorld(t, "gate", func(o *exec.Options) { o.MaxProcesses = 1 })
	other := config("any")
	other.Identity = "other"
	errs := make(chan error, 2)
	go func() { errs <- w.provider(t, config("any")).Present(t.Context(), record("value")) }()
	w.await(t, "the first one works", func() bool { return w.count("present") == 1 })
	go func() { errs <- w.provider(t, other).Present(t.Context(), record("value")) }()
	w.await(t, "the other one waits", func() bool { return w.pool.Waits("") })
	if err := os.WriteFile(filepath.Join(w.dir, "open"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// A provider that says never is asked again after the longest pause.
func TestRetryAfterIsBounded(t *testing.T) {
	w := newWorld(t, "forever", nil)
	p := w.provider(t, config("any"))
	first := p.Present(t.Context(), record("value"))
	isFault(t, first, exec.ReasonThrottled)
	if f := fault.Of(first); f.Delay != 10*time.Minute {
		t.Errorf("to come back after %s, want 10 minutes", f.Delay)
	}
	isFault(t, p.Present(t.Context(), record("value")), limit.ReasonPaused)
	w.step(10 * time.Minute)
	isFault(t, p.Present(t.Context(), record("value")), exec.ReasonThrottled)
}

func TestFailures(t *testing.T) {
	for _, c := range []struct {
		behaviour, reason string
		words             []string
	}{
		{"crash", exec.ReasonProgram, []string{"ended without an answer"}},
		{"garbage", exec.ReasonProgram, []string{"does not speak the provider protocol"}},
		{"denied", exec.ReasonCredential, []string{"401 Unauthorized"}},
		{"throttled", exec.ReasonThrottled, []string{"429"}},
		{"nozone", dns01.ReasonRefused, []string{"any: no such zone"}},
		{"leak", dns01.ReasonRefused, []string{"[redacted]", "[…]"}},
		{"hang", exec.ReasonProgram, []string{"did not answer in time"}},
	} {
		t.Run(c.behaviour, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, c.behaviour, func(o *exec.Options) {
				if c.behaviour == "hang" {
					o.Timeout = 2 * time.Second
				}
			})
			p := w.provider(t, config("any"))
			first := p.Present(t.Context(), record("value"))
			isFault(t, first, c.reason, c.words...)
			if c.behaviour == "throttled" {
				isFault(t, p.Present(t.Context(), record("value")), limit.ReasonPaused)
				return
			}
			if again := p.Present(t.Context(), record("value")); again == nil || again.Error() != first.Error() {
				t.Errorf("first %q, then %q: a status would churn", first, again)
			}
		})
	}
}

func TestStandardErrorIsLoggedWithoutSecrets(t *testing.T) {
	w := newWorld(t, "leak", nil)
	isFault(t, w.provider(t, config("any")).Present(t.Context(), record("value")), dns01.ReasonRefused)
	logged := func() string { w.mu.Lock(); defer w.mu.Unlock(); return strings.Join(w.log, "\n") }
	w.await(t, "a line in the log", func() bool { return strings.Contains(logged(), "calling with [redacted]") })
	if strings.Contains(logged(), secret) {
		t.Errorf("the log has the secret: %s", logged())
	}
}

// Three refusals in a row pause a credential, longer each time; another one goes on, and
// a zone that is not there pauses nothing.
func TestBreaker(t *testing.T) {
	w := newWorld(t, "denied", nil)
	p := w.provider(t, config("any"))
	for range 3 {
		isFault(t, p.Present(t.Context(), record("value")), exec.ReasonCredential)
	}
	for _, pause := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute} {
		err := p.Present(t.Context(), record("value"))
		isFault(t, err, limit.ReasonPaused, "401 Unauthorized")
		if f := fault.Of(err); f.Delay != pause {
			t.Errorf("paused for %s, want %s", f.Delay, pause)
		}
		asked := w.count("present")
		w.step(pause)
		isFault(t, p.Present(t.Context(), record("value")), exec.ReasonCredential)
		if w.count("present") != asked+1 {
			t.Errorf("asked %d times after the pause, want once", w.count("present")-asked)
		}
	}
	other := config("any")
	other.Secrets = map[string]string{"TOKEN": "corrected"}
	isFault(t, w.provider(t, other).Present(t.Context(), record("value")), exec.ReasonCredential)

	w = newWorld(t, "nozone", nil)
	for range 5 {
		isFault(t, w.provider(t, config("any")).Present(t.Context(), record("value")), dns01.ReasonRefused)
	}
}

func TestProgramThatEndsAfterEachAnswer(t *testing.T) {
	w := newWorld(t, "once", nil)
	p := w.provider(t, config("any"))
	for range 3 {
		if err := p.Present(t.Context(), record("value")); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.count("configure"); got != 3 {
		t.Errorf("%d processes, want one for each request", got)
	}
}

// A caller that runs out of time leaves the work going on, and does not end it for others.
func TestCallerThatGivesUp(t *testing.T) {
	w := newWorld(t, "hang", nil)
	p := w.provider(t, config("any"))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Present(ctx, record("value")) }()
	w.await(t, "the program works", func() bool { return w.count("present") == 1 })
	cancel()
	isFault(t, <-done, limit.ReasonBusy)
	if w.running() != 1 {
		t.Error("the program was ended with its caller")
	}
	isFault(t, p.Present(ctx, record("value")), limit.ReasonBusy)
}

func TestUnixSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	dir := t.TempDir()
	notes, err := os.Create(filepath.Join(dir, "0.log"))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			p := &program{notes: notes}
			_ = wire.Serve(t.Context(), conn, conn, p)
			p.note("ended")
		}
	}()
	w := newWorld(t, "well", func(o *exec.Options) {
		o.Programs = map[string]string{"corp": "unix:" + socket}
		o.Idle = 20 * time.Millisecond
	})
	w.dir = dir
	for n := range 2 {
		if err := w.provider(t, config("corp")).Present(t.Context(), record("value")); err != nil {
			t.Fatal(err)
		}
		w.await(t, "the connection ends", func() bool { return w.count("ended") == n+1 })
	}
	_, err = w.pool.Provider(config("unlisted"))
	if isFault(t, err, exec.ReasonNoProgram, "--dns01-provider-programs"); !fault.IsTerminal(err) {
		t.Error("an unlisted program is no terminal fault")
	}
	_ = listener.Close()
	isFault(t, w.provider(t, config("corp")).Present(t.Context(), record("value")), exec.ReasonProgram, socket)
}

func TestLateSecrets(t *testing.T) {
	w := newWorld(t, "well", nil)
	minted := 0
	c := config("any")
	c.Late = func(context.Context) (map[string]string, error) {
		minted++
		return map[string]string{"WEB_TOKEN": fmt.Sprint("minted-", minted)}, nil
	}
	for range 2 {
		if err := w.provider(t, c).Present(t.Context(), record("value")); err != nil {
			t.Fatal(err)
		}
	}
	if minted != 1 || w.count("configure") != 1 {
		t.Errorf("minted %d times for %d processes, want once", minted, w.count("configure"))
	}
	c.Identity, c.Late = "refused", func(context.Context) (map[string]string, error) { return nil, errors.New("forbidden") }
	isFault(t, w.provider(t, c).Present(t.Context(), record("value")), exec.ReasonCredential, "forbidden")
}

func TestProgramsAreChecked(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, says := range map[string]string{
		"chancery-dns": "not an absolute path", "/does/not/exist": "no such file", plain: "not an executable",
		filepath.Dir(plain): "not an executable", "unix:sock": "not an absolute path",
	} {
		if _, err := exec.New(t.Context(), exec.Options{Programs: map[string]string{"*": path}, Log: logr.Discard()}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("program %q: %v, want %q", path, err, says)
		}
	}
	for _, bad := range []string{"chancery-dns", "=x", "x=", "a=/b"} {
		if _, err := exec.ParsePrograms([]string{"a=/a", bad}); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
