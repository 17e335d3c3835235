package http01_test

import (
	"crypto/tls"
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

// TestTheQuietConnectionGivesWay to one more than the bound: that which has asked nothing for the longest time. A
// connection that was closed has no place.
func TestTheQuietConnectionGivesWay(t *testing.T) {
	try := func(most int) func(n int) limits.Outcome {
		return func(n int) limits.Outcome { return openConnections(t, most, n) }
	}
	bounds.Holds(t, "connections to a port", try(limits.Connections))
	bounds.Holds(t, "connections to the webhook", try(limits.WebhookConnections))
}

// openConnections opens n connections, of which one asks again and again.
func openConnections(t *testing.T, most, n int) limits.Outcome {
	t.Helper()
	connections, clients := http01.NewConnections(most), make([]net.Conn, n-1)
	accept := func() (client, conn net.Conn) {
		client, conn = net.Pipe()
		connections.Track(conn, http.StateNew)
		return client, conn
	}
	_, closed := accept()
	asking, asks := accept()
	connections.Track(closed, http.StateClosed)
	for i := range clients {
		clients[i], _ = accept()
		connections.Track(asks, http.StateActive)
		connections.Track(asks, http.StateIdle)
	}
	for _, client := range append(clients[1:], asking) {
		if isClosed(client) {
			t.Fatal("another one than the quiet one was closed")
		}
	}
	if isClosed(clients[0]) {
		return limits.Dropped
	}
	return limits.Taken
}

// TestAConnectionThatMadeRoomHasNoPlace: the server tells of its end later, and as many as before are open then.
func TestAConnectionThatMadeRoomHasNoPlace(t *testing.T) {
	connections := http01.NewConnections(2)
	var clients, conns [5]net.Conn
	for i := range conns {
		clients[i], conns[i] = net.Pipe()
		connections.Track(conns[i], http.StateNew)
	}
	for _, conn := range conns[:3] {
		connections.Track(conn, http.StateActive)
		connections.Track(conn, http.StateClosed)
	}
	for i, client := range clients {
		if open := !isClosed(client); open != (i >= 3) {
			t.Errorf("connection %d is open: %t", i, open)
		}
	}
	client, conn := net.Pipe()
	connections.Track(conn, http.StateNew)
	if !isClosed(clients[3]) || isClosed(clients[4]) || isClosed(client) {
		t.Error("for one more, another one than the oldest made room")
	}
}

// TestATLSConnectionMakesRoomAtOnce: its client reads nothing.
func TestATLSConnectionMakesRoomAtOnce(t *testing.T) {
	connections := http01.NewConnections(1)
	client, conn := net.Pipe()
	connections.Track(tls.Server(conn, &tls.Config{}), http.StateNew)
	_, other := net.Pipe()
	connections.Track(other, http.StateNew)
	if !isClosed(client) {
		t.Error("it is open")
	}
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
