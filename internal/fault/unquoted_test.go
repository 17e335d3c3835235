package fault

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// TestUnquoted: a tenant names a server that does not speak HTTP, such as a database. What that server says is
// not told to the tenant.
func TestUnquoted(t *testing.T) {
	database, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = database.Close() }()
	go func() {
		for {
			conn, err := database.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "-ERR \"secret\" \\\n\n")
			_ = conn.Close()
		}
	}()
	resp, err := http.Get("http://" + database.Addr().String())
	if err == nil {
		_ = resp.Body.Close()
		t.Fatal("it spoke HTTP")
	}
	if !strings.Contains(err.Error(), "secret") {
		t.Errorf("Go's client does not quote it any more: %v", err)
	}
	if said := Unquoted(err); strings.Contains(said, "secret") || !strings.Contains(said, "malformed HTTP") {
		t.Error(said)
	}
	if said := Unquoted(errors.New(`it said "sec`)); strings.Contains(said, "sec") {
		t.Error(said)
	}
}
