package bench

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// stopWithin is how long a child process may take to end before it is killed.
const stopWithin = 20 * time.Second

// child is a process of ours. Its output goes to a file.
type child struct {
	name   string
	cmd    *exec.Cmd
	log    string
	exited chan struct{} // closed when the process is gone
	err    error         // of its end
}

// startChild runs a command with its output in the file log. It dies with this process, where the system offers that.
func startChild(name, log string, stdin io.Reader, binary string, arguments ...string) (*child, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	//nolint:noctx // ended by stop, in its own time: a cancelled context would kill it
	c := &child{name: name, cmd: exec.Command(binary, arguments...), log: log, exited: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr, c.cmd.Stdin = file, file, stdin
	started := make(chan error)
	go func() {
		defer close(c.exited)
		release := tieToParent(c.cmd)
		defer release()
		err := c.cmd.Start()
		_ = file.Close() // the child has its own
		started <- err
		if err == nil {
			c.err = c.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return c, nil
}

// stop asks the process to end, and insists.
func (c *child) stop() error {
	select {
	case <-c.exited:
		return fmt.Errorf("%s ended before it was asked to: %w", c.name, errors.Join(c.err, c.lastWords()))
	default:
	}
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop %s: %w", c.name, err)
	}
	select {
	case <-c.exited:
		return nil
	case <-time.After(stopWithin):
		return errors.Join(fmt.Errorf("%s did not stop within %s and is killed", c.name, stopWithin), c.cmd.Process.Kill())
	}
}

// lastWords is the end of the process's output, as an error that explains another.
func (c *child) lastWords() error {
	const lines, most = 8, 4000
	text, err := os.ReadFile(c.log)
	if err != nil {
		return err
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	tail := strings.Join(all[max(len(all)-lines, 0):], "\n")
	return fmt.Errorf("the end of the log of %s:\n%s", c.name, tail[max(len(tail)-most, 0):])
}
