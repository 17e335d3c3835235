package exec

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"slices"
	"strings"
	"time"

	"chancery.dev/internal/egress"
	"chancery.dev/internal/kube/leader/term"
	"chancery.dev/internal/solver/dns01/wire"
)

// errEnded: the program ended, or closed the connection, without an answer.
var errEnded = errors.New("the program ended without an answer")

const (
	// maxStderr bounds what is logged of one process, in octets.
	maxStderr = 256 << 10
	// maxStderrLine bounds one line of it, and maxHeldLine what is held until the line ends.
	maxStderrLine = 4 << 10
	maxHeldLine   = 64 << 10
	// grace is how long a process may take to end once its input has.
	grace = 2 * time.Second
)

// session is one process, or one connection to a socket.
type session struct {
	began   time.Time
	in      io.WriteCloser
	lines   chan line
	redact  func(string) string
	stop    func()
	nextID  int64
	stopped chan struct{}
	// ended is closed when the program has ended.
	ended chan struct{}
}

type line struct {
	text []byte
	err  error
}

// start runs a program, or connects to it.
func (p *Pool) start(ctx context.Context, path string, c wire.Configuration) (*session, error) {
	s := &session{began: time.Now(), redact: redactor(c.Secrets), lines: make(chan line), stopped: make(chan struct{}), ended: make(chan struct{})}
	if socket, ok := strings.CutPrefix(path, socketPrefix); ok {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err != nil {
			return nil, fmt.Errorf("the socket %s: %s", socket, egress.Cause(err))
		}
		s.in, s.stop = conn, func() { _ = conn.Close() } // nothing is lost with a connection that is over
		go s.read(conn)
		return s, nil
	}
	cmd := exec.Command(path) //nolint:noctx // it lives from request to request; stop ends it
	// Never nil, which would mean the whole environment.
	cmd.Env = append([]string{}, environ(p.o.Environ, c.Ambient)...)
	cmd.Dir = "/"
	ownGroup(cmd)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = &logLines{log: p.o.Log.WithValues("program", path, "provider", c.Provider), redact: s.redact, left: maxStderr}
	cmd.WaitDelay = grace // a grandchild may hold its standard error open
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %s", path, egress.Cause(err))
	}
	s.in = stdin
	s.stop = func() {
		_ = stdin.Close() // the way to tell a program that it is no longer needed
		kill := time.AfterFunc(grace, func() { killGroup(cmd) })
		go func() {
			_ = cmd.Wait() // the answers have said what went wrong
			kill.Stop()
			killGroup(cmd) // its children
		}()
	}
	go s.read(stdout)
	return s, nil
}

// environ returns the environment of a program. The controller's variables that may hold credentials are left out,
// unless ambient credentials are allowed.
func environ(own []string, ambient bool) []string {
	kept := wire.Environment()
	return slices.DeleteFunc(slices.Clone(own), func(e string) bool {
		name, _, ok := strings.Cut(e, "=")
		return !ambient && (!ok || !slices.Contains(kept, name))
	})
}

// read hands on the program's lines until the program ends or is stopped.
func (s *session) read(r io.Reader) {
	scan := bufio.NewScanner(r)
	scan.Buffer(make([]byte, 0, 4<<10), wire.MaxLine)
	for scan.Scan() {
		select {
		case s.lines <- line{text: slices.Clone(scan.Bytes())}:
		case <-s.stopped:
			return
		}
	}
	close(s.ended)
	err := errEnded
	if errors.Is(scan.Err(), bufio.ErrTooLong) {
		err = fmt.Errorf("the program wrote a line of more than %d octets", wire.MaxLine)
	}
	select {
	case s.lines <- line{err: err}:
	case <-s.stopped:
	}
}

// ask puts one request and waits for its answer.
func (s *session) ask(ctx context.Context, q wire.Request) (wire.Response, error) {
	if err := term.Check(ctx); err != nil {
		return wire.Response{}, err
	}
	s.nextID++
	q.ID = s.nextID
	text, err := json.Marshal(q)
	if err != nil {
		return wire.Response{}, err
	}
	if len(text) >= wire.MaxLine {
		return wire.Response{}, fmt.Errorf("the configuration is larger than a message may be: %d octets", wire.MaxLine)
	}
	// A program that does not read must not block the caller.
	wrote := make(chan error, 1)
	go func() {
		_, err := s.in.Write(append(text, '\n'))
		wrote <- err
	}()
	for {
		select {
		case err := <-wrote:
			if err != nil {
				return wire.Response{}, errEnded
			}
			wrote = nil
		case l := <-s.lines:
			var a wire.Response
			if l.err != nil {
				return a, l.err
			}
			if err := json.Unmarshal(l.text, &a); err != nil || a.ID != q.ID {
				// The line is not quoted: it may hold a secret.
				return a, errors.New("the program does not speak the provider protocol: it wrote a line that is no answer to the request")
			}
			return a, nil
		case <-ctx.Done():
			return wire.Response{}, ctx.Err()
		}
	}
}

// explain says why there is no answer.
func (s *session) explain(ctx context.Context, err error) string {
	if ctx.Err() != nil {
		return "the program did not answer in time, and was ended"
	}
	return err.Error()
}

// close ends the program: it closes its input at once, and kills it soon after.
func (s *session) close() {
	close(s.stopped)
	s.stop()
}
