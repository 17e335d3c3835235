package app

import (
	"net"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"

	"k8s.io/client-go/rest"
)

// TestDirect looks at the connections of a client: HTTP/1.1 although the server offers
// HTTP/2, and bounds on the silence of the other end.
func TestDirect(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(r.Proto))
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	rc := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	direct(rc)
	client, err := rest.HTTPClientFor(rc)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.ProtoMajor != 1 {
		t.Errorf("the server was spoken to in %s", resp.Proto)
	}

	conn, err := rc.Dial(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ option, want int }{
		"TCP_USER_TIMEOUT in ms": {tcpUserTimeout, 30_000},
		"TCP_KEEPIDLE in s":      {syscall.TCP_KEEPIDLE, 15},
		"TCP_KEEPINTVL in s":     {syscall.TCP_KEEPINTVL, 5},
		"TCP_KEEPCNT":            {syscall.TCP_KEEPCNT, 3},
	} {
		err := raw.Control(func(fd uintptr) {
			if got, err := syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, c.option); err != nil || got != c.want {
				t.Errorf("%s is %d, %v, want %d", name, got, err, c.want)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
