package wire

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Handler does what requests ask for, one at a time.
type Handler interface {
	// Capabilities says what the program can do.
	Capabilities() Capabilities
	// Configure takes the configuration. It is called once, before the others.
	Configure(ctx context.Context, c Configuration) (Capabilities, error)
	// Present adds the record. It MUST be idempotent and leave other values alone.
	Present(ctx context.Context, r Record) error
	// CleanUp removes the record with this value. It MUST succeed if there is none.
	CleanUp(ctx context.Context, r Record) error
}

// Failure is an error that knows its class.
type Failure struct {
	// Class of the failure.
	Class Class
	// RetryAfter in seconds, or 0.
	RetryAfter int
	// Err says what happened; never nil.
	Err error
}

// Error returns the message of the underlying error.
func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap returns the underlying error.
func (f *Failure) Unwrap() error { return f.Err }

// Failed makes a Failure. The format may wrap an error with %w.
func Failed(class Class, format string, args ...any) error {
	return &Failure{Class: class, Err: fmt.Errorf(format, args...)}
}

// Serve answers the requests of r on w until r ends, which is no error.
func Serve(ctx context.Context, r io.Reader, w io.Writer, h Handler) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), MaxLine)
	out := json.NewEncoder(w) // it ends each message with a newline
	for ctx.Err() == nil && lines.Scan() {
		var q Request
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			// Not the decoder's own words: they may quote the line, which may hold a secret.
			return errors.New("a request is not a JSON object of this protocol")
		}
		if err := out.Encode(answer(ctx, h, q)); err != nil {
			return err
		}
	}
	return lines.Err()
}

func answer(ctx context.Context, h Handler, q Request) Response {
	a := Response{ID: q.ID}
	var err error
	switch q.Op {
	case OpCapabilities:
		a.Capabilities = h.Capabilities()
		a.Protocol = Version
	case OpConfigure:
		a.Capabilities, err = h.Configure(ctx, q.Configuration)
	case OpPresent:
		err = h.Present(ctx, q.Record)
	case OpCleanUp:
		err = h.CleanUp(ctx, q.Record)
	default:
		err = fmt.Errorf("operation %q is not known: this program speaks version %d of the protocol", q.Op, Version)
	}
	a.OK = err == nil
	if err != nil {
		a.Error = err.Error()
		if f, ok := errors.AsType[*Failure](err); ok {
			a.Class, a.RetryAfter = f.Class, f.RetryAfter
		}
	}
	return a
}
