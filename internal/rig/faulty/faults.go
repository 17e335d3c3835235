package faulty

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strconv"
	"time"
)

// Fault is what happens to one request.
type Fault func(*Exchange)

// Exchange is one request that is waiting for its answer.
type Exchange struct {
	proxy *Proxy
	w     http.ResponseWriter
	r     *http.Request
	body  []byte
}

// Proxy is the one that the request came to.
func (x *Exchange) Proxy() *Proxy { return x.proxy }

// Ask has the CA act; nil if it gave no answer.
func (x *Exchange) Ask() *Answer {
	a, err := x.proxy.ask(x.r, x.body)
	if err != nil {
		return nil
	}
	return a
}

// Send sends an answer; without one the connection is reset.
func (x *Exchange) Send(a *Answer) {
	if a == nil {
		x.Reset()
		return
	}
	x.header(a)
	_, _ = x.w.Write(a.Body)
}

func (x *Exchange) header(a *Answer) {
	maps.Copy(x.w.Header(), a.Header)
	if x.r.Method != http.MethodHead {
		x.w.Header().Set("Content-Length", strconv.Itoa(len(a.Body)))
	}
	x.w.WriteHeader(a.Status)
}

// Reset breaks the connection.
func (x *Exchange) Reset() {
	conn, _, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // RST, not FIN
	}
	_ = conn.Close()
}

func pass(x *Exchange) { x.Send(x.Ask()) }

// Refuse answers in place of the CA, which hears nothing. The problem type is that of
// RFC 8555 §6.7; empty means a page of HTML, as other proxies send it. An empty
// retryAfter sends none.
func Refuse(status int, problem, retryAfter string) Fault {
	return func(x *Exchange) {
		a := &Answer{Status: status, Header: http.Header{"Content-Type": {"text/html"}}, Body: []byte("<html>" + http.StatusText(status) + "</html>")}
		if problem != "" {
			a.Header.Set("Content-Type", "application/problem+json")
			a.Body = fmt.Appendf(nil, `{"type":"urn:ietf:params:acme:error:%s","detail":"%s, says the proxy","status":%d}`, problem, problem, status)
		}
		if retryAfter != "" {
			a.Header.Set("Retry-After", retryAfter)
		}
		x.Send(a)
	}
}

// Cut resets the connection before the CA has heard of the request.
func Cut() Fault { return func(x *Exchange) { x.Reset() } }

// Lose resets the connection after the CA has acted.
func Lose() Fault {
	return func(x *Exchange) {
		x.Ask()
		x.Reset()
	}
}

// Truncate sends half of the CA's answer and resets the connection.
func Truncate() Fault {
	return func(x *Exchange) {
		a := x.Ask()
		if a == nil || len(a.Body) < 2 {
			x.Reset()
			return
		}
		x.header(a)
		_, _ = x.w.Write(a.Body[:len(a.Body)/2])
		_ = http.NewResponseController(x.w).Flush()
		x.Reset()
	}
}

// Slow sends the CA's answer in pieces, over that time.
func Slow(over time.Duration) Fault {
	const pieces = 8
	return func(x *Exchange) {
		a := x.Ask()
		if a == nil {
			x.Reset()
			return
		}
		x.header(a)
		pause := time.NewTicker(over / pieces)
		defer pause.Stop()
		for i := range pieces {
			select {
			case <-x.r.Context().Done():
				return
			case <-pause.C:
			}
			_, _ = x.w.Write(a.Body[i*len(a.Body)/pieces : (i+1)*len(a.Body)/pieces])
			_ = http.NewResponseController(x.w).Flush()
		}
	}
}

// Hang never answers, and the CA hears nothing: the client has to give up.
func Hang() Fault {
	return func(x *Exchange) { <-x.r.Context().Done() }
}

// First makes something happen before the CA hears of the request.
func First(happens func(*Proxy)) Fault {
	return func(x *Exchange) {
		happens(x.proxy)
		pass(x)
	}
}

// Stall has orders look as if the CA were still processing them, in this answer and in
// those that follow, that many times.
func Stall(times int) Fault {
	return First(func(p *Proxy) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.stalled = times
	})
}

// edit changes an answer that is a JSON object, if f reports that it has changed it.
func (a *Answer) edit(f func(object map[string]any) bool) {
	var object map[string]any
	if a.Status >= http.StatusBadRequest || json.Unmarshal(a.Body, &object) != nil || !f(object) {
		return
	}
	if body, err := json.Marshal(object); err == nil {
		a.Body = body
	}
}

// postpone changes when an order or an authorization expires into a time of the client's
// clock (RFC 8555 §7.1.3, §7.1.4).
func (p *Proxy) postpone(a *Answer) {
	if p.o.Ahead == nil {
		return
	}
	a.edit(func(object map[string]any) bool {
		text, _ := object["expires"].(string)
		expires, err := time.Parse(time.RFC3339, text)
		if err == nil {
			object["expires"] = expires.Add(p.o.Ahead()).Format(time.RFC3339Nano)
		}
		return err == nil
	})
}

// stall changes an order that is valid into one that is not yet. The caller holds mu.
func (p *Proxy) stall(a *Answer) {
	if p.stalled == 0 {
		return
	}
	a.edit(func(order map[string]any) bool {
		if order["finalize"] == nil || order["status"] != "valid" && order["status"] != "processing" {
			return false
		}
		p.stalled--
		order["status"] = "processing"
		delete(order, "certificate")
		return true
	})
}
