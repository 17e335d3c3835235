package http01_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"chancery.dev/internal/limits"
	"chancery.dev/internal/rig/bounds"
	"chancery.dev/internal/solver/http01"
)

// accepts is a listener that accepts these connections.
type accepts chan net.Conn

func (a accepts) Accept() (net.Conn, error) {
	if conn, more := <-a; more {
		return conn, nil
	}
	return nil, errors.New("there are no more")
}
func (a accepts) Close() error   { return nil }
func (a accepts) Addr() net.Addr { return &net.UnixAddr{} }

// TestTheOldestConnectionGivesWay to one more than the bound. A connection that was closed has no place.
func TestTheOldestConnectionGivesWay(t *testing.T) {
	bounds.Holds(t, "connections to a port", func(n int) limits.Outcome {
		from := make(accepts, 1)
		listener, clients := http01.KeepNewest(from, limits.Connections), make([]net.Conn, n)
		for i := range n {
			if i == 1 { // one that is closed by itself
				_, other := net.Pipe()
				from <- other
				conn, err := listener.Accept()
				if err != nil || conn.Close() != nil {
					t.Fatal(err)
				}
			}
			var server net.Conn
			clients[i], server = net.Pipe()
			from <- server
			if _, err := listener.Accept(); err != nil {
				t.Fatal(err)
			}
		}
		for _, client := range clients[1:] {
			if isClosed(client) {
				t.Fatal("another one than the oldest was closed")
			}
		}
		if isClosed(clients[0]) {
			return limits.Dropped
		}
		return limits.Taken
	})
}

// TestConnectionsDoNotHideTheResponder: more silent connections than there may be do not keep a CA from its answer.
func TestConnectionsDoNotHideTheResponder(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = http01.Serve(t.Context(), listener, http01.NewResponder(http01.ResponderOptions{Index: http01.NewIndex()}))
	}()
	silent := make([]net.Conn, limits.Connections+10)
	for i := range silent {
		if silent[i], err = new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String()); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = silent[i].Close() }()
	}
	resp, err := http.Get("http://" + listener.Addr().String() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	_ = silent[0].SetReadDeadline(time.Now().Add(time.Second)) // the responder's own time is longer
	if _, err := silent[0].Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the oldest silent connection: %v", err)
	}
}

// isClosed reports whether the other end of a pipe is closed.
func isClosed(client net.Conn) bool {
	_ = client.SetReadDeadline(time.Now())
	_, err := client.Read(make([]byte, 1))
	return errors.Is(err, io.EOF)
}
