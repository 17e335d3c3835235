package http01

import (
	"container/list"
	"net"
	"net/http"
	"sync"
)

// Connections holds the number of open connections of a port within a bound. For one more, it closes the connection
// that has asked nothing for the longest time, counted from when it was opened. A client that opens connections and
// asks nothing takes neither memory nor the place of a CA, which asks at once, or of the API server, which keeps its
// connection and asks again and again.
type Connections struct {
	most int
	mu   sync.Mutex
	// order has the connection first that has asked nothing for the longest time. places are where each is in it.
	order  list.List
	places map[net.Conn]*list.Element
}

// NewConnections returns Connections with that bound.
func NewConnections(most int) *Connections {
	return &Connections{most: most, places: map[net.Conn]*list.Element{}}
}

// Track is for the field ConnState of an http.Server. Who serves another protocol calls it with http.StateNew and with
// http.StateClosed.
func (c *Connections) Track(conn net.Conn, state http.ConnState) {
	if last := c.track(conn, state); last != nil {
		_ = last.Close() // whose server finds out
	}
}

// track returns the connection that has to make room; nil for none.
func (c *Connections) track(conn net.Conn, state http.ConnState) (last net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	place, open := c.places[conn]
	switch {
	case state == http.StateNew:
		c.places[conn] = c.order.PushBack(conn)
		if len(c.places) > c.most {
			last, _ = c.order.Remove(c.order.Front()).(net.Conn)
			delete(c.places, last)
		}
	case !open: // it had to make room
	case state == http.StateActive:
		c.order.MoveToBack(place)
	case state == http.StateClosed, state == http.StateHijacked:
		c.order.Remove(place)
		delete(c.places, conn)
	}
	if secure, is := last.(interface{ NetConn() net.Conn }); is {
		return secure.NetConn() // TLS would first say that it ends, to a client that may not read that
	}
	return last
}
