// Package child runs any other program beside this one, and describes how it fails. A program may be missing, be built
// for another machine, end by itself, never end, or never stop printing.
//
// It is for measurements and comparisons. It starts no program a second time.
package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// keptOutput is how many bytes of the end of its output are kept of a process, whatever it prints.
const keptOutput = 1 << 20

// Program says what to run.
type Program struct {
	// Name is what it is called in errors: "the controller".
	Name string
	// Path is its file, Arguments are those after its name.
	Path      string
	Arguments []string
	// Log is the file that gets the end of its output, up to a MiB, when the process has ended or LastWords is called;
	// empty for none.
	Log string
	// Stdin is its standard input; nil for an empty one.
	Stdin io.Reader
	// StopWithin is how long it may take to end before it is killed; 0 means 20 s.
	StopWithin time.Duration
}

// Process is a program that was started. It dies with this process, if the operating system can do that.
type Process struct {
	program Program
	cmd     *exec.Cmd
	output  tail
	began   time.Time
	ended   chan struct{} // closed when the process is gone
	took    time.Duration
	err     error // of its end
}

// Start runs a program. Its error says what is wrong with the file, and what helps.
func Start(p Program) (*Process, error) {
	if p.StopWithin == 0 {
		p.StopWithin = 20 * time.Second
	}
	//nolint:noctx // ended by Stop, in its own time: a cancelled context would kill it
	c := &Process{program: p, cmd: exec.Command(p.Path, p.Arguments...), began: time.Now(), ended: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr, c.cmd.Stdin = &c.output, &c.output, p.Stdin
	c.cmd.WaitDelay = time.Second // what it has started may hold its output open
	started := make(chan error)
	go func() {
		defer close(c.ended)
		release := tieToParent(c.cmd)
		defer release()
		err := c.cmd.Start()
		started <- err
		if err == nil {
			c.err = c.cmd.Wait()
			c.took = time.Since(c.began)
			_ = c.keepLog()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%s cannot be started: %w", p.Name, explain(p.Path, err))
	}
	return c, nil
}

// explain says what is wrong with the file of a program that the system refuses to start.
func explain(path string, err error) error {
	info, missing := os.Stat(path)
	switch {
	case errors.Is(missing, fs.ErrNotExist), errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("there is no file %s: check the path: %w", path, err)
	case missing != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a directory: name the program in it: %w", path, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s is not executable: chmod +x makes it so: %w", path, err)
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("%s is no program for %s/%s: take a build for this machine, and a script begins with #!: %w", path, runtime.GOOS, runtime.GOARCH, err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s is there, but not the interpreter or dynamic linker that it names: %w", path, err)
	default:
		return err
	}
}

// PID is the number of the process.
func (c *Process) PID() int { return c.cmd.Process.Pid }

// Began is when the process was started.
func (c *Process) Began() time.Time { return c.began }

// Ended is closed when the process is gone.
func (c *Process) Ended() <-chan struct{} { return c.ended }

// ByItself returns an error if the process has ended although nobody asked it to, and nil while it runs. The error has
// the last words of the process, the place of its log, and the command to run it by hand.
func (c *Process) ByItself() error {
	select {
	case <-c.ended:
	default:
		return nil
	}
	how := "with exit status 0"
	if c.err != nil {
		how = "with " + c.err.Error()
	}
	return fmt.Errorf("%s ended by itself after %.1f s %s: run it by hand to see why: %s %s\n%w", c.program.Name, c.took.Seconds(), how,
		c.program.Path, strings.Join(c.program.Arguments, " "), c.LastWords())
}

// Stop sends SIGTERM to the process. If the process does not end, Stop kills it and its children. Stop returns an error
// if the process had ended before, or had to be killed.
func (c *Process) Stop() error {
	if err := c.ByItself(); err != nil {
		return err
	}
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", c.program.Name, err)
	}
	select {
	case <-c.ended:
		return nil
	case <-time.After(c.program.StopWithin):
	}
	err := syscall.Kill(-c.PID(), syscall.SIGKILL)
	<-c.ended
	return errors.Join(fmt.Errorf("%s did not end within %s of SIGTERM, and was killed", c.program.Name, c.program.StopWithin), err)
}

// LastWords is the end of the process's output, as an error that explains another.
func (c *Process) LastWords() error {
	const lines, most = 8, 4000
	all := strings.Split(strings.TrimSpace(c.output.String()), "\n")
	end := strings.Join(all[max(len(all)-lines, 0):], "\n")
	end = end[max(len(end)-most, 0):]
	if end == "" {
		end = "(it has printed nothing)"
	}
	where := ""
	if err := c.keepLog(); err != nil {
		where = " (not kept: " + err.Error() + ")"
	} else if c.program.Log != "" {
		where = ", " + c.program.Log
	}
	return fmt.Errorf("the end of the log of %s%s:\n%s", c.program.Name, where, end)
}

// keepLog writes what is kept of the output into the log's file.
func (c *Process) keepLog() error {
	if c.program.Log == "" {
		return nil
	}
	return os.WriteFile(c.program.Log, []byte(c.output.String()), 0o600)
}

// Until calls check again and again until it succeeds, the process ends, or within is over.
func (c *Process) Until(ctx context.Context, within time.Duration, what string, check func(context.Context) error) error {
	const every = 50 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-c.ended:
			return c.ByItself()
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w: %w", what, ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	kept []byte
	// written is how many bytes there were in all.
	written int64
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept, t.written = append(t.kept, p...), t.written+int64(len(p))
	if over := len(t.kept) - keptOutput; over > keptOutput { // not at each write
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept[max(len(t.kept)-keptOutput, 0):])
}

// helpWithin is how long a program may take to print its flags.
const helpWithin = 5 * time.Second

// Help is what a controller's program says of its flags.
type Help struct {
	command []string
	text    string
}

// HelpOf asks a program for its flags, or for those of a command if the program has the command. So a build of any
// commit gets only flags that it knows, and so does cert-manager's controller, which has no commands. A program that
// prints no help in time knows no flag. The error is that of Start.
func HelpOf(path, command string) (*Help, error) {
	text, err := askHelp(path)
	if err != nil {
		return nil, err
	}
	if !strings.Contains(text, "--kubeconfig") {
		if of, err := askHelp(path, command); err == nil && strings.Contains(of, "--kubeconfig") {
			return &Help{[]string{command}, of}, nil
		}
	}
	return &Help{nil, text}, nil
}

// Arguments returns the command, if there is one, and those flags (--name=value) that the help names.
func (h *Help) Arguments(flags ...string) []string {
	arguments := slices.Clone(h.command)
	for _, flag := range flags {
		if name, _, _ := strings.Cut(flag, "="); strings.Contains(h.text, name+" ") || strings.Contains(h.text, name+"=") {
			arguments = append(arguments, flag)
		}
	}
	return arguments
}

// askHelp is what a program prints of itself, as far as it does in time.
func askHelp(path string, command ...string) (string, error) {
	c, err := Start(Program{Name: "the program", Path: path, Arguments: append(command, "--help"), StopWithin: time.Second})
	if err != nil {
		return "", err
	}
	select {
	case <-c.ended:
	case <-time.After(helpWithin):
		_ = c.Stop()
	}
	return c.output.String(), nil
}
