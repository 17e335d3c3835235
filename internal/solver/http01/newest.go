package http01

import (
	"container/list"
	"net"
	"sync"
)

// KeepNewest returns a listener with at most so many open connections: above that, it closes the connection that was
// accepted the longest ago. A CA asks as soon as it has connected, and soon has its answer. A client that opens
// connections and does nothing with them takes neither memory nor the place of a CA.
func KeepNewest(listener net.Listener, most int) net.Listener {
	return &newest{Listener: listener, most: most}
}

type newest struct {
	net.Listener

	most int
	mu   sync.Mutex
	// open are the connections, the oldest first.
	open list.List
}

// Accept implements net.Listener.
func (l *newest) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	conn := &counted{Conn: accepted, of: l}
	l.mu.Lock()
	conn.place = l.open.PushBack(conn)
	var oldest *counted
	if l.open.Len() > l.most {
		oldest, _ = l.open.Front().Value.(*counted)
	}
	l.mu.Unlock()
	if oldest != nil {
		_ = oldest.Close() // whose server finds out
	}
	return conn, nil
}

// counted is a connection that has a place until it is closed.
type counted struct {
	net.Conn

	of    *newest
	place *list.Element
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.of.mu.Lock()
	c.of.open.Remove(c.place) // once: it knows its list
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite lets a server end an answer before it closes a connection that a client still writes to.
func (c *counted) CloseWrite() error {
	if half, can := c.Conn.(interface{ CloseWrite() error }); can {
		return half.CloseWrite()
	}
	return nil
}
